"""Messages as rows of a table, as Arrow batches: what the modes of `row_shapes.py` do, without Spark's engine.

    raw        _mq, _day, keys, tags, properties, body
    others     _mq, _day, and the columns of the bodies
    errors     _mq, _day, reason, body

The rows and their types are those of the pipeline `table`, so that either may go on with a table of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, DateType, StringType, StructField, StructType

from sparrowmq.spark.lakehouse.keyed_batch import DELETED
from sparrowmq.spark.lakehouse.tombstones import Tombstones
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Partitioning
from sparrowmq.spark.pipelines.tables.body_reader import BODY, BodyReader, Reader
from sparrowmq.spark.pipelines.tables.encoded_bodies import EncodedReader, Encoding
from sparrowmq.spark.pipelines.tables.partition_types import Placeable
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, OWN, REASON, Objects, Raw, added_columns
from sparrowmq.spark.source_and_sink import RocketMQSource, arrow_schema

_WHERE: Final = tuple(name for name in Objects.columns if name != BODY)
_STORED: Final = "storeTimestamp"


class Split(NamedTuple):
    """The rows of some messages, and those that became errors."""

    rows: pa.RecordBatch
    errors: pa.RecordBatch


@dataclass
class ArrowRows:
    """Makes the rows of one table.

    Attributes:
        mode: of the table. kinds: the columns of bodies, by name. depth: of objects and lists within columns.
        encoding: the schemas of Avro and Protobuf bodies, as far as they are known.
        key, deletes: as `Settled` has them.
        partitioning: of the table.
    """

    mode: str
    kinds: Mapping[str, DataType] = field(default_factory=dict)
    depth: int = 0
    encoding: Encoding | None = None
    key: str | None = None
    deletes: str | None = None
    partitioning: Partitioning = BY_DAY

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs from the source."""
        if self.key is not None:
            return (*_WHERE, "keys", "properties", BODY)
        return Raw.columns if self.mode == "raw" else Objects.columns

    @cached_property
    def source_schema(self) -> pa.Schema:
        """The schema of these columns, as the source makes them."""
        return arrow_schema(StructType(self._fields))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the table."""
        if self.mode == "raw":
            return arrow_schema(StructType([*self._own, *self._fields[len(_WHERE) :]]))
        return arrow_schema(StructType([*self._own, *(StructField(name, kind) for name, kind in self.kinds.items())]))

    @cached_property
    def staged_schema(self) -> pa.Schema:
        """The schema of the rows that workers write; rows of a key say whether they delete it."""
        return self.schema if self.key is None else self.schema.append(pa.field(DELETED, pa.bool_()))

    @cached_property
    def error_schema(self) -> pa.Schema:
        """The schema of the table of errors."""
        return arrow_schema(
            StructType([*self._own, StructField(REASON, StringType()), StructField(BODY, BinaryType())])
        )

    def split(self, messages: pa.RecordBatch) -> Split:
        """Return the rows of messages, in their order; raw messages become no errors."""
        own = [self._coordinates(messages), pc.cast(messages.column(_STORED), pa.date32())]
        if self.mode == "raw":
            rows = [*own, *(messages.column(name) for name in Raw.columns[len(_WHERE) :])]
            return Split(pa.RecordBatch.from_arrays(rows, schema=self.schema), self._no_errors)
        reason, *values = self._read(messages)
        if self.key is not None:
            reason, values = Tombstones(self.key, self.deletes, self.kinds).marked(messages, reason, values)
        is_good = pc.is_null(reason)
        rows = pa.RecordBatch.from_arrays([*own, *values], schema=self.staged_schema)
        if not len(is_good) or pc.all(is_good).as_py():
            return Split(rows, self._no_errors)
        errors = pa.RecordBatch.from_arrays([*own, reason, messages.column(BODY)], schema=self.error_schema)
        return Split(rows.filter(is_good), errors.filter(pc.invert(is_good)))

    def _read(self, messages: pa.RecordBatch) -> list[pa.Array]:
        """The reasons, and the columns of the bodies."""
        bodies = pa.RecordBatch.from_arrays([messages.column(BODY)], names=[BODY])
        read = list(self._reader([bodies]))  # several, if the bodies have very many values
        return [pa.concat_arrays([each.column(at) for each in read]) for at in range(1, read[0].num_columns)]

    @cached_property
    def _reader(self) -> Reader:
        added = list(arrow_schema(added_columns(self.kinds.values())))
        own, is_closed = (*OWN, *self.partitioning.derived), self.mode == "schema"
        read: Reader = (
            EncodedReader(self.encoding, self.kinds, added, own)
            if self.encoding is not None
            else BodyReader(self.kinds, added, own, is_closed=is_closed, depth=self.depth, key=self.key)
        )
        return Placeable(read, self.partitioning, list(self.kinds))

    @cached_property
    def _fields(self) -> list[StructField]:
        asked = {"nameServer": "127.0.0.1:9", "topic": "t", "columns": ",".join(self.columns)}
        return list(RocketMQSource(asked).schema().fields)

    @property
    def _own(self) -> list[StructField]:
        where = StructType(self._fields[: len(_WHERE)])
        return [StructField(COORDINATES, where, nullable=False), StructField(DAY, DateType())]

    @cached_property
    def _no_errors(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.error_schema)

    def _coordinates(self, messages: pa.RecordBatch) -> pa.Array:
        kind = self.schema.field(COORDINATES).type
        return pa.StructArray.from_arrays([messages.column(name) for name in _WHERE], fields=list(kind))
