"""Change lines that keep messages, and see whether tests notice: `python -m tools.mutants`, or `./run mutants`.

    python -m tools.mutants --count 40 --area store    run 40 mutants; the exit status is 1 if one survives
    python -m tools.mutants --show --seed 7            print the mutants of the seed 7, and run none
    python -m tools.mutants --list FILE                run those of an earlier list, in the order of the list

The areas get equal shares. In each of them the functions are drawn by the seed, without repeats as long as there are
others, and in a function one of its possible changes:

    drop      a call, an assignment to an attribute or an entry, or a `raise` is left out
    swap      two calls that follow each other change places
    not       a condition is negated
    border    a comparison takes its border in, or leaves it out
    inverse   a function returns the contrary

A change of the code changes what a seed draws. A saved list keeps its mutants: they are found by function and text, at
whatever line. Mutants that the code no longer has are left out.

A mutant runs in a copy of the tree. Before the first one, a call of `tools/probe.py` stands at every place
that a mutant changes, and one run of the tests shows which of them come there. build/reached.json keeps the result for
later runs of the same commit. A mutant then runs only with these tests, the quickest first, and at last in some runs of
the simulation, if it comes there too. A mutant is found when a test fails twice, or the simulation fails, and not when
they take too long. The seconds are those of the processor.

A survivor is a promise that no test keeps, or a change that changes nothing: write a test, or delete the line. "No test
runs it" is the first of these at once.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from tools.probe import REACHED

ROOT: Final = Path(__file__).parents[1]
SAVED: Final = "build/reached.json"
COUNT: Final = 200
LIMIT_S: Final = 600
LIMIT_OF_ALL_S: Final = 3600
FEW: Final = 8  # quick tests run before the modules of the others are read
AREAS: Final = {
    "store": ("store/*.py", "store/log/*.py", "store/queues/*.py", "broker/delayed/*.py"),
    "replication": ("broker/replication/*.py",),
    "failover": ("broker/failover/*.py", "broker/member.py"),
    "snapshot": (
        "core/snapshot.py",
        "broker/saved_state.py",
        "broker/offsets.py",
        "broker/broker_state.py",
        "broker/journal*.py",
    ),
    "care": ("store/care/*.py", "cli/store.py"),
    "transactions": ("broker/transactions/*.py", "broker/staging/*.py"),
    "access": ("auth/*.py", "broker/access_control.py", "broker/handlers/access_handler.py"),
}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BORDERS: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_WORDS_ONLY: Final = (
    "log.",
    "watch(",
    "self._watch(",
    "tell(",
    "self._tell(",
    "click.echo(",
    "say(",
    "super()",
)
TESTS: Final = (
    *("tests/auth", "tests/broker", "tests/cli", "tests/crash", "tests/remoting", "tests/store"),
    "tests/test_snapshot.py",
)
SIMULATION: Final = "the simulation"
_SIMULATION: Final = ("-m", "tests.simulation", "--seed", "1", "--runs", "8")
_FAILED: Final = ("failure", "error")
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
_SELECTED: Final = "not slow and not nightly"
Place = tuple[type[ast.AST], int, int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Edit:
    """A node and the text that replaces it."""

    node: ast.expr | ast.stmt
    text: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one module; the path is relative to the root."""

    path: str
    function: str
    kind: str
    line: int
    before: str
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.function}: {self.kind} {self.before}"


def generate(root: Path, area: str, count: int, chance: random.Random) -> list[Mutant]:
    """Return mutants of an area, at most so many."""
    by_function = [found for path in _modules(root, area) for found in _functions(root, path)]
    chance.shuffle(by_function)
    mutants: list[Mutant] = []
    while by_function and len(mutants) < count:
        few = by_function[: count - len(mutants)]
        mutants += [each.pop(chance.randrange(len(each))) for each in few]
        by_function = [each for each in by_function if each]
    return mutants


def listed(root: Path, lines: Sequence[str]) -> list[Mutant]:
    """Return the mutants of an earlier list that the code still has; of two with the same text the nearest one."""
    by_text: dict[str, list[Mutant]] = {}
    for path in dict.fromkeys(path for area in AREAS for path in _modules(root, area)):
        for each in (mutant for found in _functions(root, path) for mutant in found):
            by_text.setdefault(_without_number(str(each))[0], []).append(each)
    known = [_without_number(line) for line in lines]
    return [_nearest(by_text[text], number) for text, number in known if text in by_text]


def _nearest(mutants: Sequence[Mutant], line: int) -> Mutant:
    return min(mutants, key=lambda each: abs(each.line - line))


def _without_number(line: str) -> tuple[str, int]:
    path, number, rest = line.split(":", 2)
    return f"{path}:{rest}", int(number)


