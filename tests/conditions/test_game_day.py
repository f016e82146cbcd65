"""A game day picks its causes by the seed, names them and ends them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.metrics.condition_kinds import KINDS
from tests.conditions.blind import BlindRound, when_named
from tests.conditions.causes import CAUSES
from tests.conditions.field import Field
from tests.conditions.game_day import main, turns
from tests.conditions.load import TOPIC, Load
from tests.crash.not_here import skipped_without


@pytest.mark.parametrize("seed", range(5))
def test_each_cause_comes_once_and_two_at_a_time_concern_different_brokers(seed: int) -> None:
    plan = turns(seed, 20)
    names = [cause.name for turn in plan for cause in turn]
    assert len(set(names)) == len(names) == 20
    assert plan == turns(seed, 20) and plan != turns(seed + 1, 20)
    assert {len(turn) for turn in plan} == {1, 2}
    assert all(len({cause.where[-1] for cause in turn}) == len(turn) for turn in plan)


def test_there_are_at_least_25_causes_of_other_conditions() -> None:
    assert len({cause.name for cause in CAUSES}) == len(CAUSES) >= 25
    assert len({cause.kind for cause in CAUSES}) >= 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_game_day_names_and_ends_its_causes(capsys: pytest.CaptureFixture[str]) -> None:
    with skipped_without("a loop device"):
        assert main(["--seed", "3", "--causes", "3", "--quick"]) == 0
    assert "3 of 3 causes named, 3 ended by their remedies" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_blind_round_says_what_it_was_only_after_it_was_judged(tmp_path: Path) -> None:
    said: list[str] = []
    (drain,) = (each for each in CAUSES if each.name == "a_forgotten_drain")
    with skipped_without("a loop device"), Field(tmp_path) as field:
        field.run("topic", "create", TOPIC)
        with Load(field.namesrv) as load:
            blind = BlindRound(field, load, tmp_path / "sealed", said.append)
            assert blind.play(1, [drain], _operator(field, said)) == (1, 1, True)
            assert blind.play(2, [drain], iter(["named no_master", "hands", "give up"])) == (0, 0, False)
    assert "a_forgotten_drain" in (tmp_path / "sealed").read_text()
    told = "\n".join(said)
    assert re.search(r"0 of [1-9]\d+ acknowledged messages of Load are lost", told)
    assert "named besides: no_master" in told and "no condition left" in told


def test_who_names_that_from_which_a_condition_follows_has_named_its_cause() -> None:
    late, gone = (each for kind in ("delivery_late", "no_slave") for each in CAUSES if each.kind == kind)
    assert when_named([late, gone], {"disk_full": 9.0, "drained": 1.0}) == {late.name: 9.0}
    assert when_named([late, gone], {"delivery_late": 20.0, "no_slave": 3.0}) == {
        late.name: 20.0,
        gone.name: 3.0,
    }
    for each in CAUSES:
        (kind,) = (kind for kind in KINDS if kind.name == each.kind)
        assert not each.root or each.root in (*kind.follows, "disk_nearly_full")


def _operator(field: Field, said: list[str]) -> Iterator[str]:
    """Yield what somebody types who does what doctor says."""
    _, (found,) = field.doctor()
    (name,) = re.findall(r"\((\w+), since", found.what)
    assert "something is wrong" in said[-1] and not any(word in said[-1] for word in ("drain", name))
    yield f"named {name}"
    field.follow(found, "undrain")
    yield "mended"
