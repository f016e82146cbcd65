"""The verb: it lists the rigs, plays one, and says what it needs that is not there."""

import importlib
import json
import logging
from pathlib import Path

import pytest

from bench.chaos import __main__ as chaos
from bench.chaos.outcome import Outcome
from tests.crash.not_here import NotHere


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path: Path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    logging.disable(logging.NOTSET)  # which a rig is played without


def rig_of(monkeypatch, name: str, play) -> None:
    monkeypatch.setattr(importlib.import_module(f"bench.chaos.{name}"), "play", play)


def test_every_rig_says_what_it_asks_and_can_be_played():
    rigs = chaos.rigs()
    assert {"failover", "kill", "network", "power"} <= set(rigs)
    for name in rigs:
        assert callable(importlib.import_module(f"bench.chaos.{name}").play)


def test_kept_promises_leave_nothing_behind(monkeypatch, capsys, tmp_path: Path):
    rig_of(monkeypatch, "kill", lambda rounds, seed, folder: Outcome("kill", seed, rounds))
    assert chaos.play("kill", 3, 5, keep=False) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 3
    assert list(tmp_path.iterdir()) == []


def test_a_broken_promise_is_told_and_its_files_are_kept(monkeypatch, capsys, tmp_path: Path):
    def play(rounds: int, seed: int, folder: Path) -> Outcome:
        (folder / "store").touch()
        return Outcome("kill", seed, rounds, problems=["lost: a message"])

    rig_of(monkeypatch, "kill", play)
    assert chaos.play("kill", 3, 5, keep=False) == 1
    assert "lost: a message" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*/*")] == ["store"]


def test_what_cannot_be_played_here_is_skipped_loudly(monkeypatch, capsys, tmp_path: Path):
    def play(rounds: int, seed: int, folder: Path) -> Outcome:
        raise NotHere("it takes root")

    rig_of(monkeypatch, "power", play)
    assert chaos.play("power", 3, 5, keep=False) == 3
    assert "SKIPPED: power cannot be played here: it takes root" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
