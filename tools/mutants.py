"""Puts small faults into the code, one at a time, and sees whether a test finds each: `python -m tools.mutants`.

    python -m tools.mutants             all of them, two at a time; writes build/mutants.md
    python -m tools.mutants WORD ...    those whose file, promise or test contains a word; the others stay on the
                                        page with what came of them before
    python -m tools.mutants --check     only whether the lists fit the code, in seconds

A list is a file tools/faults/*.toml of entries like this one:

    [[mutant]]
    promise = "an answer waits for the sync of its record"
    file = "sparrowmq/store/log/flush.py"
    before = "self.flushed.advance(order.target)"      # in the file exactly once
    after = "pass"
    test = "tests/store/log/test_flush.py::test_what_is_appended_gets_on_disk"

Each mutant is played in a copy of the tree, from source, by its test alone. It is killed when the test fails, or
takes longer than half a minute; a mutant that survives shows a promise that no test keeps.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LISTS: Final = Path(__file__).with_name("faults")
PAGE: Final = "build/mutants.md"
WORKERS: Final = 2
LIMIT_S: Final = 30
COPIED: Final = (
    "sparrowmq",
    "pyspark_rocketmq",
    "tests",
    "tools",
    "docs",
    "examples",
    "bench",
    "requirements",
)
_NOT_COPIED: Final = shutil.ignore_patterns("*.so", "__pycache__", "build")
_PYTEST: Final = ("-m", "pytest", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider")


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNFIT = "does not apply"  # the list is wrong: another text in the file, no such test, a test that fails anyway
    UNPLAYED = "not played yet"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault, and the test that finds it. `file` is a path below the root, `test` a node id of pytest."""

    promise: str
    file: str
    before: str
    after: str
    test: str

    def apply(self, source: str) -> str:
        """The file's text with the fault in it. Raises: UnfitMutant."""
        count = source.count(self.before)
        if count != 1:
            raise UnfitMutant(f"the text is {count} times in {self.file}, not once: {self.before.strip()!r}")
        mutated = source.replace(self.before, self.after)
        if self.before.split() == self.after.split():
            raise UnfitMutant(f"nothing changes in {self.file}: {self.before.strip()!r}")
        try:
            compile(mutated, self.file, "exec")
        except SyntaxError as error:
            raise UnfitMutant(f"{self.file} cannot be parsed with {self.after.strip()!r}: {error}") from None
        return mutated


@dataclass(frozen=True, slots=True)
class Outcome:
    """A mutant and what became of it; `why` says what is wrong with one that does not apply."""

    mutant: Mutant
    verdict: Verdict
    took_s: float = 0.0
    why: str = ""


class UnfitMutant(Exception):
    """A mutant that cannot be played; the text says why."""


def main(arguments: list[str]) -> int:
    mutants = read_lists(LISTS)
    unfit = list(problems(mutants))
    for problem in unfit:
        print(problem, file=sys.stderr)
    if unfit or arguments == ["--check"]:
        print(f"{len(mutants)} mutants, {len(unfit)} do not apply")
        return 1 if unfit else 0
    chosen = [mutant for mutant in mutants if is_chosen(mutant, arguments)]
    outcomes = play(chosen, print)
    for outcome in outcomes:
        if outcome.verdict is not Verdict.KILLED:
            print(f"{outcome.verdict.value}: {outcome.mutant.file}: {outcome.mutant.promise} {outcome.why}")
    print(tally(outcomes))
    write_page(mutants, outcomes)
    print(f"wrote {PAGE}")
    return 0 if all(outcome.verdict is Verdict.KILLED for outcome in outcomes) else 1


# --- the lists


def read_lists(folder: Path) -> list[Mutant]:
    """All mutants, list by list."""
    return [
        Mutant(**entry)
        for file in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]
    ]


def is_chosen(mutant: Mutant, words: Sequence[str]) -> bool:
    return not words or any(
        word in text for word in words for text in (mutant.file, mutant.promise, mutant.test)
    )


def problems(mutants: Sequence[Mutant], root: Path = ROOT) -> Iterator[str]:
    """What is wrong with the lists, a sentence each: texts that are not there once, tests that do not exist."""
    seen: set[str] = set()
    for mutant in mutants:
        try:
            mutant.apply((root / mutant.file).read_text(encoding="utf-8"))
            find_test(root, mutant.test)
        except (UnfitMutant, OSError) as error:
            yield f"{mutant.promise}: {error}"
        if mutant.promise in seen:
            yield f"{mutant.promise}: two mutants have this promise"
        seen.add(mutant.promise)


def find_test(root: Path, node: str) -> None:
    """Raises: UnfitMutant, if there is no such test; parameters are not looked at."""
    path, _, name = node.partition("[")[0].partition("::")
    file = root / path
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if not re.search(rf"^(async )?def {re.escape(name)}\(", text, re.MULTILINE):
        raise UnfitMutant(f"there is no test {node}")


# --- playing


