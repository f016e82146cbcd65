"""Rows of a query as people and programs read them: a table, CSV, or a JSON object a line."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from pyspark.sql import Row

_WIDEST: Final = 60
_LOOKED_AT: Final = 100  # rows that decide how wide the columns are


def as_table(names: list[str], rows: Iterator[Iterable[Any]]) -> None:
    first = [_cells(row) for row in islice(rows, _LOOKED_AT)]
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(names, *first, strict=True)]
    for cells in (names, *first):
        _line(cells, widths)
    for row in rows:
        _line(_cells(row), widths)


def as_csv(names: list[str], rows: Iterator[Row]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(names)
    out.writerows(["" if value is None else _text(value) for value in row] for row in rows)


def as_json(names: list[str], rows: Iterator[Row]) -> None:
    for row in rows:
        click.echo(json.dumps(_plain(row.asDict(recursive=True)), default=str, ensure_ascii=False))


FORMS: Final[Mapping[str, Callable[[list[str], Iterator[Row]], None]]] = {
    "table": as_table,
    "csv": as_csv,
    "json": as_json,
}


def _line(cells: Iterable[str], widths: list[int]) -> None:
    click.echo("  ".join(map(str.ljust, cells, widths)).rstrip())


def _cells(row: Iterable[Any]) -> list[str]:
    texts = ("-" if value is None else _text(value) for value in row)
    return [text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..." for text in texts]


def _text(value: Any) -> str:
    plain = _plain(value)
    return json.dumps(plain, default=str, ensure_ascii=False) if isinstance(plain, dict | list) else str(plain)


def _plain(value: Any) -> Any:
    """As JSON can say it: bytes as text, times as ISO 8601."""
    match value:
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes() | bytearray():
            return value.decode(errors="replace")
        case date():
            return value.isoformat()
    return value
