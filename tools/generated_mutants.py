"""Breaks made by rule and seed, beside those that people wrote in marks: `python -m tools.generated_mutants`.

    python -m tools.generated_mutants                     list 200, of the seed 1
    python -m tools.generated_mutants --seed 7 --count 40 --area care
    python -m tools.generated_mutants --area care --run   run each of them; the exit status is 1 if one survives

The areas get equal shares. In each of them the functions are drawn by the seed, without repeats as long as there are
others, and in a function one of its possible changes:

    drop      a call, an assignment to an attribute or an entry, or a `raise` is left out
    swap      two calls that follow each other change places
    not       a condition is negated
    border    a comparison takes its border in, or leaves it out
    inverse   a function returns the contrary

A mutant runs in a copy of the tree, from source: first with the tests of its module, then with those of others that
import it, then with its folders, and at last in some runs of the simulation. It is found when one of them fails, and
not when they take too long. A survivor is a promise that nothing near keeps, or a change that changes nothing: then
write a test with a `guards` mark, or say why the line may go.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tools.breaks import Edit, apply
from tools.mutants import ROOT, copy_tree, run_python, run_tests

COUNT: Final = 200
LIMIT_S: Final = 600
AREAS: Final = {
    "store": (
        "store/*.py",
        "store/log/*.py",
        "store/queues/*.py",
        "store/keys/*.py",
        "store/timers/*.py",
        "broker/later/*.py",
    ),
    "replication": ("broker/replication/*.py",),
    "failover": ("broker/failover/*.py", "broker/election.py"),
    "snapshot": ("snapshot.py", "broker/saved_state.py", "broker/offsets.py", "broker/state/*.py"),
    "care": ("store/care/*.py", "cli/store/*.py"),
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
_SIMULATION: Final = ("-m", "tests.simulation", "--seed", "1", "--runs", "8")
_SELECTED: Final = "not slow and not nightly and not spark and not interop and not java"


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


def near_tests(root: Path, path: str) -> list[list[str]]:
    """Return the test file of a module, those of others that import it, and the folders around it, small ones first."""
    inner = Path(path).relative_to("sparrowmq")
    own = Path("tests", inner.parent, f"test_{inner.name}")
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    words = (f"from {module} import", f"from {parent} import {name}", f"import {module}")
    others = [
        file.relative_to(root).as_posix()
        for file in sorted((root / "tests").rglob("test_*.py"))
        if any(word in file.read_text(encoding="utf-8") for word in words)
    ]
    folders = [Path("tests", each).as_posix() for each in inner.parents if each.name]
    return [
        [own.as_posix()] if (root / own).is_file() else [],
        [each for each in others if each != own.as_posix()],
        *([folder] for folder in folders),
    ]


def found_by(copy: Path, mutant: Mutant) -> str:
    """Return what fails with a mutant in a copy of the tree; an empty text if nothing does."""
    path = copy / mutant.path
    source = path.read_text(encoding="utf-8")
    ends_s = time.monotonic() + LIMIT_S
    try:
        path.write_text(apply(source, mutant.edits), encoding="utf-8")
        for tests in filter(None, near_tests(copy, mutant.path)):
            left_s = ends_s - time.monotonic()
            if left_s > 0 and run_tests(copy, ["-x", "-m", _SELECTED, *tests], left_s, 0) not in (0, 5):
                return tests[0] if len(tests) == 1 else "importing tests"
        if run_python(copy, _SIMULATION, max(ends_s - time.monotonic(), LIMIT_S / 2), 0):
            return "simulation"
    finally:
        path.write_text(source, encoding="utf-8")
    return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generated_mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--area", choices=AREAS)
    parser.add_argument("--run", action="store_true", help="run them with the tests near them")
    given = parser.parse_args(arguments)
    chance, areas = random.Random(given.seed), [given.area] if given.area else list(AREAS)
    mutants = [each for area in areas for each in generate(ROOT, area, given.count // len(areas), chance)]
    if not given.run:
        print(*mutants, sep="\n")
        return 0
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copy = copy_tree(Path(scratch) / "0")
        for number, mutant in enumerate(mutants, 1):
            began_s = time.monotonic()
            by = found_by(copy, mutant)
            survivors += not by
            word = f"found by {by}" if by else "survived"
            took_s = time.monotonic() - began_s
            print(f"{number:4}/{len(mutants)} {took_s:6.1f} s  {mutant}: {word}", flush=True)
    print(f"seed {given.seed}: {len(mutants) - survivors} of {len(mutants)} found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