def play(mutants: Sequence[Mutant], say: Callable[[str], object]) -> list[Outcome]:
    """Play mutants, two at a time, each in a copy of the tree; the outcomes are in the order of the mutants."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copies.put(copy_tree(Path(scratch) / str(number)))
        first = copies.get()
        failing = failing_tests(first, mutants)
        copies.put(first)

        def one(mutant: Mutant) -> Outcome:
            if mutant.test in failing:
                return Outcome(mutant, Verdict.UNFIT, why=f"({mutant.test} fails without it)")
            copy = copies.get()
            try:
                return play_one(copy, mutant)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(WORKERS) as pool:
            running = {pool.submit(one, mutant): mutant for mutant in mutants}
            for number, future in enumerate(as_completed(running), 1):
                outcome = future.result()
                word = outcome.verdict.value
                say(f"{number:4}/{len(mutants)}  {word:9} {outcome.took_s:5.1f} s  {outcome.mutant.promise}")
            return [future.result() for future in running]


def copy_tree(target: Path) -> Path:
    """A copy of the sources; its bytecode goes by the sources' content, so that a mutant is never taken for another."""
    target.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=_NOT_COPIED)
    for file in ROOT.iterdir():
        if file.is_file() and file.suffix != ".so":
            shutil.copy2(file, target / file.name)
    compiling = ("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "sparrowmq", "tests")
    subprocess.run([sys.executable, *compiling], cwd=target, check=True, stdout=subprocess.DEVNULL)
    return target


def failing_tests(copy: Path, mutants: Sequence[Mutant]) -> set[str]:
    """The named tests that do not pass without a fault: each is run alone unless all of them pass together."""
    tests = sorted({mutant.test for mutant in mutants})
    if not tests or run_tests(copy, tests, LIMIT_S * 10) == 0:
        return set()
    return {test for test in tests if run_tests(copy, [test], LIMIT_S) != 0}


def play_one(copy: Path, mutant: Mutant) -> Outcome:
    file = copy / mutant.file
    source = file.read_text(encoding="utf-8")
    began = time.monotonic()
    try:
        file.write_text(mutant.apply(source), encoding="utf-8")
        status = run_tests(copy, [mutant.test], LIMIT_S)
    finally:
        file.write_text(source, encoding="utf-8")
    verdict = {0: Verdict.SURVIVED, 1: Verdict.KILLED}.get(status, Verdict.UNFIT)
    why = f"(pytest ended with {status}: the fault breaks the import)" if verdict is Verdict.UNFIT else ""
    return Outcome(mutant, verdict, time.monotonic() - began, why)


def run_tests(copy: Path, tests: Sequence[str], limit_s: float) -> int:
    """pytest's exit status in a copy of the tree; 1, as for a failure, when it takes too long."""
    ours = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    environment = ours | {
        "SPARROWMQ_SOURCE": "1",
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    process = subprocess.Popen(
        [sys.executable, *_PYTEST, *tests],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return 1


# --- the page


def write_page(mutants: Sequence[Mutant], played: Sequence[Outcome]) -> None:
    """Write build/mutants.md: the verdicts of this run, and those of earlier runs that the file has."""
    file = ROOT / PAGE
    now = {outcome.mutant: outcome for outcome in played}
    before = set(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else set()
    outcomes = [now.get(mutant) or Outcome(mutant, verdict_on(mutant, before)) for mutant in mutants]
    file.parent.mkdir(exist_ok=True)
    file.write_text(page(outcomes), encoding="utf-8")


def verdict_on(mutant: Mutant, lines: Set[str]) -> Verdict:
    """What a page says of a mutant."""
    return next((verdict for verdict in Verdict if row(mutant, verdict) in lines), Verdict.UNPLAYED)


def tally(outcomes: Sequence[Outcome]) -> str:
    counts = {verdict: sum(each.verdict is verdict for each in outcomes) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items())


def page(outcomes: Sequence[Outcome]) -> str:
    """The text of build/mutants.md."""
    lines = [
        "# Mutants",
        "",
        "<!-- Written by `./run mutants`; do not edit. -->",
        "",
        "Small faults that were put into the code one at a time, the promise that each breaks, and the test that",
        "found it when it was last played. The faults themselves are in `tools/faults/`; `./run mutants` plays them",
        "again.",
        "",
        f"{len(outcomes)} mutants: {tally(outcomes)}.",
    ]
    for file in dict.fromkeys(outcome.mutant.file for outcome in outcomes):
        lines += ["", f"## {file}", "", "| promise | test | |", "|---|---|---|"]
        lines += [row(each.mutant, each.verdict) for each in outcomes if each.mutant.file == file]
    return "\n".join(lines) + "\n"


def row(mutant: Mutant, verdict: Verdict) -> str:
    path, _, name = mutant.test.partition("::")
    test = f"`{Path(path).name}::{name}`".replace("|", "\\|")
    return f"| {mutant.promise} | {test} | {verdict.value} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
