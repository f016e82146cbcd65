"""Put breaks into the code, one at a time, and see whether their tests find them: `python -m tools.mutants`.

    python -m tools.mutants             the breaks of the capabilities; writes what was found to tools/found.txt
    python -m tools.mutants --guards    the breaks of all other promises
    python -m tools.mutants --all       both
    python -m tools.mutants WORD ...    those whose text, test or capability contains a word
    python -m tools.mutants --check     run nothing: which breaks do not fit the code; takes seconds

The marks of the tests have the breaks, see breaks.py. Each break runs in a copy of the tree, from source, with its
test alone, two at a time. It is found when the test fails, or takes much longer than without the break. A break that
survives shows a promise that no test keeps. The report is build/mutants.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from typing import Final
from xml.etree import ElementTree

from tools.breaks import BadBreak, Break, Code, read_breaks, read_found, write_found

ROOT: Final = Path(__file__).parents[1]
REPORT: Final = "build/mutants.md"
_OPTIONS: Final = {"--guards", "--all", "--check"}
WORKERS: Final = 2
LIMIT_S: Final = 30  # and five times what the test takes without the break
LIMIT_WITHOUT_S: Final = 120
COPIED: Final = (
    "sparrowmq",
    "pyspark_rocketmq",
    "pytest_sparrowmq",
    "tests",
    "tools",
    "docs",
    "deploy",
    "examples",
    "bench",
    "requirements",
)
_NOT_COPIED: Final = shutil.ignore_patterns("*.so", "__pycache__", "build")
_NOT_GIVEN: Final = ("CI", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
_PYTEST: Final = ("-m", "pytest", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider")


class Verdict(Enum):
    """The result of a run."""

    FOUND = "found"
    SURVIVED = "survived"
    UNFIT = "does not run"  # the module cannot be imported with it, or the test fails without it


@dataclass(frozen=True, slots=True)
class Outcome:
    """A break and its verdict; `why` explains a break that does not run."""

    fault: Break
    verdict: Verdict
    took_s: float = 0.0
    why: str = ""


def main(arguments: list[str]) -> int:
    if unknown := {word for word in arguments if word.startswith("-")} - _OPTIONS:
        print(__doc__)
        return 0 if unknown <= {"-h", "--help"} else 2
    breaks = read_breaks(ROOT / "tests")
    chosen = breaks if arguments == ["--check"] else [each for each in breaks if is_chosen(each, arguments)]
    if not chosen:
        print("no break has any of these words", file=sys.stderr)
        return 2
    unfit = list(problems(chosen))
    for problem in unfit:
        print(problem, file=sys.stderr)
    if unfit or arguments == ["--check"]:
        print(f"{len(chosen)} breaks, {len(unfit)} do not fit")
        return 1 if unfit else 0
    outcomes = run(chosen, print)
    for outcome in outcomes:
        if outcome.verdict is not Verdict.FOUND:
            print(f"{outcome.verdict.value}: {outcome.fault.text}: {outcome.fault.test} {outcome.why}")
    print(tally(outcomes))
    (ROOT / REPORT).parent.mkdir(exist_ok=True)
    (ROOT / REPORT).write_text(report(outcomes), encoding="utf-8")
    remember(breaks, outcomes)
    return 0 if all(outcome.verdict is Verdict.FOUND for outcome in outcomes) else 1


def problems(breaks: Sequence[Break], root: Path = ROOT) -> Iterator[str]:
    """A sentence for each break that does not fit the code."""
    code = Code(root)
    for each in breaks:
        try:
            code.broken(each.text)
        except BadBreak as error:
            yield f"{each.test}: {error}"


def is_chosen(fault: Break, arguments: Sequence[str]) -> bool:
    words = [word for word in arguments if not word.startswith("--")]
    if words:
        return any(word in text for word in words for text in (fault.text, fault.test, fault.seed))
    return "--all" in arguments or ("--guards" in arguments) == (fault.seed == "")


def remember(breaks: Sequence[Break], outcomes: Sequence[Outcome]) -> None:
    """Bring tools/found.txt up to date: this run counts, and earlier runs of breaks that are the same today."""
    now = {outcome.fault: outcome.verdict is Verdict.FOUND for outcome in outcomes}
    before = read_found(ROOT)
    write_found(ROOT, [each for each in breaks if each.seed and now.get(each, each in before)])


# --- runs


def run(breaks: Sequence[Break], say: Callable[[str], object]) -> list[Outcome]:
    """Run each break in a copy of the tree, two at a time; the outcomes have the order of the breaks."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copies.put(copy_tree(Path(scratch) / str(number)))
        first = copies.get()
        code = Code(first)
        changes = {each: code.broken(each.text) for each in breaks}
        passing = passing_tests(first, sorted({each.test for each in breaks}), Path(scratch) / "report.xml")
        copies.put(first)

        def one(fault: Break) -> Outcome:
            if fault.test not in passing:
                return Outcome(fault, Verdict.UNFIT, why="(the test fails without the break)")
            copy = copies.get()
            try:
                return run_one(copy, fault, changes[fault], LIMIT_S + 5 * passing[fault.test])
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(WORKERS) as pool:
            running = {pool.submit(one, fault): fault for fault in breaks}
            for number, future in enumerate(as_completed(running), 1):
                each = future.result()
                word, name = each.verdict.value, f"{each.fault.seed} {each.fault.text}".strip()
                say(f"{number:4}/{len(breaks)}  {word:12} {each.took_s:5.1f} s  {name}")
            return [future.result() for future in running]


