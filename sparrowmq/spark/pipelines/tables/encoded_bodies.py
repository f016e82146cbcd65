"""Reads Avro and Protobuf bodies in Spark's workers: messages become rows, and reasons where there is no row.

The driver asks the registry, once for each schema; workers get the schemas of a batch (`Encoding`) and ask nothing.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparrowmq.errors import InvalidBody, InvalidSchema
from sparrowmq.schemas import wire
from sparrowmq.schemas.avro_bodies import AvroReader
from sparrowmq.schemas.avro_types import Record, parsed
from sparrowmq.schemas.protobuf_bodies import ProtobufReader
from sparrowmq.schemas.protobuf_files import ProtobufFile
from sparrowmq.schemas.registry_client import AVRO, Schema
from sparrowmq.spark.pipelines.tables.body_reader import BODY, converted
from sparrowmq.spark.pipelines.tables.decoded_values import fitting
from sparrowmq.spark.pipelines.tables.json_objects import NoRow
from sparrowmq.spark.pipelines.tables.json_values import Convert
from sparrowmq.spark.pipelines.tables.key_types import fault_of_key
from sparrowmq.spark.pipelines.tables.schema_types import VALUE, Columns, avro_columns, protobuf_columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NO_ID: Final = -1  # of the schema of bodies without the id of one

# The begin of a body: the id of its schema, and for Protobuf which message of it.
Head = tuple[int, tuple[int, ...]]
_Read = Callable[[bytes], tuple[Any, int]]

_MOST_HEADS: Final = 10_000  # of a task: any sender can invent more
_VALUES_AT_ONCE: Final = 1_000_000  # in memory: a batch of Arrow may have thousands of large bodies


@dataclass(frozen=True)
class Source:
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
    schemas: Mapping[int, Source] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    key: str | None = None

    def head(self, body: bytes | None) -> Head:
        """Return the head of a body. Raises: InvalidBody."""
        return self._parts(body)[0]

    def _parts(self, body: bytes | None) -> tuple[Head, bytes]:
        if not self.is_framed:
            if body is None or (not body and self.mode == "avro"):
                raise InvalidBody("the body is empty")
            return (NO_ID, ()), body
        schema_id = wire.schema_id(body)
        assert body is not None
        if self.mode == "avro":
            return (schema_id, ()), wire.avro_body(body)
        indexes, rest = wire.protobuf_body(body)
        return (schema_id, indexes), rest

    def columns(self, head: Head) -> Columns:
        """Return the columns that bodies with a head need. Raises: InvalidSchema."""
        source = self._source(head[0])
        if self.mode == "avro":
            found = avro_columns(parsed(_schema(source)))
        else:
            found = protobuf_columns(_message(source, head[1]))
        if self.key in found and (why := fault_of_key(self.key, found[self.key])):
            raise InvalidSchema(why)
        return found

    def reader(self) -> Callable[[bytes | None], tuple[dict[str, Any], int]]:
        """Return a function for a body's fields, and how many values it has; it raises InvalidBody, InvalidSchema."""
        readers: dict[Head, _Read | InvalidSchema] = {}

        def read(body: bytes | None) -> tuple[dict[str, Any], int]:
            head, rest = self._parts(body)
            if head not in readers:
                if len(readers) > _MOST_READERS:
                    readers.clear()
                readers[head] = self._opened(head)
            found = readers[head]
            if isinstance(found, InvalidSchema):
                raise InvalidBody(f"schema {head[0]}: {found}" if self.is_framed else str(found))
            return found(rest)

        return read

    def _opened(self, head: Head) -> _Read | InvalidSchema:
        try:
            self.columns(head)  # of which some cannot be, though bodies can be read
            source = self._source(head[0])
            if self.mode == "avro":
                return _avro_reader(source)
            return ProtobufReader(_message(source, head[1])).read_counted
        except InvalidSchema as error:
            return error

    def _source(self, schema_id: int) -> Source:
        if (found := self.schemas.get(schema_id)) is None:
            raise InvalidSchema(self.missing.get(schema_id, TOO_MANY))
        return found


TOO_MANY: Final = "the batch has too many schemas that were never seen before"
_MOST_READERS: Final = 1000


def _schema(source: Source) -> Schema:
    return Schema(source.kind, source.text, source.references)


def _avro_reader(source: Source) -> _Read:
    kind = parsed(_schema(source))
    reader = AvroReader(kind, names_branches=True)
    if isinstance(kind, Record):
        return reader.read_counted

    def read(body: bytes) -> tuple[Any, int]:
        value, count = reader.read_counted(body)
        return {VALUE: value}, count

    return read


def _message(source: Source, indexes: Sequence[int]) -> Any:
    if source.kind == AVRO:
        raise InvalidSchema(f"the schema is of the type {AVRO}, not PROTOBUF")
    file = _file(source.text)
    return file.at(indexes) if indexes else file.named(source.message)


@lru_cache(maxsize=100)
def _file(text: str) -> ProtobufFile:
    return ProtobufFile(base64.b64decode(text))


def count_heads(encoding: Encoding, bodies: Iterable[bytes | None], found: Counter[Head]) -> None:
    """Add the heads of bodies to the counts."""
    for body in bodies:
        with suppress(InvalidBody):
            found[encoding.head(body)] += 1


def most_heads(found: Counter[Head]) -> list[tuple[int, tuple[int, ...], int]]:
    """Return heads, each with its count; of many those that are there most often."""
    return [(schema_id, indexes, count) for (schema_id, indexes), count in found.most_common(_MOST_HEADS)]


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
        converts = {name: fitting(kind) for name, kind in self._kinds.items()}
        read = self._encoding.reader()
        for batch in batches:
            begin, count, rows = 0, 0, []
            for at in range(batch.num_rows):
                row, values = self._row(batch.column(BODY)[at].as_py(), read, converts)
                rows.append(row)
                count += values
                if count > _VALUES_AT_ONCE:
                    yield self._with(batch.slice(begin, len(rows)), rows)
                    begin, count, rows = at + 1, 0, []
            yield self._with(batch.slice(begin, len(rows)), rows)

    def _with(self, batch: pa.RecordBatch, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
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
        if why := self._refused(fields):
            return (why, *([None] * len(converts))), count
        try:
            return (None, *converted(fields, converts)), count
        except NoRow as misfits:
            return (str(misfits), *([None] * len(converts))), count

    def _refused(self, fields: Mapping[str, Any]) -> str:
        """Why a row would lose a field; "" if it loses none."""
        for name, value in fields.items():
            if name not in self._kinds and value is not None:
                if other := self._by_lower.get(name.lower()):
                    return f"the field {name} and the column {other} are one to most readers; rename one of them"
                return f"the table has {len(self._kinds):,} columns, and {name} is none of them"
        return ""
