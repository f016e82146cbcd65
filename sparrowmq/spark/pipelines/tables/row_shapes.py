"""The modes of a table: messages become rows.

    raw      _mq, _day, keys, tags, properties, body: each message as it is
    json     _mq, _day, and a column for each field of the objects in the bodies; columns are added and get wider
    schema   _mq, _day, and the columns that the user named, taken from the objects in the bodies
    avro     _mq, _day, and the columns of the schemas of Avro bodies; `encoded_shape.py` has this shape
    protobuf the same for Protobuf bodies
    whole    _day, and the source's own columns: what an archive has

`_mq` says where a row comes from. `_day`, of the store time in UTC, is what tables are divided by if nothing else is
chosen. A body that does not become a row becomes a row of the table of errors: its place, the reason, and the
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructField, StructType

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Partitioning
from sparrowmq.spark.pipelines.tables.ddl import ddl_of, type_of, types_of
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, BodyReader, Reader
from sparrowmq.spark.pipelines.tables.json_values import converter
from sparrowmq.spark.pipelines.tables.partition_columns import PartitionCheck
from sparrowmq.spark.schema import COLUMNS, INTERNAL
from sparrowmq.spark.source_and_sink import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparrowmq.protocol.messages.message import MessageQueue

COORDINATES: Final = "_mq"
MODES: Final = ("raw", "json", "schema", "avro", "protobuf", "whole")

OWN_COLUMNS: Final = (COORDINATES, DAY)
_COORDINATE_COLUMNS: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "bornTimestamp",
    "storeTimestamp",
)
REASON: Final = "reason"
_FIELD_PREFIX: Final = "field_"  # then a number: a body's own names may be anything


class Shape(Protocol):
    """The rows of one mode."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read from the source."""

    def split(self, messages: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Return the rows of the table, and of the table of errors if the mode has one."""


class RawMessages:
    """Each message as it is."""

    columns: Final = (*_COORDINATE_COLUMNS, "keys", "tags", "properties", "body")

    def split(self, messages: DataFrame) -> tuple[DataFrame, None]:
        return messages.select(*_origin_columns(), "keys", "tags", "properties", "body"), None


class WholeMessages:
    """Each message with all columns of the source."""

    columns: Final = tuple(name for name in COLUMNS if name not in INTERNAL)

    def split(self, messages: DataFrame) -> tuple[DataFrame, None]:
        return messages.select(*self.columns, f.to_date("storeTimestamp").alias(DAY)), None


class Objects:
    """Bodies that are JSON objects, with a column for each of `fields`: names and Spark types, as DDL has them.

    With `is_closed`, fields without a column are left out; otherwise they are an error. `depth` is that of objects and
    lists within columns.
    """

    columns: Final = (*_COORDINATE_COLUMNS, BODY)

    def __init__(
        self, fields: Mapping[str, str], *, is_closed: bool, depth: int = 0, partitioning: Partitioning = BY_DAY
    ) -> None:
        self.fields = dict(fields)
        self.partitioning = partitioning
        self.is_closed = is_closed
        self.depth = depth

    def split(self, messages: DataFrame) -> tuple[DataFrame, DataFrame]:
        rows = self.rows(messages)
        return self.table_rows(rows), self.error_rows(rows)

    def rows(self, messages: DataFrame) -> DataFrame:
        """Return each message with the columns of its body, or with the reason why it is no row."""
        bodies = messages.select(*_origin_columns(), BODY)
        added = reader_columns(types_of(self.fields).values())
        return bodies.mapInArrow(self.body_reader(), StructType([*bodies.schema.fields, *added.fields]))

    def body_reader(self) -> Reader:
        """Return a function for Arrow batches that adds the reason and the columns of each body."""
        kinds = types_of(self.fields)
        read = self.reader(kinds, list(arrow_schema(reader_columns(kinds.values()))))
        return PartitionCheck(read, self.partitioning, list(self.fields))

    def reader(self, kinds: Mapping[str, DataType], added: Sequence[pa.Field]) -> Reader:
        """Return the same without the check of partitions."""
        own = (*OWN_COLUMNS, *self.partitioning.derived_names)
        return BodyReader(kinds, added, own, is_closed=self.is_closed, depth=self.depth)

    def table_rows(self, rows: DataFrame) -> DataFrame:
        values = [f.col(f"{_FIELD_PREFIX}{index}").alias(name) for index, name in enumerate(self.fields)]
        return rows.where(f.col(REASON).isNull()).select(*OWN_COLUMNS, *values)

    def error_rows(self, rows: DataFrame) -> DataFrame:
        return rows.where(f.col(REASON).isNotNull()).select(*OWN_COLUMNS, f.col(REASON).alias("reason"), "body")


def reader_columns(kinds: Iterable[DataType]) -> StructType:
    """Return the columns that a reader adds to bodies: the reason why there is no row, and the values."""
    columns = [StructField(f"{_FIELD_PREFIX}{index}", kind) for index, kind in enumerate(kinds)]
    return StructType([StructField(REASON, StringType()), *columns])


def quoted_column(name: str) -> Column:
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")


def arrow_types(fields: Mapping[str, str]) -> dict[str, pa.DataType]:
    """Return the types of columns in files."""
    schema = arrow_schema(StructType([StructField(name, type_of(ddl)) for name, ddl in fields.items()]))
    return {field.name: field.type for field in schema}


def parse_fields(ddl: str, spark: SparkSession) -> dict[str, str]:
    """The columns of a schema that a user wrote, as `id bigint, name string`; `spark` reads it. Raises: ConfigError."""
    del spark  # it is active while it exists
    try:
        declared = DataType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"{ddl!r} is no schema ({error}); write it as `id bigint, name string`") from None
    if not isinstance(declared, StructType) or not declared.fields:
        raise ConfigError(f"{ddl!r} names no columns; write it as `id bigint, name string`")
    check_names(ddl, [field.name for field in declared.fields])
    for field in declared.fields:
        converter(field.dataType)
    return {field.name: ddl_of(field.dataType) for field in declared.fields}


def check_names(ddl: str, names: Iterable[str]) -> None:
    """Raises: ConfigError, a column's name is repeated, or is one of the table's own."""
    used_names = {name.lower(): f"{name}, which the table has itself" for name in OWN_COLUMNS}
    for name in names:
        if name.lower() in used_names:
            raise ConfigError(f"{ddl!r} names the column {name} beside {used_names[name.lower()]}; rename one of them")
        used_names[name.lower()] = name


def _origin_columns() -> list[Column]:
    return [f.struct(*_COORDINATE_COLUMNS).alias(COORDINATES), f.to_date("storeTimestamp").alias(DAY)]


def rows_after(offsets: Mapping[MessageQueue, int], rows: DataFrame) -> DataFrame:
    """Return the rows from these offsets on; all rows of other queues."""
    prefix = f"{COORDINATES}." if COORDINATES in rows.columns else ""
    queue_columns = (f.col(f"{prefix}{name}").cast("string") for name in ("topic", "brokerName", "queueId"))
    names = ((f"{queue.topic}/{queue.broker_name}/{queue.queue_id}", end) for queue, end in offsets.items())
    limits = f.create_map(*(f.lit(value) for pair in names for value in pair))
    return rows.where(f.col(f"{prefix}queueOffset") >= f.coalesce(limits[f.concat_ws("/", *queue_columns)], f.lit(0)))
