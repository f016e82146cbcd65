"""Mutants made by rule: which changes there are, the same for a seed, and whether a near test finds one."""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tools import mutants as tool
from tools.mutants import (
    AREAS,
    SIMULATION,
    Mutant,
    apply,
    found_by,
    generate,
    listed,
    main,
    reached,
    reaching,
)

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

PATH = "pyspark_rocketmq/shelf.py"
NONE, CHILD = "tests/test_shelf.py::test_none", "tests/test_shelf.py::TestShelf::test_child"
PUT = """
import logging as log
from types import SimpleNamespace
from pyspark_rocketmq import shelf
shelf.log = log
counts = []
stored = SimpleNamespace(things=[], count=lambda: counts.append(1))
shelf.Shelf.put(stored, 5)
"""
TESTS = f"""
import subprocess, sys
import pytest
from pyspark_rocketmq.shelf import Shelf

class TestShelf:
    @pytest.mark.parametrize("things", ["[5]"])
    def test_child(self, things):
        subprocess.run([sys.executable, "-c", {PUT!r} + f"assert stored.things == {{things}}"], check=True)

def test_none():
    with pytest.raises(ValueError):
        Shelf().put(None)

def test_wrong():
    Shelf().put(1)
"""
SIMULATED = PUT + "assert counts"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(AREAS, "shelf", ("shelf.py",))
    (tmp_path / "sparrowmq").mkdir()
    (tmp_path / "sparrowmq/shelf.py").write_text(SOURCE)
    return tmp_path


def test_each_rule_makes_its_changes_and_each_can_be_parsed(root: Path) -> None:
    mutants = generate(root, "shelf", 99, random.Random(1))
    assert sorted(str(each).split(": ", 1)[1] for each in mutants) == CHANGES
    for each in mutants:
        ast.parse(apply(SOURCE, each.edits))


def test_a_list_names_mutants_by_text_at_whatever_line(root: Path) -> None:
    mutants = generate(root, "shelf", 99, random.Random(1))
    lines = [*map(str, mutants), "sparrowmq/shelf.py:9: put: drop self.gone()"]
    twice = SOURCE.replace("        self.count()", "        self.count()\n" * 2)
    (root / "sparrowmq/shelf.py").write_text(f"\n{twice}")
    now = listed(root, lines)
    assert [str(each).split(": ", 1)[1] for each in now] == [str(each).split(": ", 1)[1] for each in mutants]
    moved = {str(each).split(": ", 1)[1]: each.line - before.line for each, before in zip(now, mutants, strict=True)}
    assert moved["put: drop self.last = thing"] == 1 == moved["put: drop self.count()"]


def test_what_reaches_a_mutant_is_saved_for_later_runs_of_the_commit(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants = generate(root, "shelf", 99, random.Random(1))
    runs: list[int] = []

    def reach(copy: Path, mutants: list[Mutant]) -> list[list[str]]:
        runs.append(len(mutants))
        return [[str(each)] for each in mutants]

    monkeypatch.setattr(tool, "reaching", reach)
    saved = tmp_path / "build/reached.json"
    for some, commit in ((mutants[1:], "one"), (mutants[3:], "one"), (mutants, "one"), (mutants, "two")):
        assert reached(root, some, saved, commit) == [[str(each)] for each in some]
    assert runs == [8, 9, 9]


@pytest.mark.slow
def test_a_seed_makes_the_same_mutants_of_all_areas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 196 == len(set(lines))
    assert main(["--show", "--seed", "3"]) == 0 and capsys.readouterr().out.splitlines() == lines
    assert {line.split(":")[0] for line in lines} >= {
        "sparrowmq/core/snapshot.py",
        "sparrowmq/broker/member.py",
    }


@pytest.fixture
def project(root: Path) -> Path:
    """A small project with tests that can run, in a package without a plugin of pytest."""
    for name, text in {
        PATH: SOURCE,
        "pyspark_rocketmq/__init__.py": "",
        "tests/__init__.py": "",
        "tests/test_shelf.py": TESTS,
        "tests/simulation/__main__.py": SIMULATED,
        "tools/probe.py": (ROOT / "tools/probe.py").read_text(),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.slow
def test_a_mutant_has_the_tests_that_come_to_its_place_the_quick_ones_first(project: Path) -> None:
    mutants = _mutants(project)
    tests = reaching(project, mutants, ["tests"])
    named = {str(each).split(": ", 2)[2]: found for each, found in zip(mutants, tests, strict=True)}
    assert named["drop raise ValueError"] == [NONE]
    assert named["drop self.count()"] == [CHILD, SIMULATION] == named["swap self.things.append(thing)"]
    assert named["not thing is None"] == [NONE, CHILD, SIMULATION]
    assert (project / PATH).read_text() == SOURCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "tests", "by"),
    [
        ("drop raise ValueError", [NONE], NONE),
        ("drop self.things.append(thing)", [NONE, CHILD], CHILD),
        ("drop self.count()", [CHILD], ""),
        ("drop self.count()", [CHILD, SIMULATION], SIMULATION),
        ("drop self.count()", [], ""),
    ],
)
def test_a_mutant_is_found_by_the_first_that_fails_and_the_simulation_is_the_last(
    project: Path, change: str, tests: list[str], by: str
) -> None:
    (mutant,) = [each for each in _mutants(project) if str(each).endswith(change)]
    assert found_by(project, mutant, tests) == by
    assert (project / PATH).read_text() == SOURCE


def _mutants(project: Path) -> list[Mutant]:
    return [replace(each, path=PATH) for each in generate(project, "shelf", 99, random.Random(1))]


@pytest.mark.parametrize("pattern", [pattern for patterns in AREAS.values() for pattern in patterns])
def test_every_pattern_of_an_area_leads_to_files(pattern: str):
    assert list((ROOT / "sparrowmq").glob(pattern))
