"""Avro and Protobuf bodies: the columns of their schemas, and the reader that fills them in Spark's workers.

The driver asks the registry, once for each schema; workers get the schemas of a batch (`Encoding`) and ask nothing.

    Avro                                        Protobuf                          column
    boolean                                     bool                              boolean
    int, long                                   int32 ... sfixed64, uint32        bigint
                                                uint64, fixed64                   decimal(20,0)
    float, double                               float, double                     double
    string, enum, uuid, time                    string, enum                      string
    bytes, fixed                                bytes                             binary
    decimal(p,s)                                                                  decimal(p,s); string above 38 digits
    date                                                                          date
    timestamp, local-timestamp                  Timestamp                         timestamp, timestamp_ntz
                                                Duration                          decimal(21,9), seconds
    array, map, record                          repeated, map, message            array, map, struct
    union with null                             optional, oneof, wrappers         the type itself
    union of several types                                                        struct with a field for each
    a record without fields                     a message without fields          boolean
    a record that contains itself, from there   the same, Struct, Value           string, its JSON

Integers always become bigint, and floats double. So a field that gets wider in a later schema fits its column. A column
keeps its type even if a later schema has another type for its field. So each value must fit: a long of 5 fits an int,
and text fits bytes. A column of text takes anything: text as it is, other values as JSON.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import types as t

from sparrowmq.errors import ConfigError, InvalidBody, InvalidSchema
from sparrowmq.schemas import wire_format
from sparrowmq.schemas.avro import (
    Array,
    AvroReader,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    named_branches,
    parse_schema,
)
from sparrowmq.schemas.protobuf import DURATION, TIMESTAMP, WRAPPERS, ProtobufFile, ProtobufReader, is_map, is_text
from sparrowmq.schemas.registry import AVRO, Schema
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, convert_fields
from sparrowmq.spark.pipelines.tables.json_values import (
    MISFITS,
    Convert,
    Misfit,
    NoRow,
    array,
    exact_decimal,
    integer,
    pairs,
    struct_of,
)
from sparrowmq.spark.pipelines.tables.partition_columns import key_fault

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

VALUE: Final = "value"  # the column of a schema that is no record
MAX_TYPES: Final = 2000  # of the columns of a schema, those inside of others included
_MAX_DIGITS: Final = 38
_PRIMITIVE_TYPES: Final[Mapping[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "int": t.LongType(),
    "long": t.LongType(),
    "float": t.DoubleType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
_LOGICAL_TYPES: Final[Mapping[str, t.DataType]] = {
    "date": t.DateType(),
    "time-millis": t.StringType(),
    "time-micros": t.StringType(),
    "timestamp-millis": t.TimestampType(),
    "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampNTZType(),
    "local-timestamp-micros": t.TimestampNTZType(),
    "uuid": t.StringType(),
}
# Each value of the Python type fits the column as it is.
_PYTHON_TYPES: Final[Mapping[type[t.DataType], type]] = {
    t.BooleanType: bool,
    t.DoubleType: float,
    t.StringType: str,
    t.BinaryType: bytes,
    t.DateType: date,
}
NO_SCHEMA_ID: Final = -1  # of the schema of bodies without the id of one
_MAX_HEADS: Final = 10_000  # of a task: any sender can invent more
_MAX_BATCH_VALUES: Final = 1_000_000  # in memory: a batch of Arrow may have thousands of large bodies
TOO_MANY_SCHEMAS: Final = "the batch has too many schemas that were never seen before"
_MAX_READERS: Final = 1000


Columns = dict[str, t.DataType]


def avro_columns(schema: AvroType) -> Columns:
    """Return the columns of an Avro schema. Raises: InvalidSchema, no table can have them."""
    types = _AvroTypes()
    if not isinstance(schema, Record):
        kind = types.of(schema, ())
        return {} if kind is None else {VALUE: kind}
    fields = ((name, types.of(kind, (schema,))) for name, kind in schema.fields)
    return {name: kind for name, kind in fields if kind is not None}


def protobuf_columns(message: Any) -> Columns:
    """Return the columns of a Protobuf message. Raises: InvalidSchema, no table can have them."""
    types = _ProtobufTypes()
    return {field.name: types.of(field) for field in message.fields}


class _TypeCounter:
    """Limits the types of a schema: a few lines can name a type 2^100 times."""

    def __init__(self) -> None:
        self._count = 0

    def count_type(self) -> None:
        self._count += 1
        if self._count > MAX_TYPES:
            raise InvalidSchema(f"its columns have more than {MAX_TYPES:,} types inside")


class _AvroTypes(_TypeCounter):
    def of(self, kind: AvroType, outer: tuple[AvroType, ...]) -> t.DataType | None:
        """The type of a column; None for nulls. `outer`: the records that contain it."""
        self.count_type()
        match kind:
            case Primitive(name="null"):
                return None
            case Primitive(logical="decimal") | Fixed(logical="decimal"):
                return t.DecimalType(kind.precision, kind.scale) if kind.precision <= _MAX_DIGITS else t.StringType()
            case Primitive() | Fixed() if kind.logical:
                return _LOGICAL_TYPES[kind.logical]
            case Primitive():
                return _PRIMITIVE_TYPES[kind.name]
            case Fixed():
                return t.BinaryType()
            case Enumeration():
                return t.StringType()
            case Array():
                return t.ArrayType(self._inner_type(kind.items, outer))
            case Map():
                return t.MapType(t.StringType(), self._inner_type(kind.values, outer))
            case Union():
                return self._union_type(kind, outer)
        if any(kind is record for record in outer):
            return t.StringType()
        return _struct_type(
            kind.name, ((name, self.of(field_type, (*outer, kind))) for name, field_type in kind.fields)
        )

    def _inner_type(self, kind: AvroType, outer: tuple[AvroType, ...]) -> t.DataType:
        return self.of(kind, outer) or t.StringType()

    def _union_type(self, kind: Union, outer: tuple[AvroType, ...]) -> t.DataType | None:
        branches = [(name, self.of(branch, outer)) for name, branch in named_branches(kind)]
        if len(branches) > 1:
            return _struct_type("a union", branches)
        return branches[0][1] if branches else None


class _ProtobufTypes(_TypeCounter):
    def of(self, field: Any) -> t.DataType:
        self.count_type()
        if is_map(field):
            fields = field.message_type.fields_by_name
            return t.MapType(self._item_type(fields["key"]), self._item_type(fields["value"]))
        item_type = self._item_type(field)
        return t.ArrayType(item_type) if field.is_repeated else item_type

    def _item_type(self, field: Any) -> t.DataType:
        if field.message_type is not None:
            return self._message_type(field.message_type)
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

    def _message_type(self, message: Any) -> t.DataType:
        if message.full_name == TIMESTAMP:
            return t.TimestampType()
        if message.full_name == DURATION:
            return t.DecimalType(21, 9)
        if message.full_name in WRAPPERS:
            return self.of(message.fields_by_name["value"])
        if is_text(message):
            return t.StringType()
        return _struct_type(message.full_name, [(field.name, self.of(field)) for field in message.fields])


def _struct_type(name: str, fields: Iterable[tuple[str, t.DataType | None]]) -> t.DataType:
    fields_by_name: dict[str, t.StructField] = {}
    for field_name, kind in fields:
        if kind is not None:
            if other := fields_by_name.get(field_name.lower()):
                raise InvalidSchema(
                    f"the fields {other.name} and {field_name} of {name} differ only in case; most readers treat them "
                    "as one"
                )
            fields_by_name[field_name.lower()] = t.StructField(field_name, kind)
    return t.StructType(list(fields_by_name.values())) if fields_by_name else t.BooleanType()


def add_columns(
    columns: Mapping[str, str], schemas: Iterable[Columns], own_names: Iterable[str], max_columns: int
) -> dict[str, str]:
    """Return `columns`, as DDL, and behind them those that schemas add; `own_names` are taken by the table."""
    merged = dict(columns)
    used_names = {name.lower() for name in (*own_names, *columns)}
    for schema_columns in schemas:
        for name, kind in schema_columns.items():
            if name.lower() not in used_names and len(merged) < max_columns:
                used_names.add(name.lower())
                merged[name] = kind.simpleString()
    return merged


def encoded_converter(kind: t.DataType) -> Convert:
    """Return a function that converts decoded values, and raises Misfit. Raises: ConfigError, another type."""
    convert, expected, python_type = _exact_converter(kind), kind.simpleString(), _PYTHON_TYPES.get(type(kind))

    def convert_value(value: Any) -> Any:
        if value is None or type(value) is python_type:
            return value
        try:
            return convert(value)
        except MISFITS:
            raise Misfit("", expected) from None

    return convert_value


def _exact_converter(kind: t.DataType) -> Convert:
    """Return a function for values that are not null; it raises errors of values and types."""
    match kind:
        case t.BooleanType():
            return _convert_boolean
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return integer(kind)
        case t.FloatType() | t.DoubleType():
            return _convert_double
        case t.DecimalType():
            return lambda value: exact_decimal(_require(value, type(value) in (int, Decimal)), kind)
        case t.StringType():
            return _convert_text
        case t.BinaryType():
            return _convert_binary
        case t.DateType():
            return lambda value: _require(value, type(value) is date)
        case t.TimestampType():
            return lambda value: _require(value, isinstance(value, datetime) and value.tzinfo is not None)
        case t.TimestampNTZType():
            return lambda value: _require(value, isinstance(value, datetime) and value.tzinfo is None)
        case t.ArrayType():
            return array(encoded_converter(kind.elementType))
        case t.MapType():
            return pairs(encoded_converter(kind.keyType), encoded_converter(kind.valueType))
        case t.StructType():
            return _struct_converter({field.name: encoded_converter(field.dataType) for field in kind.fields})
    raise ConfigError(f"{kind.simpleString()} is no type for Avro and Protobuf; use another table")


def _require(value: Any, fits: bool) -> Any:
    if not fits:
        raise TypeError
    return value


def _convert_boolean(value: Any) -> bool:
    """A record without fields is true: it is there."""
    return bool(_require(value is True or value == {}, isinstance(value, bool) or value == {}))


def _convert_double(value: Any) -> float:
    number = float(_require(value, type(value) in (int, float)))
    if type(value) is int and int(number) != value:
        raise OverflowError
    return number


def _convert_text(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return value.decode()
        case bool() | int() | float() | dict() | list():
            return json.dumps(value, ensure_ascii=False, default=_plain_text)
    return _plain_text(value)


def _plain_text(value: Any) -> str:
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError


def _convert_binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(_require(value, isinstance(value, bytes)))


def _struct_converter(converts: Mapping[str, Convert]) -> Convert:
    """Return a function that refuses fields which the column lacks."""
    struct = struct_of(converts)

    def convert(value: Any) -> dict[str, Any]:
        for name, field_value in _require(value, isinstance(value, dict)).items():
            if name not in converts and field_value is not None:
                raise Misfit(f".{name}", "field of its column")
        struct_value: dict[str, Any] = struct(value)
        return struct_value

    return convert


# The begin of a body: the id of its schema, and for Protobuf which message of it.
BodyHead = tuple[int, tuple[int, ...]]
_Read = Callable[[bytes], tuple[Any, int]]


@dataclass(frozen=True)
class SchemaSource:
    """A schema as workers get it: the text of Avro with its references, or compiled Protobuf in base64."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: str | None = None  # of Protobuf; None where bodies name it