def _modules(root: Path, area: str) -> Iterator[Path]:
    for pattern in AREAS[area]:
        yield from (path for path in sorted((root / "sparrowmq").glob(pattern)) if path.stem != "__init__")


def _functions(root: Path, path: Path) -> Iterator[list[Mutant]]:
    """Yield the possible mutants of each function that has some."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {node for each in ast.walk(tree) if isinstance(each, _FUNCTIONS) for node in _inside(each)}
    for function in (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)):
        if function in inner:
            continue
        name = path.relative_to(root).as_posix()
        found = [
            Mutant(name, function.name, kind, edits[0].node.lineno, _head(edits[0].node), tuple(edits))
            for kind, edits in _changes(function)
        ]
        if found:
            yield found


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the functions in a function, whose changes are those of the outer one."""
    yield from (node for node in ast.walk(function) if isinstance(node, _FUNCTIONS) and node is not function)


def _head(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:80]


def _changes(function: ast.AST) -> Iterator[tuple[str, list[Edit]]]:
    """Yield each kind of change, with its edits."""
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and _can_go(node):
            yield "drop", [Edit(node, "pass")]
        if isinstance(node, ast.If | ast.While):
            yield "not", [Edit(node.test, f"not ({ast.unparse(node.test)})")]
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _BORDERS:
            ops = [_BORDERS[type(node.ops[0])](), *node.ops[1:]]
            yield "border", [Edit(node, ast.unparse(ast.Compare(node.left, ops, node.comparators)))]
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Compare | ast.BoolOp):
            yield "inverse", [Edit(node.value, f"not ({ast.unparse(node.value)})")]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            yield from (("swap", edits) for edits in (_swaps(block) if isinstance(block, list) else ()))


def _swaps(block: Sequence[ast.stmt]) -> Iterator[list[Edit]]:
    for one, other in pairwise(block):
        if all(isinstance(each, ast.Expr) and _can_go(each) for each in (one, other)):
            yield [Edit(one, ast.unparse(other)), Edit(other, ast.unparse(one))]


def _can_go(node: ast.stmt) -> bool:
    """Whether the rest can run without a statement, and more than words would be missing."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return not ast.unparse(node).startswith(_WORDS_ONLY)
    if isinstance(node, ast.Assign):
        return not isinstance(node.targets[0], ast.Name | ast.Tuple)
    return isinstance(node, ast.Raise)


def reached(copy: Path, mutants: Sequence[Mutant], saved: Path, commit: str) -> list[list[str]]:
    """Return `reaching` of the mutants, from a file if an earlier run of the commit saved that of all of them."""
    known = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else {}
    names = [str(each) for each in mutants]
    if known.get("commit") != commit or not known["tests"].keys() >= set(names):
        known = {"commit": commit, "tests": dict(zip(names, reaching(copy, mutants), strict=True))}
        saved.parent.mkdir(exist_ok=True)
        saved.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return [known["tests"][name] for name in names]


def reaching(copy: Path, mutants: Sequence[Mutant], tests: Sequence[str] = TESTS) -> list[list[str]]:
    """Return the tests that come to the place of each mutant, the quickest first, and the simulation at the end."""
    by_path: dict[str, dict[Place, list[int]]] = {}
    for number, mutant in enumerate(mutants):
        places = by_path.setdefault(mutant.path, {})
        places.setdefault(_place(mutant.edits[0].node), []).append(number)
    sources = {path: (copy / path).read_text(encoding="utf-8") for path in by_path}
    for path, source in sources.items():
        tree = ast.fix_missing_locations(_Probes(by_path[path]).visit(ast.parse(source)))
        (copy / path).write_text(ast.unparse(tree), encoding="utf-8")
    report = copy / "report.xml"
    run_tests(copy, ["-n", "2", f"--junitxml={report}", "-m", _SELECTED, *tests], LIMIT_OF_ALL_S)
    run_python(copy, _SIMULATION, LIMIT_OF_ALL_S)
    for path, source in sources.items():
        (copy / path).write_text(source, encoding="utf-8")
    took_s = times(report) | {SIMULATION: float("inf")}
    found: list[set[str]] = [set() for _ in mutants]
    for line in (copy / REACHED).read_text(encoding="utf-8").splitlines():
        place, _, test = line.partition(" ")
        found[int(place)].add(test.partition(" (")[0].partition("[")[0] or SIMULATION)
    return [sorted(each & took_s.keys(), key=took_s.__getitem__) for each in found]


class _Probes(ast.NodeTransformer):
    """Puts a call before each of some statements, and into each of some expressions."""

    def __init__(self, numbers: dict[Place, list[int]]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        numbers = self._numbers.get(_place(node)) if isinstance(node, ast.stmt | ast.expr) else None
        self.generic_visit(node)
        call = ast.parse(f"__import__('tools.probe').probe.reach({numbers})", mode="eval").body
        if numbers and isinstance(node, ast.stmt):
            return [ast.Expr(call), node]
        if numbers and isinstance(node, ast.expr):
            return ast.Subscript(ast.Tuple([call, node], ast.Load()), ast.Constant(1), ast.Load())
        return node


def _place(node: ast.stmt | ast.expr) -> Place:
    return type(node), node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def found_by(copy: Path, mutant: Mutant, tests: Sequence[str]) -> str:
    """Return which of the tests fails with a mutant in a copy of the tree; an empty text if none does."""
    path, report = copy / mutant.path, copy / "report.xml"
    source = path.read_text(encoding="utf-8")
    ends_s = time.monotonic() + LIMIT_S
    quick = [each for each in tests if each != SIMULATION]
    try:
        path.write_text(apply(source, mutant.edits), encoding="utf-8")
        for few in filter(None, (quick[:FEW], quick[FEW:])):
            report.unlink(missing_ok=True)
            arguments = ["-x", "--reruns", "1", f"--junitxml={report}", "-m", _SELECTED, *few]
            arguments += ["-n", "2"] if len(few) > FEW else []
            if run_tests(copy, arguments, max(ends_s - time.monotonic(), 1), 0):
                return next((case.test for case in cases(report) if case.trouble in _FAILED), "its end")
        if SIMULATION in tests and run_python(copy, _SIMULATION, LIMIT_S / 2, 0):
            return SIMULATION
    finally:
        path.write_text(source, encoding="utf-8")
    return ""


def apply(source: str, edits: Sequence[Edit]) -> str:
    """Return the source with other text in the place of nodes; later lines keep their numbers."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text = source.encode()
    for edit in sorted(edits, key=lambda edit: edit.node.lineno, reverse=True):
        node = edit.node
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        text = text[:begin] + _new_text(edit, text[begin:end].decode()).encode() + text[end:]
    return text.decode()


