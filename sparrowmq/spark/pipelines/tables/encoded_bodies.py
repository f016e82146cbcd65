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
from sparrowmq.schemas import codecs
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
# Each value of the Python type fits the column as it is.
_PLAIN: Final[Mapping[type[t.DataType], type]] = {
    t.BooleanType: bool,
    t.DoubleType: float,
    t.StringType: str,
    t.BinaryType: bytes,
    t.DateType: date,
}
NO_SCHEMA_ID: Final = -1  # of the schema of bodies without the id of one
_MAX_HEADS: Final = 10_000  # of a task: any sender can invent more
_MAX_BATCH_VALUES: Final = 1_000_000  # in memory: a batch of Arrow may have thousands of large bodies
TOO_MANY: Final = "the batch has too many schemas that were never seen before"
_MAX_READERS: Final = 1000


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


class _TypeCounter:
    """Limits the types of a schema: a few lines can name a type 2^100 times."""

    def __init__(self) -> None:
        self._count = 0

    def count(self) -> None:
        self._count += 1
        if self._count > MAX_TYPES:
            raise InvalidSchema(f"its columns have more than {MAX_TYPES:,} types inside")


class _AvroTypes(_TypeCounter):
    def of(self, kind: AvroType, above: tuple[AvroType, ...]) -> t.DataType | None:
        """The type of a column; None for nulls. `above`: the records that contain it."""
        self.count()
        match kind:
            case Primitive(name="null"):
                return None
            case Primitive(logical="decimal") | Fixed(logical="decimal"):
                return t.DecimalType(kind.precision, kind.scale) if kind.precision <= _MAX_DIGITS else t.StringType()
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
        return _struct_type(kind.name, ((name, self.of(each, (*above, kind))) for name, each in kind.fields))

    def _inside(self, kind: AvroType, above: tuple[AvroType, ...]) -> t.DataType:
        return self.of(kind, above) or t.StringType()

    def _union(self, kind: Union, above: tuple[AvroType, ...]) -> t.DataType | None:
        branches = [(name, self.of(each, above)) for name, each in named_branches(kind)]
        if len(branches) > 1:
            return _struct_type("a union", branches)
        return branches[0][1] if branches else None


class _ProtobufTypes(_TypeCounter):
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
        return _struct_type(message.full_name, [(field.name, self.of(field)) for field in message.fields])


def _struct_type(name: str, fields: Iterable[tuple[str, t.DataType | None]]) -> t.DataType:
    found: dict[str, t.StructField] = {}
    for each, kind in fields:
        if kind is not None:
            if other := found.get(each.lower()):
                raise InvalidSchema(
                    f"the fields {other.name} and {each} of {name} differ only in case; most readers treat them as one"
                )
            found[each.lower()] = t.StructField(each, kind)
    return t.StructType(list(found.values())) if found else t.BooleanType()


def add_columns(known: Mapping[str, str], schemas: Iterable[Columns], own: Iterable[str], most: int) -> dict[str, str]:
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


def encoded_converter(kind: t.DataType) -> Convert:
    """Return a function that makes a decoded value one of a type, and raises Misfit; null stays null.

    Raises: ConfigError, no decoded value becomes this type.
    """
    convert, shown, plain = _exact(kind), kind.simpleString(), _PLAIN.get(type(kind))

    def run(value: Any) -> Any:
        if value is None or type(value) is plain:
            return value
        try:
            return convert(value)
        except MISFITS:
            raise Misfit("", shown) from None

    return run


def _exact(kind: t.DataType) -> Convert:
    """Return a function for values that are not null; it raises errors of values and types."""
    match kind:
        case t.BooleanType():
            return _boolean
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return integer(kind)
        case t.FloatType() | t.DoubleType():
            return _double
        case t.DecimalType():
            return lambda value: exact_decimal(_only(value, type(value) in (int, Decimal)), kind)
        case t.StringType():
            return _string
        case t.BinaryType():
            return _binary
        case t.DateType():
            return lambda value: _only(value, type(value) is date)
        case t.TimestampType():
            return lambda value: _only(value, isinstance(value, datetime) and value.tzinfo is not None)
        case t.TimestampNTZType():
            return lambda value: _only(value, isinstance(value, datetime) and value.tzinfo is None)
        case t.ArrayType():
            return array(encoded_converter(kind.elementType))
        case t.MapType():
            return pairs(encoded_converter(kind.keyType), encoded_converter(kind.valueType))
        case t.StructType():
            return _exact_struct({field.name: encoded_converter(field.dataType) for field in kind.fields})
    raise ConfigError(f"{kind.simpleString()} is no type for Avro and Protobuf; use another table")


def _only(value: Any, fits: bool) -> Any:
    if not fits:
        raise TypeError
    return value


def _boolean(value: Any) -> bool:
    """A record without fields is true: it is there."""
    return bool(_only(value is True or value == {}, isinstance(value, bool) or value == {}))


def _double(value: Any) -> float:
    found = float(_only(value, type(value) in (int, float)))
    if type(value) is int and int(found) != value:
        raise OverflowError
    return found