@dataclass(frozen=True)
class Encoding:
    """The schemas of the bodies of a batch, by id, and the form of the bodies.

    Bodies begin with the id of a schema if they are framed; otherwise theirs is NO_SCHEMA_ID. `missing` has the reasons
    why other ids have none. A schema in which the type of the table's `key` cannot be a key adds no columns, and its
    bodies are errors.
    """

    mode: str
    is_framed: bool
    schemas: Mapping[int, SchemaSource] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    key: str | None = None

    def head(self, body: bytes | None) -> BodyHead:
        """Return the head of a body. Raises: InvalidBody."""
        return self._split_body(body)[0]

    def _split_body(self, body: bytes | None) -> tuple[BodyHead, bytes]:
        if not self.is_framed:
            if body is None or (not body and self.mode == "avro"):
                raise InvalidBody("the body is empty")
            return (NO_SCHEMA_ID, ()), body
        schema_id = wire_format.read_schema_id(body)
        assert body is not None
        if self.mode == "avro":
            return (schema_id, ()), wire_format.avro_payload(body)
        indexes, rest = wire_format.protobuf_payload(body)
        return (schema_id, indexes), rest

    def columns(self, head: BodyHead) -> Columns:
        """Return the columns that bodies with a head need. Raises: InvalidSchema."""
        source = self._source(head[0])
        if self.mode == "avro":
            columns = avro_columns(parse_schema(_schema(source)))
        else:
            columns = protobuf_columns(_protobuf_message(source, head[1]))
        if self.key in columns and (fault := key_fault(self.key, columns[self.key])):
            raise InvalidSchema(fault)
        return columns

    def reader(self) -> Callable[[bytes | None], tuple[dict[str, Any], int]]:
        """Return a function for the fields and the count of values of a body; it raises InvalidBody, InvalidSchema."""
        readers: dict[BodyHead, _Read | InvalidSchema] = {}

        def read(body: bytes | None) -> tuple[dict[str, Any], int]:
            head, rest = self._split_body(body)
            if head not in readers:
                if len(readers) > _MAX_READERS:
                    readers.clear()
                readers[head] = self._open_reader(head)
            reader = readers[head]
            if isinstance(reader, InvalidSchema):
                raise InvalidBody(f"schema {head[0]}: {reader}" if self.is_framed else str(reader))
            return reader(rest)

        return read

    def _open_reader(self, head: BodyHead) -> _Read | InvalidSchema:
        try:
            self.columns(head)  # of which some cannot be, though bodies can be read
            source = self._source(head[0])
            if self.mode == "avro":
                return _avro_reader(source)
            return ProtobufReader(_protobuf_message(source, head[1])).read_counted
        except InvalidSchema as error:
            return error

    def _source(self, schema_id: int) -> SchemaSource:
        if (source := self.schemas.get(schema_id)) is None:
            raise InvalidSchema(self.missing.get(schema_id, TOO_MANY_SCHEMAS))
        return source


