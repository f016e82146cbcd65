"""A game day picks its causes by the seed, names them and ends them."""

from __future__ import annotations

import pytest

from tests.conditions.causes import CAUSES
from tests.conditions.game_day import main, turns
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
