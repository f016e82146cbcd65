"""Mutants made by rule: which changes there are, the same for a seed, and whether a near test finds one."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from tools import generated_mutants
from tools.breaks import apply
from tools.generated_mutants import AREAS, Mutant, found_by, generate, main, near_tests

ROOT = Path(__file__).parents[2]
SOURCE = """
class Shelf:
    def put(self, thing):
        if thing is None:
            raise ValueError
        self.last = thing
        self.things.append(thing)
        self.count()
        log.info("put")
        return len(self.things) < 9 or thing > 1
"""
CHANGES = [
    "put: border len(self.things) < 9",
    "put: border thing > 1",
    "put: drop raise ValueError",
    "put: drop self.count()",
    "put: drop self.last = thing",
    "put: drop self.things.append(thing)",
    "put: inverse len(self.things) < 9 or thing > 1",
    "put: not thing is None",
    "put: swap self.things.append(thing)",
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(AREAS, "shelf", ("shelf.py",))
    for name, text in {
        "sparrowmq/shelf.py": SOURCE,
        "tests/test_shelf.py": "from sparrowmq.shelf import Shelf\n",
        "tests/test_room.py": "from sparrowmq import shelf\n",
        "tests/test_other.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_rule_makes_its_changes_and_each_can_be_parsed(root: Path) -> None:
    mutants = generate(root, "shelf", 99, random.Random(1))
    assert sorted(str(each).split(": ", 1)[1] for each in mutants) == CHANGES
    for each in mutants:
        ast.parse(apply(SOURCE, each.edits))


@pytest.mark.slow
def test_a_seed_makes_the_same_mutants_of_all_areas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 200 == len(set(lines))
    assert main(["--seed", "3"]) == 0 and capsys.readouterr().out.splitlines() == lines
    assert {line.split(":")[0] for line in lines} >= {"sparrowmq/snapshot.py", "sparrowmq/broker/election.py"}


def test_the_tests_near_a_module_are_its_own_those_that_import_it_and_the_folders(root: Path) -> None:
    assert near_tests(root, "sparrowmq/shelf.py") == [["tests/test_shelf.py"], ["tests/test_room.py"]]
    assert near_tests(root, "sparrowmq/store/log/shelf.py") == [[], [], ["tests/store/log"], ["tests/store"]]


@pytest.mark.parametrize(
    ("statuses", "simulated", "by"),
    [
        ([1], 0, "tests/test_shelf.py"),
        ([0, 1], 0, "tests/test_room.py"),
        ([0, 0], 1, "simulation"),
        ([0, 0], 0, ""),
        ([5, 0], 0, ""),
    ],
)
def test_a_mutant_is_found_by_the_first_that_fails_and_the_simulation_is_the_last(
    root: Path, monkeypatch: pytest.MonkeyPatch, statuses: list[int], simulated: int, by: str
) -> None:
    (mutant,) = [each for each in _mutants(root) if each.kind == "inverse"]
    ran: list[str] = []

    def run(copy: Path, arguments: list[str], limit_s: float, when_late: int) -> int:
        assert "return (not" in (copy / mutant.path).read_text() and 0 < limit_s <= 600 and when_late == 0
        ran.extend(arguments[3:])
        return statuses[len(ran) - 1]

    monkeypatch.setattr(generated_mutants, "run_tests", run)
    monkeypatch.setattr(
        generated_mutants, "run_python", lambda copy, arguments, limit_s, when_late: simulated
    )
    assert found_by(root, mutant) == by
    assert ran == ["tests/test_shelf.py", "tests/test_room.py"][: len(statuses)]
    assert (root / mutant.path).read_text() == SOURCE


def _mutants(root: Path) -> list[Mutant]:
    return generate(root, "shelf", 99, random.Random(1))