def _schema(source: SchemaSource) -> Schema:
    return Schema(source.kind, source.text, source.references)


def _avro_reader(source: SchemaSource) -> _Read:
    kind = parse_schema(_schema(source))
    reader = AvroReader(kind, names_branches=True)
    if isinstance(kind, Record):
        return reader.read_counted

    def read(body: bytes) -> tuple[Any, int]:
        value, count = reader.read_counted(body)
        return {VALUE: value}, count

    return read


def _protobuf_message(source: SchemaSource, indexes: Sequence[int]) -> Any:
    if source.kind == AVRO:
        raise InvalidSchema(f"the schema is of the type {AVRO}, not PROTOBUF")
    file = _file(source.text)
    return file.message_at(indexes) if indexes else file.message_named(source.message)


@lru_cache(maxsize=100)
def _file(text: str) -> ProtobufFile:
    return ProtobufFile(base64.b64decode(text))


def count_heads(encoding: Encoding, bodies: Iterable[bytes | None], counts: Counter[BodyHead]) -> None:
    """Add the heads of bodies to the counts."""
    for body in bodies:
        with suppress(InvalidBody):
            counts[encoding.head(body)] += 1


def frequent_heads(counts: Counter[BodyHead]) -> list[tuple[int, tuple[int, ...], int]]:
    """Return the most frequent heads, each with its count."""
    return [(schema_id, indexes, count) for (schema_id, indexes), count in counts.most_common(_MAX_HEADS)]


