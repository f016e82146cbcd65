"""The columns that JSON objects need: the mode `json` makes a column of each field, and widens it when it must.

    no column  -> the type of the values
    bigint     -> decimal(38,0), or double if it has only values that a double holds
    struct     -> a struct with more fields; list -> a list of a wider type
    bigint, decimal, double -> string, if the table allows any change

boolean, string, structs and lists stay what they are. A value that does not fit its column is an error of its row.
Names that differ by case alone are one column for most readers, so the name that more messages have gets it. The same
is so for names that readers write with a dot: a field `b` within `a`, and a field `a.b`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from pyspark.sql import types as t

from sparrowmq.spark.pipelines.tables.ddl import ddl_of, types_of
from sparrowmq.spark.pipelines.tables.json_kinds import (
    MOST_COLUMNS,
    Found,
    Kind,
    Seen,
    is_empty,
    is_name,
    joined,
)
from sparrowmq.spark.pipelines.tables.json_objects import Object

_NUMBERS: Final = {"bigint": Kind.INT53, "decimal(38,0)": Kind.DECIMAL, "double": Kind.DOUBLE}
_TYPES: Final[dict[Kind, t.DataType]] = {
    Kind.BOOLEAN: t.BooleanType(),
    Kind.INT53: t.LongType(),
    Kind.LONG: t.LongType(),
    Kind.DECIMAL: t.DecimalType(38, 0),
    Kind.DOUBLE: t.DoubleType(),
    Kind.STRING: t.StringType(),
}
# The changes of types that a table allows: numbers to wider types of numbers; or also numbers to text.
WIDEN: Final = "widen"
ANY: Final = "any"
_ITEM: Final = "element"  # what readers call the values in a list


def columns(
    found: Found,
    known: Mapping[str, str],
    own: Collection[str],
    long: Collection[str] = (),
    *,
    type_changes: str = WIDEN,
) -> dict[str, str]:
    """Return the columns `known`, wider where they must be, and those that `found` adds: Spark types by name.

    Args:
        own: columns that the table has beside them.
        long: columns with integers that a double does not hold.
        type_changes: WIDEN or ANY.
    """
    names, is_any = _Names(own), type_changes == ANY
    kept = types_of(known)
    chosen = {name: kind for name, kind in kept.items() if names.take(name, kind)}
    for name in chosen:
        if name in found:
            chosen[name] = _grown(chosen[name], found[name], (name,), names, is_long=name in long, is_any=is_any)
    for name, seen in _by_count(found):
        if name not in chosen and (kind := _new(seen, (name,), names)) is not None:
            chosen[name] = kind
    return {name: ddl_of(kind) for name, kind in sorted(chosen.items())}


class _Names:
    """The names of all columns, and of the fields within them, as readers write them."""

    def __init__(self, own: Iterable[str]) -> None:
        self._taken = {name.lower() for name in own}
        self._left = MOST_COLUMNS

    def take_one(self, path: tuple[str, ...]) -> bool:
        """Take a name, unless it is taken, or there are too many."""
        name = ".".join(path).lower()
        if not is_name(path[-1]) or name in self._taken or not self._left:
            return False
        self._taken.add(name)
        self._left -= 1
        return True

    def take_item(self, path: tuple[str, ...]) -> bool:
        """Take the name that the values in a list have to readers."""
        name = ".".join((*path, _ITEM)).lower()
        if name in self._taken:
            return False
        self._taken.add(name)
        return True

    def take(self, name: str, kind: t.DataType) -> bool:
        """Take the names of a column that the table has."""
        if not self.take_one((name,)):
            return False
        self._take_within((name,), kind)
        return True

    def _take_within(self, path: tuple[str, ...], kind: t.DataType) -> None:
        if isinstance(kind, t.ArrayType):
            self.take_item(path)
            self._take_within((*path, _ITEM), kind.elementType)
        elif isinstance(kind, t.StructType):
            for field in kind.fields:
                self.take_one((*path, field.name))
                self._take_within((*path, field.name), field.dataType)


def _new(seen: Seen, path: tuple[str, ...], names: _Names) -> t.DataType | None:
    """Return the type of a field that the table lacks; None if it gets none."""
    if not _has_values(seen) or not names.take_one(path):
        return None
    return _type_of(seen, path, names)


def _type_of(seen: Seen, path: tuple[str, ...], names: _Names) -> t.DataType | None:
    """Return the type of what was seen, of which the name is taken already."""
    if seen.kind is Kind.LIST:
        item = _type_of(seen.items, (*path, _ITEM), names) if seen.items and names.take_item(path) else None
        return t.ArrayType(item) if item is not None else None
    if seen.kind is Kind.OBJECT:
        fields = _new_fields(seen, (), path, names)
        return t.StructType(fields) if fields else None
    return _TYPES.get(seen.kind)


def _new_fields(seen: Seen, known: Collection[str], path: tuple[str, ...], names: _Names) -> list[t.StructField]:
    found = []
    for name, each in _by_count(seen.fields):
        if name not in known and (kind := _new(each, (*path, name), names)) is not None:
            found.append(t.StructField(name, kind))
    return sorted(found, key=lambda field: str(field.name))


def _grown(
    known: t.DataType, seen: Seen, path: tuple[str, ...], names: _Names, *, is_long: bool, is_any: bool
) -> t.DataType:
    """Return a type, wider if what was seen needs it."""
    grown = partial(_grown, names=names, is_long=is_long, is_any=is_any)
    if isinstance(known, t.StructType) and seen.kind is Kind.OBJECT:
        fields = [
            t.StructField(
                field.name,
                grown(field.dataType, seen.fields[field.name], (*path, field.name))
                if field.name in seen.fields
                else field.dataType,
            )
            for field in known.fields
        ]
        return t.StructType([*fields, *_new_fields(seen, known.fieldNames(), path, names)])
    if isinstance(known, t.ArrayType) and seen.kind is Kind.LIST and seen.items is not None:
        return t.ArrayType(grown(known.elementType, seen.items, (*path, _ITEM)))
    number = _NUMBERS.get(known.simpleString())
    if number is None:
        return known
    if number is Kind.INT53 and is_long:
        number = Kind.LONG
    wider = joined(number, seen.kind if is_any else seen.number)
    return known if wider is Kind.STRING and not is_any else _TYPES[wider]


def _has_values(seen: Seen) -> bool:
    """Whether there is anything to make a column of; an object without fields has no type."""
    if seen.kind is Kind.OBJECT:
        return any(map(_has_values, seen.fields.values()))
    if seen.kind is Kind.LIST:
        return seen.items is not None and _has_values(seen.items)
    return seen.kind is not Kind.NULL


def _by_count(found: Found) -> list[tuple[str, Seen]]:
    return sorted(found.items(), key=lambda each: (-each[1].count, each[0]))


def width(kinds: Iterable[t.DataType]) -> int:
    """Count columns of these types, and the fields within them."""
    return sum(1 + _fields_within(kind) for kind in kinds)


def _fields_within(kind: t.DataType) -> int:
    if isinstance(kind, t.StructType):
        return width(field.dataType for field in kind.fields)
    return _fields_within(kind.elementType) if isinstance(kind, t.ArrayType) else 0


class Refusal:
    """Says why a row of a table would lose a field of an object.

    Args:
        kinds: of the columns. own: columns that the table has beside them.
    """

    def __init__(self, kinds: Mapping[str, t.DataType], own: Iterable[str]) -> None:
        self._kinds = dict(kinds)
        self._own = tuple(own)
        self._is_full = width(self._kinds.values()) >= MOST_COLUMNS

    def why(self, fields: Object) -> str:
        """Return the reason; "" if the row has all fields."""
        return self._why_within(fields, self._kinds, "", self._own)

    def _why_within(self, fields: Object, kinds: Mapping[str, t.DataType], path: str, own: tuple[str, ...] = ()) -> str:
        """`path` is that of the object, with a dot at its end."""
        for name, value in fields.items():
            kind = kinds.get(name)
            if kind is not None:
                why = self._why(value, kind, f"{path}{name}")
            else:
                why = "" if is_empty(value) else self._why_no_column(name, value, path, (*own, *kinds))
            if why:
                return why
        return ""

    def _why(self, value: object, kind: t.DataType, path: str) -> str:
        if isinstance(kind, t.StructType) and isinstance(value, dict):
            within = {field.name: field.dataType for field in kind.fields}
            return self._why_within(value, within, f"{path}.")
        if isinstance(kind, t.ArrayType) and isinstance(value, list):
            reasons = (self._why(each, kind.elementType, f"{path}[{at}]") for at, each in enumerate(value))
            return next(filter(None, reasons), "")
        return ""

    def _why_no_column(self, name: str, value: object, path: str, names: Iterable[str]) -> str:
        within = f" of {path[:-1]}" if path else ""
        if not name:
            return f"a field{within} has no name"
        if not is_name(name):
            return f"a field{within} has a null character, or half of a character, in its name"
        if isinstance(value, dict) and not is_empty(value.get("")):
            return f"a field of {path}{name} has no name"
        for other in names:
            if other.lower() == name.lower():
                return (
                    f"the field {path}{name} and the column {path}{other} are one to most readers; "
                    "name one of them otherwise"
                )
        if self._is_full:
            return f"the table has {MOST_COLUMNS:,} columns, and {path}{name} is none of them"
        return f"the field {path}{name} has the name of another one, written with dots; name one of them otherwise"
