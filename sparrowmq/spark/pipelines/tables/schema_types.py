"""The columns that Avro and Protobuf schemas need.

    Avro                                        Protobuf                          column
    boolean                                     bool                              boolean
    int, long                                   int32 ... sfixed64, uint32        bigint
                                                uint64, fixed64                   decimal(20,0)
    float, double                               float, double                     double
    string, enum, uuid, time                    string, enum                      string
    bytes, fixed                                bytes                             binary
    decimal(p,s)                                                                  decimal(p,s); beyond 38 digits string
    date                                                                          date
    timestamp, local-timestamp                  Timestamp                         timestamp, timestamp_ntz
                                                Duration                          decimal(21,9), seconds
    array, map, record                          repeated, map, message            array, map, struct
    union with null                             optional, oneof, wrappers         the type itself
    union of several types                                                        struct with a field for each
    a record without fields                     a message without fields          boolean
    a record that contains itself, from there   the same, Struct, Value           string, its JSON

Whole numbers are always bigint, and others double. So a field that becomes wider in a later schema fits its column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import types as t

from sparrowmq.errors import InvalidSchema
from sparrowmq.schemas.avro_bodies import merged_choices
from sparrowmq.schemas.avro_types import Array, AvroType, Enumeration, Fixed, Map, Primitive, Record, Union
from sparrowmq.schemas.protobuf_bodies import DURATION, TIMESTAMP, WRAPPERS, is_map, is_text

VALUE: Final = "value"  # the column of a schema that is no record
MOST_TYPES: Final = 2000  # of the columns of a schema, those inside of others included

_MOST_DIGITS: Final = 38
_PRIMITIVES: Final[Mapping[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "int": t.LongType(),
    "long": t.LongType(),
    "float": t.DoubleType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
_LOGICAL: Final[Mapping[str, t.DataType]] = {
    "date": t.DateType(),
    "time-millis": t.StringType(),
    "time-micros": t.StringType(),
    "timestamp-millis": t.TimestampType(),
    "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampNTZType(),
    "local-timestamp-micros": t.TimestampNTZType(),
    "uuid": t.StringType(),
}

Columns = dict[str, t.DataType]


def avro_columns(schema: AvroType) -> Columns:
    """Return the columns of an Avro schema. Raises: InvalidSchema, no table can have them."""
    types = _AvroTypes()
    if not isinstance(schema, Record):
        found = types.of(schema, ())
        return {} if found is None else {VALUE: found}
    fields = ((name, types.of(kind, (schema,))) for name, kind in schema.fields)
    return {name: kind for name, kind in fields if kind is not None}


def protobuf_columns(message: Any) -> Columns:
    """Return the columns of a Protobuf message. Raises: InvalidSchema, no table can have them."""
    types = _ProtobufTypes()
    return {field.name: types.of(field) for field in message.fields}


class _Counted:
    """Counts the types of a schema: a few lines can name a type as often as two to the hundredth."""

    def __init__(self) -> None:
        self._count = 0

    def count(self) -> None:
        self._count += 1
        if self._count > MOST_TYPES:
            raise InvalidSchema(f"its columns have more than {MOST_TYPES:,} types inside")


class _AvroTypes(_Counted):
    def of(self, kind: AvroType, above: tuple[AvroType, ...]) -> t.DataType | None:
        """The type of a column; None for nulls. `above`: the records that contain it."""
        self.count()
        match kind:
            case Primitive(name="null"):
                return None
            case Primitive(logical="decimal") | Fixed(logical="decimal"):
                return _decimal(kind.precision, kind.scale)
            case Primitive() | Fixed() if kind.logical:
                return _LOGICAL[kind.logical]
            case Primitive():
                return _PRIMITIVES[kind.name]
            case Fixed():
                return t.BinaryType()
            case Enumeration():
                return t.StringType()
            case Array():
                return t.ArrayType(self._inside(kind.items, above))
            case Map():
                return t.MapType(t.StringType(), self._inside(kind.values, above))
            case Union():
                return self._union(kind, above)
        if any(kind is each for each in above):
            return t.StringType()
        return _struct(kind.name, ((name, self.of(each, (*above, kind))) for name, each in kind.fields))

    def _inside(self, kind: AvroType, above: tuple[AvroType, ...]) -> t.DataType:
        return self.of(kind, above) or t.StringType()

    def _union(self, kind: Union, above: tuple[AvroType, ...]) -> t.DataType | None:
        branches = [(name, self.of(each, above)) for name, each in merged_choices(kind)]
        if len(branches) > 1:
            return _struct("a union", branches)
        return branches[0][1] if branches else None


class _ProtobufTypes(_Counted):
    def of(self, field: Any) -> t.DataType:
        self.count()
        if is_map(field):
            fields = field.message_type.fields_by_name
            return t.MapType(self._one(fields["key"]), self._one(fields["value"]))
        one = self._one(field)
        return t.ArrayType(one) if field.is_repeated else one

    def _one(self, field: Any) -> t.DataType:
        if field.message_type is not None:
            return self._message(field.message_type)
        match field.cpp_type:
            case field.CPPTYPE_BOOL:
                return t.BooleanType()
            case field.CPPTYPE_INT32 | field.CPPTYPE_INT64 | field.CPPTYPE_UINT32:
                return t.LongType()
            case field.CPPTYPE_UINT64:
                return t.DecimalType(20, 0)
            case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
                return t.DoubleType()
        return t.BinaryType() if field.type == field.TYPE_BYTES else t.StringType()

    def _message(self, message: Any) -> t.DataType:
        if message.full_name == TIMESTAMP:
            return t.TimestampType()
        if message.full_name == DURATION:
            return t.DecimalType(21, 9)
        if message.full_name in WRAPPERS:
            return self.of(message.fields_by_name["value"])
        if is_text(message):
            return t.StringType()
        return _struct(message.full_name, [(field.name, self.of(field)) for field in message.fields])


def _decimal(precision: int, scale: int) -> t.DataType:
    return t.DecimalType(precision, scale) if precision <= _MOST_DIGITS else t.StringType()


def _struct(name: str, fields: Iterable[tuple[str, t.DataType | None]]) -> t.DataType:
    """A struct of the fields that have a type. Raises: InvalidSchema, two names are one to most readers."""
    found: dict[str, t.StructField] = {}
    for each, kind in fields:
        if kind is not None:
            if other := found.get(each.lower()):
                raise InvalidSchema(f"the fields {other.name} and {each} of {name} are one to most readers")
            found[each.lower()] = t.StructField(each, kind)
    return t.StructType(list(found.values())) if found else t.BooleanType()


def with_new(known: Mapping[str, str], schemas: Iterable[Columns], own: Iterable[str], most: int) -> dict[str, str]:
    """Return the columns `known`, and behind them those that schemas add: Spark types by name, as DDL.

    Args:
        own: columns that the table has beside them. most: how many columns a table has.
    """
    found = dict(known)
    taken = {name.lower() for name in (*own, *known)}
    for columns in schemas:
        for name, kind in columns.items():
            if name.lower() not in taken and len(found) < most:
                taken.add(name.lower())
                found[name] = kind.simpleString()
    return found
