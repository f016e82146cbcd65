"""Measure the product beside its budgets: `python -m tools.size`, or `./run size`.

    python -m tools.size            print the table
    python -m tools.size --check    print areas that have grown; the exit status is 1 if one has (part of `./run lint`)
    python -m tools.size --write    commit to today's figures in tools/size.toml; refused if an area has grown

A statement is a node of the syntax tree that Python calls a statement. Docstrings and imports do not count, so layout
cannot change the figures. An area may only grow by what other areas lose, because moved code is no growth. Any other
growth needs a decision in docs/understand/adr that says what users get for it, and a table in tools/size.toml:

    [[growth]]
    area = "client"
    statements = 40
    decision = "0097-one-thing.md"
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tools.floors import imported

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = ROOT / "tools" / "size.toml"
DECISIONS: Final = ROOT / "docs" / "understand" / "adr"
MAX_METHODS: Final = 30
# Each area: its folders below the package, and the most statements it should have in the end.
AREAS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "spark": (("spark",), 9_000),
    "broker": (("broker",), 8_700),
    "client": (("client",), 5_200),
    "admin": (("admin",), 2_400),
    "store": (("store",), 5_200),
    "protocol": (("protocol",), 3_800),
    "cli": (("cli",), 3_200),
    "console": (("console",), 3_200),
    "remoting": (("remoting",), 1_900),
    "http2 + grpc": (("http2", "grpc"), 1_700),
    "auth": (("auth",), 900),
    "mqproxy": (("mqproxy",), 700),
    "schemas": (("schemas",), 700),
    "kernel": (("kernel",), 3_200),
    "all other": (("",), 4_000),
}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRING: Final = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass(frozen=True)
class Product:
    """The modules of the package below a root, each parsed once."""

    root: Path = ROOT

    @cached_property
    def files(self) -> list[Path]:
        return sorted((self.root / "sparrowmq").rglob("*.py"))

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        return {file: ast.parse(file.read_text(encoding="utf-8"), str(file)) for file in self.files}

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Return each module's file by its full name."""
        return {module_name(file, self.root): file for file in self.files}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Return the modules of ours that each module imports, also those for types alone."""
        return {name: self._imports_of(file) - {name} for name, file in self.modules.items()}

    def _imports_of(self, file: Path) -> set[str]:
        targets = (target if target in self.modules else target.rpartition(".")[0] for _, target in imported(file))
        return {target for target in targets if target in self.modules}

    def statements(self) -> Counter[str]:
        """Return the number of statements in each area."""
        counts: Counter[str] = Counter()
        for file, tree in self.trees.items():
            counts[area_of(file.relative_to(self.root / "sparrowmq"))] += count_statements(tree)
        return counts

    def lines(self) -> int:
        return sum(file.read_text(encoding="utf-8").count("\n") for file in self.files)

    def imported_once(self) -> list[str]:
        """Return the modules that exactly one other module imports."""
        importers = Counter(target for targets in self.imports.values() for target in targets)
        return sorted(name for name, count in importers.items() if count == 1 and "__" not in name)

    def large_classes(self) -> dict[str, int]:
        """Return the number of methods of each class that has too many, by module and name."""
        classes = (
            (f"{name}.{node.name}", methods_of(node))
            for name, file in self.modules.items()
            for node in ast.walk(self.trees[file])
            if isinstance(node, ast.ClassDef)
        )
        return {name: methods for name, methods in classes if methods > MAX_METHODS}

    def circles(self) -> list[set[str]]:
        """Return modules that import each other, and folders inside of a part that do."""
        folders: dict[str, set[str]] = {}
        for name, others in self.imports.items():
            folders.setdefault(folder_of(name), set()).update(map(folder_of, others))
        for name, others in folders.items():
            others.discard(name)
        return circles(self.imports) + circles(folders)


def module_name(file: Path, root: Path = ROOT) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def area_of(path: Path) -> str:
    """Return the area of a path below the package: that of the deepest folder that has one."""
    matches = [
        (len(folder), area)
        for area, (folders, _) in AREAS.items()
        for folder in folders
        if not folder or path.is_relative_to(folder)
    ]
    return max(matches)[1]


def count_statements(tree: ast.AST) -> int:
    nodes = list(ast.walk(tree))
    statements = sum(isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
    return statements - sum(
        isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None for node in nodes
    )


def methods_of(node: ast.ClassDef) -> int:
    return len({child.name for child in node.body if isinstance(child, _FUNCTIONS)})


def folder_of(module: str) -> str:
    """Return the folder of a module inside a part; a module beside such folders counts for itself."""
    parent = module.rpartition(".")[0]
    return parent if parent.count(".") > 1 else module


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Return groups of nodes from each of which every other one of its group is reached."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = edges.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        return seen

    beyond = {node: reachable(node) for node in edges}
    groups = {frozenset(other for other in beyond[node] if node in beyond.get(other, ())) for node in edges}
    return [set(group) for group in groups if group]


# --- the committed figures


def read_figures(file: Path = FIGURES) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def allowed(figures: Mapping[str, Any]) -> Counter[str]:
    """Return the most statements of each area: the committed figure, and what decisions add to it."""
    counts = Counter(figures["statements"])
    for growth in figures.get("growth", ()):
        counts[growth["area"]] += growth["statements"]
    return counts


def problems(now: Mapping[str, int], figures: Mapping[str, Any], decisions: Path = DECISIONS) -> Iterator[str]:
    """Yield a sentence for each area that has grown without a decision, unless others lost as much."""
    for growth in figures.get("growth", ()):
        if not (decisions / growth["decision"]).is_file():
            yield f"tools/size.toml: there is no decision {growth['decision']} in docs/understand/adr"
    most = allowed(figures)
    surplus = sum(now.values()) - sum(most.values())
    if surplus > 0:
        for area in AREAS:
            if now[area] > most[area]:
                yield (
                    f"{area} has {now[area]:,} statements, {now[area] - most[area]} more than committed, and other"
                    f" areas did not lose them: make it smaller, or decide on a [[growth]] in tools/size.toml"
                )


def table(product: Product, figures: Mapping[str, Any]) -> Iterator[str]:
    now, committed = product.statements(), allowed(figures)
    yield f"{'statements':16}{'now':>9}{'committed':>11}{'budget':>9}"
    for area, (_, budget) in AREAS.items():
        yield f"{area:16}{now[area]:9,}{committed[area]:11,}{budget:9,}"
    yield f"{'product':16}{now.total():9,}{committed.total():11,}{sum(each for _, each in AREAS.values()):9,}"
    yield ""
    yield f"{len(product.files):9,} files, of 560"
    yield f"{product.lines():9,} lines, of 105,000"
    yield f"{len(product.imported_once()):9,} modules that one other imports, of 90"
    yield f"{len(product.large_classes()):9,} classes of more than {MAX_METHODS} methods, of 0"
    yield f"{len(product.circles()):9,} circles of imports, of 0"


def text_of(now: Mapping[str, int]) -> str:
    rows = [f'"{area}" = {now[area]}' for area in AREAS]
    return "\n".join(["# Written by `./run size --write`; [[growth]] tables come last.", "[statements]", *rows, ""])


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"], ["--write"]):
        print(__doc__)
        return 2
    product, figures = Product(), read_figures()
    if not arguments:
        print(*table(product, figures), sep="\n")
        return 0
    offences = list(problems(product.statements(), figures))
    print(*offences, sep="\n", end="\n" if offences else "")
    if arguments == ["--write"] and not offences:
        FIGURES.write_text(text_of(product.statements()), encoding="utf-8")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