def copy_tree(target: Path) -> Path:
    """A copy of the sources. Its bytecode is checked by content: two breaks of one file may have the same time."""
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


def passing_tests(copy: Path, tests: Sequence[str], report: Path) -> Mapping[str, float]:
    """The tests that pass without a break, and the seconds that each takes; one that fails may try again alone."""
    if not tests:
        return {}
    limit_s = LIMIT_WITHOUT_S * len(tests)
    run_tests(copy, ["-n", str(min(WORKERS, len(tests))), f"--junitxml={report}", *tests], limit_s)
    took_s = times(report) if report.is_file() else {}
    found = {test: took_s[test] for test in tests if test in took_s}
    again = [test for test in tests if test not in found]
    return found | {test: LIMIT_S for test in again if run_tests(copy, [test], LIMIT_WITHOUT_S) == 0}


@dataclass(frozen=True, slots=True)
class Case:
    """A test with one of its parameters, in a report of pytest; `trouble` is failure, error, skipped or empty.

    A file that cannot be read has a case too, with its dotted name.
    """

    test: str
    took_s: float
    trouble: str


def cases(report: Path) -> Iterator[Case]:
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name", "").partition("[")[0]
        folders, _, rest = case.get("classname", "").rpartition(".test_")
        module, *classes = f"test_{rest}".split(".")
        test = "::".join((f"{folders.replace('.', '/')}/{module}.py", *classes, name)) if folders else name
        troubles = (child.tag for child in case if child.tag in ("failure", "error", "skipped"))
        yield Case(test, float(case.get("time", 0)), next(troubles, ""))


def times(report: Path) -> dict[str, float]:
    """The seconds of each test, of all its parameters together, from a report of pytest; no test that failed."""
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for case in cases(report):
        seconds[case.test] = seconds.get(case.test, 0.0) + case.took_s
        if case.trouble:
            failed.add(case.test)
    return {test: took_s for test, took_s in seconds.items() if test not in failed}


def run_one(copy: Path, fault: Break, change: tuple[Path, str], limit_s: float) -> Outcome:
    path, text = change
    source = (copy / path).read_text(encoding="utf-8")
    began = time.monotonic()
    try:
        (copy / path).write_text(text, encoding="utf-8")
        status = run_tests(copy, ["-x", fault.test], limit_s)
    finally:
        (copy / path).write_text(source, encoding="utf-8")
    verdict = {0: Verdict.SURVIVED, 1: Verdict.FOUND}.get(status, Verdict.UNFIT)
    why = f"(pytest ended with {status}: the module cannot be imported)" if verdict is Verdict.UNFIT else ""
    return Outcome(fault, verdict, time.monotonic() - began, why)


def run_tests(copy: Path, arguments: Sequence[str], limit_s: float, when_late: int = 1) -> int:
    """pytest's exit status in a copy of the tree; `when_late`, by default as for a failure, if it takes too long."""
    return run_python(copy, [*_PYTEST, *arguments], limit_s, when_late)


def run_python(copy: Path, arguments: Sequence[str], limit_s: float, when_late: int = 1) -> int:
    """The exit status of a program in a copy of the tree; `when_late` if it takes too long."""
    ours = {name: value for name, value in os.environ.items() if name not in _NOT_GIVEN}
    environment = ours | {
        "SPARROWMQ_SOURCE": "1",
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    process = subprocess.Popen(
        [sys.executable, *arguments],
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
        return when_late


# --- the report


def tally(outcomes: Sequence[Outcome]) -> str:
    counts = {verdict: sum(each.verdict is verdict for each in outcomes) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items())


def report(outcomes: Sequence[Outcome]) -> str:
    """The text of build/mutants.md."""
    lines = ["# Breaks of the last run", "", f"{len(outcomes)} breaks: {tally(outcomes)}.", ""]
    lines += ["| break | test | result |", "|---|---|---|"]
    for each in outcomes:
        name = f"{each.fault.seed} `{each.fault.text}`".strip().replace("|", "\\|")
        lines.append(f"| {name} | `{each.fault.test}` | {each.verdict.value} {each.why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
