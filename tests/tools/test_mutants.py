from pathlib import Path

import pytest

from tools import mutants
from tools.mutants import Mutant, Outcome, UnfitMutant, Verdict

SOURCE = "def add(a, b):\n    if a < 0:\n        return 0\n    return a + b\n"
TESTS = """
from examples.sums import add

def test_sum(): assert add(1, 2) == 3
def test_negative(): assert add(-1, 2) == 0
def test_wrong(): assert add(1, 1) == 3
"""


def mutant(before: str, after: str, test: str = "test_sum") -> Mutant:
    return Mutant(
        f"{before} is not {after}", "examples/sums.py", before, after, f"tests/test_sums.py::{test}"
    )


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A small project in the place of ours."""
    for name, text in {
        "examples/sums.py": SOURCE,
        "tests/test_sums.py": TESTS,
        "pyproject.toml": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    project: Path = tmp_path
    return project


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("a * b", "a - b", "0 times"),
        ("return", "pass", "2 times"),
        ("a + b", "a +", "cannot be parsed"),
        ("a + b", "a  + b", "nothing changes"),
    ],
)
def test_a_mutant_that_does_not_apply_says_why(before, after, why):
    with pytest.raises(UnfitMutant, match=why):
        mutant(before, after).apply(SOURCE)


def test_a_list_with_faults_is_told_all_of_them(project):
    bad = [mutant("a + b", "a - b", "test_gone"), mutant("a - b", "a"), *[mutant("a + b", "a")] * 2]
    found = list(mutants.problems(bad, project))
    assert ["no test" in found[0], "0 times" in found[1], "two mutants" in found[2]] == [True] * 3
    assert len(found) == 3


def test_mutants_are_played_by_their_tests_alone_and_the_sources_stay(project):
    said: list[str] = []
    played = [
        mutant("a + b", "a - b"),
        mutant("a < 0", "a < -9"),
        mutant("a < 0", "a < -9", "test_negative"),
        mutant("a + b", "a * b", "test_wrong"),
        mutant("def add", "def sub"),
    ]
    outcomes = mutants.play(played, said.append)
    verdicts = [outcome.verdict for outcome in outcomes]
    assert verdicts == [Verdict.KILLED, Verdict.SURVIVED, Verdict.KILLED, Verdict.UNFIT, Verdict.UNFIT]
    assert "fails without it" in outcomes[3].why
    assert "breaks the import" in outcomes[4].why
    assert len(said) == 5
    assert (project / "examples/sums.py").read_text() == SOURCE


def test_a_mutant_that_never_ends_is_killed(project, monkeypatch):
    monkeypatch.setattr(mutants, "LIMIT_S", 2)
    endless = mutant("    return a + b", "    while b:\n        pass")
    assert [outcome.verdict for outcome in mutants.play([endless], print)] == [Verdict.KILLED]


def test_the_page_has_each_promise_and_what_came_of_it():
    outcomes = [
        Outcome(mutant("a + b", "a - b"), Verdict.KILLED, 1.0),
        Outcome(mutant("a < 0", "a < -9"), Verdict.SURVIVED, 1.0),
    ]
    text = mutants.page(outcomes)
    assert "2 mutants: 1 killed, 1 survived, 0 does not apply, 0 not played yet." in text
    assert "| a + b is not a - b | `test_sums.py::test_sum` | killed |" in text


def test_what_is_not_played_keeps_its_place_on_the_page(project):
    one, two, three = mutant("a + b", "a - b"), mutant("a < 0", "a < -9"), mutant("a < 0", "a <= 0")
    mutants.write_page([one, two], [Outcome(one, Verdict.KILLED), Outcome(two, Verdict.SURVIVED)])
    mutants.write_page([one, two, three], [Outcome(two, Verdict.KILLED)])
    text = (project / mutants.PAGE).read_text()
    assert "3 mutants: 2 killed, 0 survived, 0 does not apply, 1 not played yet." in text
    assert "| a < 0 is not a <= 0 | `test_sums.py::test_sum` | not played yet |" in text


def test_words_choose_by_file_promise_or_test():
    one = mutant("a + b", "a - b")
    assert [mutants.is_chosen(one, words) for words in ([], ["sums.py"], ["is not"], ["test_sum"])] == [
        True
    ] * 4
    assert not mutants.is_chosen(one, ["store"])
