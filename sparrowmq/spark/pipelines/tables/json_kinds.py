"""The kinds of the values in JSON bodies, field by field; the mode `json` makes columns of them.

    null -> boolean ------------------------------> string
         -> int53 ---> bigint --> decimal(38,0) --> string       without a point
              `------> double --------------------> string       with a point or an exponent
         -> list, object -------------------------> string       if both, or beside other values

A new column must hold each value of its batch exactly as it is, so numbers that have no type in common become text.
Only a number with a point may be rounded, to the nearest double.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

from sparrowmq.spark.pipelines.tables.json_objects import NoRow, Object, Real, read_object

MOST_COLUMNS: Final = 1000  # of a table, with the fields within them; later ones are errors of their rows
MOST_DEPTH: Final = 10  # of objects and lists within a field; what is deeper becomes text

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
    LIST = 7
    OBJECT = 8


_WITHOUT_POINT: Final = (Kind.INT53, Kind.LONG, Kind.DECIMAL)
_NUMBERS: Final = (*_WITHOUT_POINT, Kind.DOUBLE)


class Seen(msgspec.Struct, array_like=True):
    """Everything seen of a field. It goes from workers to the driver.

    Attributes:
        kind: of its values. count: of the objects that have it.
        fields: of its objects. items: of its lists.
        number: the kind of its numbers alone; STRING if no type of numbers holds them all.
    """

    kind: Kind = Kind.NULL
    count: int = 0
    fields: dict[str, Seen] = {}
    items: Seen | None = None
    number: Kind = Kind.NULL

    def see(self, value: Any, depth: int) -> None:
        """Note a value; `depth` is how many levels of objects and lists may be within it."""
        self.count += 1
        kind = kind_of(value)
        if kind >= Kind.LIST:
            kind = self._see_nested(value, depth) if depth else Kind.STRING
        if kind is not self.kind:
            self.kind = joined(self.kind, kind)
            if kind in _NUMBERS:
                self.number = joined(self.number, kind)

    def _see_nested(self, value: Any, depth: int) -> Kind:
        if isinstance(value, dict):
            see_fields(self.fields, value, depth - 1)
            return Kind.OBJECT
        self.items = self.items or Seen()
        for item in value:
            self.items.see(item, depth - 1)
        return Kind.LIST

    def add(self, other: Seen) -> None:
        """Note what another worker saw of the same field."""
        self.kind = joined(self.kind, other.kind)
        self.number = joined(self.number, other.number)
        self.count += other.count
        merge(self.fields, other.fields)
        if other.items is not None:
            self.items = self.items or Seen()
            self.items.add(other.items)


Found = dict[str, Seen]


def kind_of(value: Any) -> Kind:
    """Return the narrowest kind that holds a value."""
    if value is None:
        return Kind.NULL
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return _kind_of_int(value)
    if isinstance(value, Real):
        return Kind.DOUBLE if abs(float(value)) != float("inf") else Kind.STRING
    if isinstance(value, dict):
        return Kind.OBJECT
    return Kind.LIST if isinstance(value, list) else Kind.STRING


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


def found_in(bodies: Iterable[bytes | None], depth: int = MOST_DEPTH, key: str | None = None) -> Found:
    """Return the fields of the bodies that may become rows. With a depth of 0, objects and lists in them are text."""
    found: Found = {}
    for body in bodies:
        try:
            fields = read_object(body)
            demand_few(fields, depth)
            demand_key(fields, key)
        except NoRow:
            continue
        see_fields(found, fields, depth)
    return found


def see_fields(found: Found, fields: Object, depth: int) -> None:
    for name, value in fields.items():
        seen = found.get(name)
        if seen is None:
            if not is_name(name):
                continue
            seen = found[name] = Seen()
        seen.see(value, depth)


def merge(found: Found, more: Mapping[str, Seen]) -> None:
    """Add what another worker found."""
    for name, seen in more.items():
        if name in found:
            found[name].add(seen)
        else:
            found[name] = seen


def merged(parts: Iterable[Mapping[str, Seen]]) -> Found:
    """Return what several workers found, together."""
    found: Found = {}
    for part in parts:
        merge(found, part)
    return found


def demand_few(fields: Object, depth: int) -> None:
    """Raises: NoRow, an object has more fields, with those within them that become columns, than any table."""
    if len(fields) <= MOST_COLUMNS and (not depth or _count(fields, MOST_COLUMNS) <= MOST_COLUMNS):
        return
    seen = Seen()
    seen.see(fields, depth + 1)
    count = _fields_of(seen)
    if count > MOST_COLUMNS:
        raise NoRow(f"the body has {count:,} fields; a table has at most {MOST_COLUMNS:,}")


def demand_key(fields: Object, key: str | None) -> None:
    """Raises: NoRow, a value can be no key of a table, or the key's name is there in another case, too."""
    if key is None:
        return
    for name in fields:
        if name != key and name.lower() == key.lower():
            raise NoRow(f"the body has {name}, and the key is {key}; send it under this name")
    if isinstance(fields.get(key), Real | dict | list):
        raise NoRow(f"the key {key} is neither a text nor a whole number")


def _count(value: Any, enough: int) -> int:
    """Count the names in the objects of a value, repeated ones in lists as well; or return more than enough."""
    if type(value) is dict:
        count, parts = len(value), value.values()
    else:
        count, parts = 0, value
    for each in parts:
        if count > enough:
            break
        if type(each) in (dict, list):
            count += _count(each, enough)
    return count


def _fields_of(seen: Seen) -> int:
    count = sum(1 + _fields_of(each) for each in seen.fields.values())
    return count + (0 if seen.items is None else _fields_of(seen.items))


def is_name(name: str) -> bool:
    """Whether a column can have a name: some readers end names at a null character."""
    return bool(name) and "\0" not in name and not any("\ud800" <= each <= "\udfff" for each in name)


def is_empty(value: Any) -> bool:
    """Whether there is nothing in a value: it needs no column."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value is None or (isinstance(value, list) and all(map(is_empty, value)))
