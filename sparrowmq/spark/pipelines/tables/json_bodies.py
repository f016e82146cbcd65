"""JSON bodies: the columns that they need, and the reader that fills the columns in Spark's workers.

Workers note the kind of each value, field by field. A new column must hold each value of its batch exactly, so numbers
that have no type in common become text. Only a number with a point may be rounded, to the nearest double.

    null -> boolean ------------------------------> string
         -> int53 ---> bigint --> decimal(38,0) --> string       without a point
              `------> double --------------------> string       with a point or an exponent
         -> list, object -------------------------> string       if both, or beside other values

The mode `json` makes a column of each field, and widens it when necessary:

    no column  -> the type of the values
    bigint     -> decimal(38,0), or double if it has only values that a double holds
    struct     -> a struct with more fields; list -> a list of a wider type
    bigint, decimal, double -> string, if the table allows any change

boolean, string, structs and lists keep their types. A value that does not fit its column makes its row an error. Most
readers treat names that differ only in case as one column, so the name that more messages use gets the column. The same
rule holds for names that readers write with a dot: a field `b` within `a`, and a field `a.b`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from sparrowmq.spark.pipelines.tables.ddl import ddl_of, types_of
from sparrowmq.spark.pipelines.tables.json_values import Convert, Misfit, NoRow, Object, Real, converter, read_object

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

MAX_COLUMNS: Final = 1000  # of a table, with the fields within them; later ones are errors of their rows
MAX_DEPTH: Final = 10  # of objects and lists within a field; what is deeper becomes text
_LONG_VALUES: Final = range(-(1 << 63), 1 << 63)
_EXACT_DOUBLES: Final = range(-(1 << 53), (1 << 53) + 1)
_DECIMAL_LIMIT: Final = 10**38
# The changes of types that a table allows: numbers to wider types of numbers; or also numbers to text.
WIDEN: Final = "widen"
ANY: Final = "any"
_ITEM_NAME: Final = "element"  # what readers call the values in a list
BODY: Final = "body"


class ValueKind(IntEnum):
    """The type that a value needs; `wider_kind` says which one holds two of them."""

    NULL = 0
    BOOLEAN = 1
    INT53 = 2
    LONG = 3
    DECIMAL = 4
    DOUBLE = 5
    STRING = 6
    LIST = 7
    OBJECT = 8


_WITHOUT_POINT: Final = (ValueKind.INT53, ValueKind.LONG, ValueKind.DECIMAL)
_NUMBER_KINDS: Final = (*_WITHOUT_POINT, ValueKind.DOUBLE)


class FieldKinds(msgspec.Struct, array_like=True):
    """The kinds of the values of a field, from workers to the driver: of its objects, of its lists, and all together.

    `count` is that of the objects that have the field. `number` is the kind of its numbers alone; STRING if no type of
    numbers holds them all.
    """

    kind: ValueKind = ValueKind.NULL
    count: int = 0
    fields: dict[str, FieldKinds] = {}
    items: FieldKinds | None = None
    number: ValueKind = ValueKind.NULL

    def note(self, value: Any, depth: int) -> None:
        """Note a value; `depth` is how many levels of objects and lists may be within it."""
        self.count += 1
        kind = value_kind(value)
        if kind >= ValueKind.LIST:
            kind = self._note_nested(value, depth) if depth else ValueKind.STRING
        if kind is not self.kind:
            self.kind = wider_kind(self.kind, kind)
            if kind in _NUMBER_KINDS:
                self.number = wider_kind(self.number, kind)

    def _note_nested(self, value: Any, depth: int) -> ValueKind:
        if isinstance(value, dict):
            note_fields(self.fields, value, depth - 1)
            return ValueKind.OBJECT
        self.items = self.items or FieldKinds()
        for item in value:
            self.items.note(item, depth - 1)
        return ValueKind.LIST

    def add(self, other: FieldKinds) -> None:
        """Note what another worker saw of the same field."""
        self.kind = wider_kind(self.kind, other.kind)
        self.number = wider_kind(self.number, other.number)
        self.count += other.count
        add_body_fields(self.fields, other.fields)
        if other.items is not None:
            self.items = self.items or FieldKinds()
            self.items.add(other.items)


BodyFields = dict[str, FieldKinds]


def value_kind(value: Any) -> ValueKind:
    """Return the narrowest kind that holds a value."""
    if value is None:
        return ValueKind.NULL
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    if isinstance(value, int):
        return _kind_of_int(value)
    if isinstance(value, Real):
        return ValueKind.DOUBLE if abs(float(value)) != float("inf") else ValueKind.STRING
    if isinstance(value, dict):
        return ValueKind.OBJECT
    return ValueKind.LIST if isinstance(value, list) else ValueKind.STRING


def _kind_of_int(value: int) -> ValueKind:
    if value in _EXACT_DOUBLES:
        return ValueKind.INT53
    if value in _LONG_VALUES:
        return ValueKind.LONG
    return ValueKind.DECIMAL if abs(value) < _DECIMAL_LIMIT else ValueKind.STRING


def wider_kind(first: ValueKind, second: ValueKind) -> ValueKind:
    """Return the narrowest kind that holds the values of both."""
    low, high = sorted((first, second))
    if low in (ValueKind.NULL, high) or (low in _WITHOUT_POINT and high in _WITHOUT_POINT):
        return high
    return ValueKind.DOUBLE if (low, high) == (ValueKind.INT53, ValueKind.DOUBLE) else ValueKind.STRING


def fields_in(bodies: Iterable[bytes | None], depth: int = MAX_DEPTH, key: str | None = None) -> BodyFields:
    """Return the fields of the bodies that may become rows. With a depth of 0, objects and lists in them are text."""
    kinds: BodyFields = {}
    for body in bodies:
        try:
            fields = read_object(body)
            check_field_count(fields, depth)
            check_key(fields, key)
        except NoRow:
            continue
        note_fields(kinds, fields, depth)
    return kinds


def note_fields(kinds: BodyFields, fields: Object, depth: int) -> None:
    for name, value in fields.items():
        field_kinds = kinds.get(name)
        if field_kinds is None:
            if not is_name(name):
                continue
            field_kinds = kinds[name] = FieldKinds()
        field_kinds.note(value, depth)


def add_body_fields(kinds: BodyFields, more: Mapping[str, FieldKinds]) -> None:
    """Add what another worker found."""
    for name, values in more.items():
        if name in kinds:
            kinds[name].add(values)
        else:
            kinds[name] = values


def merge_body_fields(parts: Iterable[Mapping[str, FieldKinds]]) -> BodyFields:
    """Return what several workers found, together."""
    merged: BodyFields = {}
    for part in parts:
        add_body_fields(merged, part)
    return merged


def check_field_count(fields: Object, depth: int) -> None:
    """Raises: NoRow, an object has more fields, with those within them that become columns, than any table."""
    if len(fields) <= MAX_COLUMNS and (not depth or _count_names(fields, MAX_COLUMNS) <= MAX_COLUMNS):
        return
    values = FieldKinds()
    values.note(fields, depth + 1)
    count = _count_fields(values)
    if count > MAX_COLUMNS:
        raise NoRow(f"the body has {count:,} fields; a table has at most {MAX_COLUMNS:,}")


def check_key(fields: Object, key: str | None) -> None:
    """Raises: NoRow, a value can be no key of a table, or the key's name is there in another case, too."""
    if key is None:
        return
    for name in fields:
        if name != key and name.lower() == key.lower():
            raise NoRow(f"the body has {name}, and the key is {key}; send it under this name")
    if isinstance(fields.get(key), Real | dict | list):
        raise NoRow(f"the key {key} is neither a text nor a whole number")