def _string(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return value.decode()
        case bool() | int() | float() | dict() | list():
            return json.dumps(value, ensure_ascii=False, default=_plain)
    return _plain(value)


def _plain(value: Any) -> str:
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


def _binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(_only(value, isinstance(value, bytes)))


def _exact_struct(converts: Mapping[str, Convert]) -> Convert:
    """Return a function that refuses fields which the column lacks."""
    struct = struct_of(converts)

    def run(value: Any) -> dict[str, Any]:
        for name, each in _only(value, isinstance(value, dict)).items():
            if name not in converts and each is not None:
                raise Misfit(f".{name}", "field of its column")
        found: dict[str, Any] = struct(value)
        return found

    return run


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
    """The schemas of the bodies of a batch, and the form of the bodies.

    Attributes:
        is_framed: whether bodies begin with the id of a schema; otherwise theirs is NO_ID.
        schemas: by id. missing: the reasons why other ids have none.
        key: of the table. A schema in which its type cannot be a key adds no columns, and its bodies are errors.
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
        schema_id = codecs.read_schema_id(body)
        assert body is not None
        if self.mode == "avro":
            return (schema_id, ()), codecs.avro_payload(body)
        indexes, rest = codecs.protobuf_payload(body)
        return (schema_id, indexes), rest

    def columns(self, head: BodyHead) -> Columns:
        """Return the columns that bodies with a head need. Raises: InvalidSchema."""
        source = self._source(head[0])
        if self.mode == "avro":
            found = avro_columns(parse_schema(_schema(source)))
        else:
            found = protobuf_columns(_message(source, head[1]))
        if self.key in found and (why := key_fault(self.key, found[self.key])):
            raise InvalidSchema(why)
        return found

    def reader(self) -> Callable[[bytes | None], tuple[dict[str, Any], int]]:
        """Return a function for the fields and the count of values of a body; it raises InvalidBody, InvalidSchema."""
        readers: dict[BodyHead, _Read | InvalidSchema] = {}

        def read(body: bytes | None) -> tuple[dict[str, Any], int]:
            head, rest = self._split_body(body)
            if head not in readers:
                if len(readers) > _MAX_READERS:
                    readers.clear()
                readers[head] = self._open_reader(head)
            found = readers[head]
            if isinstance(found, InvalidSchema):
                raise InvalidBody(f"schema {head[0]}: {found}" if self.is_framed else str(found))
            return found(rest)

        return read

    def _open_reader(self, head: BodyHead) -> _Read | InvalidSchema:
        try:
            self.columns(head)  # of which some cannot be, though bodies can be read
            source = self._source(head[0])
            if self.mode == "avro":
                return _avro_reader(source)
            return ProtobufReader(_message(source, head[1])).read_counted
        except InvalidSchema as error:
            return error

    def _source(self, schema_id: int) -> SchemaSource:
        if (found := self.schemas.get(schema_id)) is None:
            raise InvalidSchema(self.missing.get(schema_id, TOO_MANY))
        return found


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


def _message(source: SchemaSource, indexes: Sequence[int]) -> Any:
    if source.kind == AVRO:
        raise InvalidSchema(f"the schema is of the type {AVRO}, not PROTOBUF")
    file = _file(source.text)
    return file.message_at(indexes) if indexes else file.message_named(source.message)


@lru_cache(maxsize=100)
def _file(text: str) -> ProtobufFile:
    return ProtobufFile(base64.b64decode(text))


def count_heads(encoding: Encoding, bodies: Iterable[bytes | None], found: Counter[BodyHead]) -> None:
    """Add the heads of bodies to the counts."""
    for body in bodies:
        with suppress(InvalidBody):
            found[encoding.head(body)] += 1


def frequent_heads(found: Counter[BodyHead]) -> list[tuple[int, tuple[int, ...], int]]:
    """Return the most frequent heads, each with its count."""
    return [(schema_id, indexes, count) for (schema_id, indexes), count in found.most_common(_MAX_HEADS)]


class EncodedReader:
    """A function for `mapInArrow`: it adds the reason why a body is no row, or the columns of the body.

    Args:
        kinds: the columns, by name. added: the reason and the columns, as Arrow fields.
        own: columns that the table has beside them.
    """

    def __init__(
        self, encoding: Encoding, kinds: Mapping[str, DataType], added: Sequence[pa.Field], own: Iterable[str]
    ) -> None:
        self._encoding = encoding
        self._kinds = dict(kinds)
        self._added = list(added)
        self._by_lower = {name.lower(): name for name in (*own, *kinds)}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        converts = {name: encoded_converter(kind) for name, kind in self._kinds.items()}
        read = self._encoding.reader()
        for batch in batches:
            begin, count, rows = 0, 0, []
            for at in range(batch.num_rows):
                row, values = self._row(batch.column(BODY)[at].as_py(), read, converts)
                rows.append(row)
                count += values
                if count > _MAX_BATCH_VALUES:
                    yield self._add_columns(batch.slice(begin, len(rows)), rows)
                    begin, count, rows = at + 1, 0, []
            yield self._add_columns(batch.slice(begin, len(rows)), rows)

    def _add_columns(self, batch: pa.RecordBatch, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        added = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self._added)]
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
        if why := self._refusal(fields):
            return (why, *([None] * len(converts))), count
        try:
            return (None, *convert_fields(fields, converts)), count
        except NoRow as misfits:
            return (str(misfits), *([None] * len(converts))), count

    def _refusal(self, fields: Mapping[str, Any]) -> str:
        for name, value in fields.items():
            if name not in self._kinds and value is not None:
                if other := self._by_lower.get(name.lower()):
                    return (
                        f"the field {name} and the column {other} differ only in case, and most readers treat them as "
                        "one; rename one of them"
                    )
                return f"the table has {len(self._kinds):,} columns, and {name} is none of them"
        return ""