class EncodedReader:
    """A function for `mapInArrow`: it adds the reason why a body is no row, or the columns of the body.

    `kinds` are the columns, by name. `added` are the reason and the columns, as Arrow fields. `own` are names of
    columns that the table has beside them.
    """

    def __init__(
        self, encoding: Encoding, kinds: Mapping[str, DataType], added: Sequence[pa.Field], own: Iterable[str]
    ) -> None:
        self._encoding = encoding
        self._kinds = dict(kinds)
        self._added = list(added)
        self._names_by_lower = {name.lower(): name for name in (*own, *kinds)}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        converts = {name: encoded_converter(kind) for name, kind in self._kinds.items()}
        read = self._encoding.reader()
        for batch in batches:
            begin, count, rows = 0, 0, []
            for index in range(batch.num_rows):
                row, values = self._row(batch.column(BODY)[index].as_py(), read, converts)
                rows.append(row)
                count += values
                if count > _MAX_BATCH_VALUES:
                    yield self._add_columns(batch.slice(begin, len(rows)), rows)
                    begin, count, rows = index + 1, 0, []
            yield self._add_columns(batch.slice(begin, len(rows)), rows)

    def _add_columns(self, batch: pa.RecordBatch, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        added = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(self._added)]
        schema = pa.schema([*batch.schema, *self._added])
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    def _row(
        self,
        body: bytes | None,
        read: Callable[[bytes | None], tuple[dict[str, Any], int]],
        converts: Mapping[str, Convert],
    ) -> tuple[Sequence[Any], int]:
        """Return the reason and the values, of which one is null, and how many values the body has."""
        try:
            fields, count = read(body)
        except InvalidBody as error:
            return (str(error), *([None] * len(converts))), 0
        if refusal := self._refusal(fields):
            return (refusal, *([None] * len(converts))), count
        try:
            return (None, *convert_fields(fields, converts)), count
        except NoRow as misfits:
            return (str(misfits), *([None] * len(converts))), count

    def _refusal(self, fields: Mapping[str, Any]) -> str:
        for name, value in fields.items():
            if name not in self._kinds and value is not None:
                if column := self._names_by_lower.get(name.lower()):
                    return (
                        f"the field {name} and the column {column} differ only in case, and most readers treat them as "
                        "one; rename one of them"
                    )
                return f"the table has {len(self._kinds):,} columns, and {name} is none of them"
        return ""
