"""The columns that JSON objects need: the mode `json` makes a column of each field.

    null -> boolean ------------------------------> string
         -> int53 ---> bigint --> decimal(38,0) --> string       without a point
              `------> double --------------------> string       with a point or an exponent
         -> string, list, object -----------------> string

A column must hold each value of its batch exactly as it is, so numbers that have no type in common become text. Only a
number with a point may be rounded, to the nearest double. Names that differ by case alone are one column for most
readers, so the name that more messages have gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from sparrowmq.spark.pipelines.tables.json_objects import NoRow, Object, Real, read_object

MOST_COLUMNS: Final = 1000  # of a table; later fields are errors of their rows

_LONG: Final = range(-(1 << 63), 1 << 63)
_EXACT_IN_DOUBLE: Final = range(-(1 << 53), (1 << 53) + 1)
_DECIMAL_LIMIT: Final = 10**38


class Kind(IntEnum):
    """The type that a value needs; `joined` says which one holds two of them."""

    NULL = 0
    BOOLEAN = 1
    INT53 = 2
    LONG = 3
    DECIMAL = 4
    DOUBLE = 5
    STRING = 6

    @property
    def ddl(self) -> str:
        return _DDL[self]


_DDL: Final = {
    Kind.BOOLEAN: "boolean",
    Kind.INT53: "bigint",
    Kind.LONG: "bigint",
    Kind.DECIMAL: "decimal(38,0)",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
}
_WITHOUT_POINT: Final = (Kind.INT53, Kind.LONG, Kind.DECIMAL)

# Of each field: the kind of its values, and in how many objects it is. It goes from workers to the driver.
Found = dict[str, tuple[int, int]]


def kind_of(value: Any) -> Kind:
    """Return the narrowest kind that holds a value."""
    if value is None:
        return Kind.NULL
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return _kind_of_int(value)
    if isinstance(value, Real) and abs(float(value)) != float("inf"):
        return Kind.DOUBLE
    return Kind.STRING


def _kind_of_int(value: int) -> Kind:
    if value in _EXACT_IN_DOUBLE:
        return Kind.INT53
    if value in _LONG:
        return Kind.LONG
    return Kind.DECIMAL if abs(value) < _DECIMAL_LIMIT else Kind.STRING


def joined(one: Kind, other: Kind) -> Kind:
    """Return the narrowest kind that holds the values of both."""
    low, high = sorted((one, other))
    if low in (Kind.NULL, high) or (low in _WITHOUT_POINT and high in _WITHOUT_POINT):
        return high
    return Kind.DOUBLE if (low, high) == (Kind.INT53, Kind.DOUBLE) else Kind.STRING


def found_in(bodies: Iterable[bytes | None]) -> Found:
    """Return the fields of the bodies that are objects."""
    found: Found = {}
    for body in bodies:
        try:
            fields = read_object(body)
        except NoRow:
            continue
        for name, value in fields.items():
            kind, count = found.get(name, (Kind.NULL, 0))
            found[name] = joined(Kind(kind), kind_of(value)), count + 1
    return found


def merged(parts: Iterable[Mapping[str, Collection[int]]]) -> Found:
    """Return what several workers found, together."""
    found: Found = {}
    for part in parts:
        for name, (kind, count) in part.items():
            known, before = found.get(name, (Kind.NULL, 0))
            found[name] = joined(Kind(known), Kind(kind)), before + count
    return found


def columns(found: Found, known: Mapping[str, str], own: Collection[str]) -> dict[str, str]:
    """Return the columns `known`, and those that `found` adds: names and Spark types, by name.

    Args:
        own: columns that the table has beside them.
    """
    taken = {name.lower() for name in own}
    chosen: dict[str, str] = {}
    by_count = sorted(found.items(), key=lambda each: (-each[1][1], each[0]))
    wanted = [*known.items(), *((name, Kind(kind).ddl) for name, (kind, _) in by_count if kind)]
    for name, ddl in wanted:
        if name and name.lower() not in taken and len(chosen) < MOST_COLUMNS:
            taken.add(name.lower())
            chosen[name] = ddl
    return dict(sorted(chosen.items()))


def refused(fields: Object, names: Collection[str], by_lower: Mapping[str, str]) -> str:
    """Return why a row of the table would lose a field of an object; "" if it loses none.

    Args:
        names: of the columns. by_lower: all columns, also those that the table has itself, by their lower case.
    """
    for name, value in fields.items():
        if name not in names and value is not None:
            return _why_no_column(name, by_lower)
    return ""


def _why_no_column(name: str, by_lower: Mapping[str, str]) -> str:
    if not name:
        return "a field has no name"
    if other := by_lower.get(name.lower()):
        return f"the field {name} and the column {other} are one to most readers; name one of them otherwise"
    return f"the table has {MOST_COLUMNS:,} columns, and {name} is none of them"