def _count_names(value: Any, enough: int) -> int:
    """Count the names in the objects of a value, repeated ones in lists as well; or return more than enough."""
    if type(value) is dict:
        count, parts = len(value), value.values()
    else:
        count, parts = 0, value
    for part in parts:
        if count > enough:
            break
        if type(part) in (dict, list):
            count += _count_names(part, enough)
    return count


def _count_fields(values: FieldKinds) -> int:
    count = sum(1 + _count_fields(field_kinds) for field_kinds in values.fields.values())
    return count + (0 if values.items is None else _count_fields(values.items))


def is_name(name: str) -> bool:
    """Whether a column can have a name: some readers end names at a null character."""
    return bool(name) and "\0" not in name and not any("\ud800" <= character <= "\udfff" for character in name)


def is_empty(value: Any) -> bool:
    """Whether there is nothing in a value: it needs no column."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value is None or (isinstance(value, list) and all(map(is_empty, value)))


_NUMBER_KIND_OF_TYPE: Final = {
    "bigint": ValueKind.INT53,
    "decimal(38,0)": ValueKind.DECIMAL,
    "double": ValueKind.DOUBLE,
}
_TYPE_OF_KIND: Final[dict[ValueKind, t.DataType]] = {
    ValueKind.BOOLEAN: t.BooleanType(),
    ValueKind.INT53: t.LongType(),
    ValueKind.LONG: t.LongType(),
    ValueKind.DECIMAL: t.DecimalType(38, 0),
    ValueKind.DOUBLE: t.DoubleType(),
    ValueKind.STRING: t.StringType(),
}


def json_columns(
    body_fields: BodyFields,
    columns: Mapping[str, str],
    own: Collection[str],
    long: Collection[str] = (),
    *,
    type_changes: str = WIDEN,
) -> dict[str, str]:
    """Return `columns`, as wide as needed, and those that bodies add; a double does not hold the integers of `long`."""
    names, is_any = _UsedNames(own), type_changes == ANY
    types = {name: kind for name, kind in types_of(columns).items() if names.take_column(name, kind)}
    for name in types:
        if name in body_fields:
            types[name] = _grow_type(
                types[name], body_fields[name], (name,), names, is_long=name in long, is_any=is_any
            )
    for name, values in _by_count(body_fields):
        if name not in types and (kind := _new_type(values, (name,), names)) is not None:
            types[name] = kind
    return {name: ddl_of(kind) for name, kind in sorted(types.items())}


class _UsedNames:
    """The names of all columns, and of the fields within them, as readers write them."""

    def __init__(self, own: Iterable[str]) -> None:
        self._used = {name.lower() for name in own}
        self._names_left = MAX_COLUMNS

    def take_name(self, path: tuple[str, ...]) -> bool:
        """Take a name, unless it is taken, or there are too many."""
        name = ".".join(path).lower()
        if not is_name(path[-1]) or name in self._used or not self._names_left:
            return False
        self._used.add(name)
        self._names_left -= 1
        return True

    def take_item(self, path: tuple[str, ...]) -> bool:
        """Take the name that the values in a list have to readers."""
        name = ".".join((*path, _ITEM_NAME)).lower()
        if name in self._used:
            return False
        self._used.add(name)
        return True

    def take_column(self, name: str, kind: t.DataType) -> bool:
        """Take the names of a column that the table has."""
        if not self.take_name((name,)):
            return False
        self._take_within((name,), kind)
        return True

    def _take_within(self, path: tuple[str, ...], kind: t.DataType) -> None:
        if isinstance(kind, t.ArrayType):
            self.take_item(path)
            self._take_within((*path, _ITEM_NAME), kind.elementType)
        elif isinstance(kind, t.StructType):
            for field in kind.fields:
                self.take_name((*path, field.name))
                self._take_within((*path, field.name), field.dataType)


def _new_type(values: FieldKinds, path: tuple[str, ...], names: _UsedNames) -> t.DataType | None:
    if not _has_values(values) or not names.take_name(path):
        return None
    return _type_of(values, path, names)


def _type_of(values: FieldKinds, path: tuple[str, ...], names: _UsedNames) -> t.DataType | None:
    """Return the type of what was seen, of which the name is taken already."""
    if values.kind is ValueKind.LIST:
        item = _type_of(values.items, (*path, _ITEM_NAME), names) if values.items and names.take_item(path) else None
        return t.ArrayType(item) if item is not None else None
    if values.kind is ValueKind.OBJECT:
        fields = _new_fields(values, (), path, names)
        return t.StructType(fields) if fields else None
    return _TYPE_OF_KIND.get(values.kind)


def _new_fields(
    values: FieldKinds, names_before: Collection[str], path: tuple[str, ...], names: _UsedNames
) -> list[t.StructField]:
    fields = []
    for name, field_values in _by_count(values.fields):
        if name not in names_before and (kind := _new_type(field_values, (*path, name), names)) is not None:
            fields.append(t.StructField(name, kind))
    return sorted(fields, key=lambda field: str(field.name))


def _grow_type(
    kind: t.DataType, values: FieldKinds, path: tuple[str, ...], names: _UsedNames, *, is_long: bool, is_any: bool
) -> t.DataType:
    """Return a type, wider if what was seen needs it."""
    grow = partial(_grow_type, names=names, is_long=is_long, is_any=is_any)
    if isinstance(kind, t.StructType) and values.kind is ValueKind.OBJECT:
        fields = [
            t.StructField(
                field.name,
                grow(field.dataType, values.fields[field.name], (*path, field.name))
                if field.name in values.fields
                else field.dataType,
            )
            for field in kind.fields
        ]
        return t.StructType([*fields, *_new_fields(values, kind.fieldNames(), path, names)])
    if isinstance(kind, t.ArrayType) and values.kind is ValueKind.LIST and values.items is not None:
        return t.ArrayType(grow(kind.elementType, values.items, (*path, _ITEM_NAME)))
    number = _NUMBER_KIND_OF_TYPE.get(kind.simpleString())
    if number is None:
        return kind
    if number is ValueKind.INT53 and is_long:
        number = ValueKind.LONG
    wider = wider_kind(number, values.kind if is_any else values.number)
    return kind if wider is ValueKind.STRING and not is_any else _TYPE_OF_KIND[wider]


def _has_values(values: FieldKinds) -> bool:
    if values.kind is ValueKind.OBJECT:
        return any(map(_has_values, values.fields.values()))
    if values.kind is ValueKind.LIST:
        return values.items is not None and _has_values(values.items)
    return values.kind is not ValueKind.NULL


def _by_count(fields: BodyFields) -> list[tuple[str, FieldKinds]]:
    return sorted(fields.items(), key=lambda entry: (-entry[1].count, entry[0]))


def count_columns(kinds: Iterable[t.DataType]) -> int:
    """Count columns of these types, and the fields within them."""
    return sum(1 + _fields_within(kind) for kind in kinds)


def _fields_within(kind: t.DataType) -> int:
    if isinstance(kind, t.StructType):
        return count_columns(field.dataType for field in kind.fields)
    return _fields_within(kind.elementType) if isinstance(kind, t.ArrayType) else 0


class ColumnCheck:
    """Finds a field that a row of the table would lose; `own` are names of columns beside those of bodies."""

    def __init__(self, kinds: Mapping[str, t.DataType], own: Iterable[str]) -> None:
        self._kinds = dict(kinds)
        self._own = tuple(own)
        self._is_full = count_columns(self._kinds.values()) >= MAX_COLUMNS

    def lost_field(self, fields: Object) -> str:
        """Return the reason; "" if the row has all fields."""
        return self._lost_in_object(fields, self._kinds, "", self._own)

    def _lost_in_object(
        self, fields: Object, kinds: Mapping[str, t.DataType], path: str, own: tuple[str, ...] = ()
    ) -> str:
        """`path` is that of the object, with a dot at its end."""
        for name, value in fields.items():
            kind = kinds.get(name)
            if kind is not None:
                reason = self._lost_in_value(value, kind, f"{path}{name}")
            else:
                reason = "" if is_empty(value) else self._no_column_reason(name, value, path, (*own, *kinds))
            if reason:
                return reason
        return ""

    def _lost_in_value(self, value: object, kind: t.DataType, path: str) -> str:
        if isinstance(kind, t.StructType) and isinstance(value, dict):
            inner_kinds = {field.name: field.dataType for field in kind.fields}
            return self._lost_in_object(value, inner_kinds, f"{path}.")
        if isinstance(kind, t.ArrayType) and isinstance(value, list):
            reasons = (
                self._lost_in_value(item, kind.elementType, f"{path}[{index}]") for index, item in enumerate(value)
            )
            return next(filter(None, reasons), "")
        return ""

    def _no_column_reason(self, name: str, value: object, path: str, names: Iterable[str]) -> str:
        place = f" of {path[:-1]}" if path else ""
        if not name:
            return f"a field{place} has no name"
        if not is_name(name):
            return f"a field{place} has a null character, or half of a character, in its name"
        if isinstance(value, dict) and not is_empty(value.get("")):
            return f"a field of {path}{name} has no name"
        for other in names:
            if other.lower() == name.lower():
                return (
                    f"the field {path}{name} and the column {path}{other} differ only in case, and most readers treat "
                    "them as one; rename one of them"
                )
        if self._is_full:
            return f"the table has {MAX_COLUMNS:,} columns, and {path}{name} is none of them"
        return f"the field {path}{name} has the name of another one, written with dots; name one of them otherwise"


Reader: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


class BodyReader:
    """A function for `mapInArrow`: it adds the reason why a body is no row, or the columns of the body.

    `kinds` are the columns, by name; `added` are the reason and the columns, as Arrow fields; `own` are columns that
    the table has beside them. With `is_closed`, fields without a column are left out; otherwise they are an error.
    `depth` is that of objects and lists within columns, and `key` the column of which each value has one row.
    """

    def __init__(
        self,
        kinds: Mapping[str, DataType],
        added: Sequence[pa.Field],
        own: Iterable[str],
        *,
        is_closed: bool,
        depth: int = 0,
        key: str | None = None,
    ) -> None:
        self._kinds = dict(kinds)
        self._added = list(added)
        self._is_closed = is_closed
        self._column_check = ColumnCheck(kinds, own)
        self._depth = depth
        self._key = key

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        converters = {name: converter(kind) for name, kind in self._kinds.items()}
        for batch in batches:
            rows = [self._read(body, converters) for body in batch.column(BODY).to_pylist()]
            added = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(self._added)]
            schema = pa.schema([*batch.schema, *self._added])
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    def _read(self, body: bytes | None, converters: Mapping[str, Convert]) -> Sequence[Any]:
        """Return the reason and the values; one of them is null."""
        try:
            fields = read_object(body)
            if not self._is_closed:
                check_field_count(fields, self._depth)
                check_key(fields, self._key)
                if reason := self._column_check.lost_field(fields):
                    raise NoRow(reason)
            return None, *convert_fields(fields, converters)
        except NoRow as error:
            return str(error), *([None] * len(converters))


def convert_fields(fields: Object, converters: Mapping[str, Convert]) -> list[Any]:
    """Return a value for each column. Raises: NoRow, with all that do not fit."""
    converted: list[Any] = []
    misfits = []
    for name, convert in converters.items():
        try:
            converted.append(convert(fields.get(name)))
        except Misfit as misfit:
            misfits.append(f"{name}{misfit.path} is no {misfit.kind}")
    if misfits:
        raise NoRow(", ".join(misfits))
    return converted
