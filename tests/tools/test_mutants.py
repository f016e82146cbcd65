from pathlib import Path

import pytest

from tools import docs, mutants
from tools.breaks import Break, read_breaks, read_found
from tools.mutants import Outcome, Verdict

ROOT = Path(__file__).parents[2]
SOURCE = "def add(a, b):\n    if a < 0:\n        return 0\n    return a + b\n"
TESTS = """
import pytest
from pyspark_rocketmq.sums import add

@pytest.mark.parametrize("b", [2, 3])
def test_sum(b): assert add(1, b) == 1 + b
def test_negative(): assert add(-1, 2) == 0
def test_wrong(): assert add(1, 1) == 3
"""
SUM, NEGATIVE = "tests/test_sums.py::test_sum", "tests/test_sums.py::test_negative"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A small project in the place of ours."""
    files = {
        "pyspark_rocketmq/sums.py": SOURCE,
        "pyspark_rocketmq/__init__.py": "",
        "tests/test_sums.py": TESTS,
        "pyproject.toml": "",
        "tools/found.txt": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    project: Path = tmp_path
    return project


@pytest.mark.slow
def test_breaks_run_with_their_tests_alone_and_the_sources_stay(project):
    said: list[str] = []
    breaks = [
        Break(SUM, "sums.add: a + b -> a - b"),
        Break(SUM, "sums.add: a < 0 -> a < -9"),
        Break(NEGATIVE, "sums.add: a < 0 -> a < -9", "S-SUM-01"),
        Break("tests/test_sums.py::test_wrong", "sums.add: a + b -> a * b"),
        Break(SUM, "sums: drop add"),
    ]
    outcomes = mutants.run(breaks, said.append)
    verdicts = [outcome.verdict for outcome in outcomes]
    assert verdicts == [Verdict.FOUND, Verdict.SURVIVED, Verdict.FOUND, Verdict.UNFIT, Verdict.UNFIT]
    assert "fails without" in outcomes[3].why
    assert "cannot be imported" in outcomes[4].why
    assert len(said) == 5
    assert (project / "pyspark_rocketmq/sums.py").read_text() == SOURCE


@pytest.mark.slow
def test_a_break_that_never_ends_is_found(project, monkeypatch):
    monkeypatch.setattr(mutants, "LIMIT_S", 2)
    endless = Break(SUM, "sums.add: return a + b -> while True: pass")
    assert [outcome.verdict for outcome in mutants.run([endless], print)] == [Verdict.FOUND]


def test_a_break_that_does_not_fit_is_a_problem(project):
    good, bad = Break(SUM, "sums.add: a + b -> a - b"), Break(SUM, "sums.sub: a + b -> a - b")
    assert list(mutants.problems([good, bad], project)) == [f"{SUM}: there is no sums.sub"]


def test_arguments_choose_breaks():
    seed, guard = Break(SUM, "sums.add: return 1", "S-SUM-01"), Break(NEGATIVE, "sums.add: return 2")
    chosen = {
        (): [seed],
        ("--guards",): [guard],
        ("--all",): [seed, guard],
        ("S-SUM-01",): [seed],
        ("return 2", "other"): [guard],
        ("test_sums",): [seed, guard],
    }
    assert {
        words: [each for each in (seed, guard) if mutants.is_chosen(each, words)] for words in chosen
    } == chosen


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["--gards"], 2), (["no such break"], 2)])
def test_arguments_that_choose_nothing_run_nothing(project, monkeypatch, words, status):
    monkeypatch.setattr(mutants, "run", lambda *_: pytest.fail("it runs"))
    assert mutants.main(words) == status


def test_found_breaks_of_capabilities_are_remembered_until_they_change_or_survive(project):
    one, two, three = (Break(SUM, f"sums.add: return {value}", f"S-SUM-0{value}") for value in (1, 2, 3))
    guard = Break(SUM, "sums.add: return 4")
    mutants.remember([one, two, guard], [Outcome(each, Verdict.FOUND) for each in (one, two, guard)])
    assert read_found(project) == {one, two}
    mutants.remember([one, two, three], [Outcome(two, Verdict.SURVIVED), Outcome(three, Verdict.FOUND)])
    assert read_found(project) == {one, three}
    mutants.remember([one], [])
    assert read_found(project) == {one}


def test_the_report_has_each_break_and_its_result():
    outcomes = [
        Outcome(Break(SUM, "sums.add: a | b -> a", "S-SUM-01"), Verdict.FOUND, 1.0),
        Outcome(Break(SUM, "sums.add: return 1"), Verdict.SURVIVED, 1.0),
    ]
    text = mutants.report(outcomes)
    assert "2 breaks: 1 found, 1 survived, 0 does not run." in text
    assert f"| S-SUM-01 `sums.add: a \\| b -> a` | `{SUM}` | found  |" in text


@pytest.mark.slow
def test_every_break_fits_the_code():
    assert list(mutants.problems(read_breaks(ROOT / "tests"), ROOT)) == []


def test_every_capability_has_a_break_that_was_found():
    """After a change of a break or of its test, `./run mutants S-...` runs it again."""
    known = {seed for area in docs.read_seeds().values() for seed in area}
    assert sorted(known - docs.proofs().keys()) == []
