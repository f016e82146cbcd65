"""The page docs/understand/interop.md: what works between which client and which broker, from the marks of the tests.

A test carries `@pytest.mark.cell("sql")`, a row of tests/interop/matrix.toml. The columns are those of the fixture
that it takes: `client` is every foreign client on our broker, `java` both of Java's, `five` every official client of
RocketMQ 5; any other test is one of our own client, on our broker and on Apache's, unless `columns=[...]` names others.
matrix.toml has the unsupported cells. The clients of RocketMQ 5 have a table of their own, `five`.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MATRIX = Path(__file__).parents[1] / "tests" / "interop" / "matrix.toml"
OURS = ("ours", "apache-4.9.7", "apache-5.4.0")
JAVA = ("java-4.9.8", "java-5.4.0")
FIXTURES = {
    "client": ("cpp", "go", "node", *JAVA),
    "java": JAVA,
    "cpp": ("cpp",),
    "go": ("go",),
    "node": ("node",),
    "five": ("five-python", "five-java", "five-go", "five-node", "five-rust"),
}


class BadCell(Exception):
    """A test is marked with a row or column that matrix.toml does not have, or with a cell that cannot be."""


@dataclass(frozen=True)
class Cell:
    """What one test shows."""

    row: str
    columns: tuple[str, ...]
    place: str


def read_matrix(path: Path = MATRIX) -> dict[str, dict[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_cells(folder: Path) -> list[Cell]:
    """The cells that the tests below a folder are marked with."""
    found: list[Cell] = []
    for file in sorted(folder.rglob("test_*.py")):
        path = file.relative_to(folder).as_posix()
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text, str(file))) if "mark.cell(" in text else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += cells(node, f"{path}::{node.name}")
    return found


def cells(test: ast.FunctionDef | ast.AsyncFunctionDef, place: str) -> Iterator[Cell]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("mark.cell"):
            given = [ast.literal_eval(each.value) for each in mark.keywords if each.arg == "columns"]
            columns = tuple(given[0]) if given else columns_of([each.arg for each in test.args.args])
            for row in mark.args:
                yield Cell(ast.literal_eval(row), columns, place)


def columns_of(fixtures: list[str]) -> tuple[str, ...]:
    named = [FIXTURES[name] for name in fixtures if name in FIXTURES]
    return tuple(column for columns in named for column in columns) if named else OURS


def page(matrix: Mapping[str, Mapping[str, Any]], found: list[Cell]) -> str:
    """The page's text. Raises: BadCell."""
    shown = shown_cells(matrix, found)
    done = sum(bool(shown[cell]) or cannot(matrix, *cell) is not None for cell in shown)
    lines = [
        "# What works with what\n",
        "This page shows which features work between which client and which broker.",
        "The first three columns are SparrowMQ's Python client, on three brokers.",
        "The other columns are unmodified clients of Apache RocketMQ, on SparrowMQ's broker.\n",
        "Each `yes` is a test, which runs on every change, or by `./run interop` if it is slow.",
        "A number refers to the reasons below the tables.",
        f"{done} of {len(shown)} cells are settled.",
    ]
    reasons: dict[str, int] = {}
    for table in tables(matrix):
        columns = table["columns"]
        lines += [f"\n## {table['title']}"] if "title" in table else []
        lines += [f"\n| | {' | '.join(columns.values())} |", f"|---|{':-:|' * len(columns)}"]
        for row, title in table["rows"].items():
            words = [word(shown, reasons, table, row, column) for column in columns]
            lines.append(f"| {title} | {' | '.join(words)} |")
    lines += ["\n## What a client or broker cannot do\n"]
    lines += [f"{number}. {reason}" for reason, number in reasons.items()]
    lines += ["\n## Tests of each feature\n", "| feature | tests |", "|---|---|"]
    for row, title in (pair for table in tables(matrix) for pair in table["rows"].items()):
        places = dict.fromkeys(f"`{cell.place}`" for cell in found if cell.row == row)
        lines.append(f"| {title} | {'<br>'.join(places) or 'not yet'} |")
    lines += [f"\n## {title}\n\n{text.strip()}" for title, text in matrix.get("texts", {}).items()]
    return "\n".join(lines) + "\n"


def shown_cells(matrix: Mapping[str, Mapping[str, Any]], found: list[Cell]) -> dict[tuple[str, str], list[str]]:
    """For each cell the tests that show it; a test for all clients does not show what one of them cannot."""
    shown: dict[tuple[str, str], list[str]] = {
        (row, column): [] for table in tables(matrix) for row in table["rows"] for column in table["columns"]
    }
    for cell in found:
        for column in cell.columns:
            if (cell.row, column) not in shown:
                raise BadCell(f"{cell.place}: matrix.toml has no cell {cell.row}, {column}")
            if cannot(matrix, cell.row, column) is None:
                shown[cell.row, column].append(cell.place)
    return shown


def tables(matrix: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tables of the page; no row is in two of them."""
    return [matrix, matrix["five"]] if "five" in matrix else [matrix]


def cannot(matrix: Mapping[str, Mapping[str, Any]], row: str, column: str) -> str | None:
    """Why a cell cannot be, or None."""
    for table in tables(matrix):
        reason = table.get("cannot", {}).get(row, {}).get(column)
        if reason is not None:
            return str(reason["because"])
    return None


def word(
    shown: Mapping[tuple[str, str], list[str]],
    reasons: dict[str, int],
    table: Mapping[str, Any],
    row: str,
    column: str,
) -> str:
    reason = cannot(table, row, column)
    if reason is None:
        return "yes" if shown[row, column] else "not yet"
    text = f"{table['columns'][column]}: {reason}."
    return str(reasons.setdefault(text, len(reasons) + 1))