def _new_text(edit: Edit, old: str) -> str:
    if isinstance(edit.node, ast.expr):
        return "(" + edit.text + "\n" * old.count("\n") + ")"
    new = edit.text.replace("\n", "\n" + " " * edit.node.col_offset)
    if old.startswith("elif"):
        new = f"else: {new}"
    return new + "\n" * (old.count("\n") - new.count("\n"))


# --- a copy of the tree, and the tests in it


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


def run_tests(copy: Path, arguments: Sequence[str], limit_s: float, when_late: int = 1) -> int:
    """pytest's exit status in a copy of the tree; `when_late`, by default as for a failure, if it takes too long."""
    return run_python(copy, [*_PYTEST, *arguments], limit_s, when_late)


def run_python(copy: Path, arguments: Sequence[str], limit_s: float, when_late: int = 1) -> int:
    """The exit status of a program in a copy of the tree; `when_late` if it takes too long."""
    ours = {name: value for name, value in os.environ.items() if name not in _NOT_GIVEN}
    environment = ours | {
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


# --- the program


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--area", choices=AREAS)
    parser.add_argument("--list", type=Path, metavar="FILE", help="take the mutants of an earlier list")
    parser.add_argument("--show", action="store_true", help="print the mutants and run none")
    options = parser.parse_args(arguments)
    chance, areas = random.Random(options.seed), [options.area] if options.area else list(AREAS)
    if options.list:
        mutants = listed(ROOT, options.list.read_text(encoding="utf-8").splitlines())
    else:
        mutants = [each for area in areas for each in generate(ROOT, area, options.count // len(areas), chance)]
    if options.show:
        print(*mutants, sep="\n")
        return 0
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copy = copy_tree(Path(scratch) / "0")
        tests_of = reached(copy, mutants, ROOT / SAVED, _commit())
        for number, (mutant, tests) in enumerate(zip(mutants, tests_of, strict=True), 1):
            began_s = _processor_s()
            by = found_by(copy, mutant, tests)
            survivors += not by
            word = f"found by {by}" if by else f"{len(tests)} tests pass" if tests else "no test runs it"
            took_s = _processor_s() - began_s
            print(f"{number:4}/{len(mutants)} {took_s:6.1f} s  {mutant}: {word}", flush=True)
    print(f"{options.list or f'seed {options.seed}'}: {len(mutants) - survivors} of {len(mutants)} found")
    return 1 if survivors else 0


def _commit() -> str:
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()


def _processor_s() -> float:
    """Return how long the programs that have ended used the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
