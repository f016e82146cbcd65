"""`spark.read.format("rocketmq")`: the data source as Spark finds it.

Spark makes one in a process of its own for each question it has (what is the schema, how is it read, how is it
written), and asks through methods whose names are Spark's.

A table made by `CREATE TABLE t USING rocketmq OPTIONS (...)` needs a detour: Spark 4.3 gives the options when the
table is made, and never again. But it keeps the schema with everything in it, so the options travel as metadata of the
first column. Keys and tokens do not: metadata is shown with the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import signature
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparrowmq.errors import ConfigError
from sparrowmq.spark import schema as table
from sparrowmq.spark.options import SinkOptions, SourceOptions, StoredOptions, parse, reads_log_files
from sparrowmq.spark.sink import exactly_once
from sparrowmq.spark.sink import writer as sink
from sparrowmq.spark.sink.writer import BatchWriter, StreamWriter
from sparrowmq.spark.source.batch_source import BatchReader, FilteringReader
from sparrowmq.spark.source.log_reader import StoredReader
from sparrowmq.spark.source.stream_source import HAS_LIMITS, StreamReader, UnlimitedStreamReader

TABLE_OPTIONS: Final = "rocketmq.options"
_SECRETS: Final = ("accesskey", "secretkey", "securitytoken", "keypassword")
# Spark 4.1 does not ask: it has timestamps in UTC.
_UTC_ARGUMENTS: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "array<struct<key:string,value:binary>>": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """A schema as Spark hands its rows to Arrow; timestamps are in UTC."""
    return to_arrow_schema(schema, **_UTC_ARGUMENTS)


class RocketMQSource(DataSource):
    """RocketMQ topics as tables to read and to append to."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        columns = table.columns(_source_options(_without_prefix(self.options)))
        fields = [StructField(name, _TYPES[kind]) for name, kind in columns.items()]
        if "provider" in self.options:  # the table is being made in a catalog
            table_options = {
                name: value for name, value in _without_prefix(self.options).items() if not name.endswith(_SECRETS)
            }
            fields[0].metadata = {TABLE_OPTIONS: json.dumps(table_options)}
        return StructType(fields)

    def reader(self, schema: StructType) -> BatchReader | StoredReader:
        options, arrow = self._source_options(schema), arrow_schema(schema)
        if isinstance(options, StoredOptions):
            return StoredReader(options, arrow)
        return (FilteringReader if options.pushdown else BatchReader)(options, arrow)

    def streamReader(self, schema: StructType) -> StreamReader:
        options = self._source_options(schema)
        if isinstance(options, StoredOptions):
            raise ConfigError("stored logs are read by spark.read; a stream needs nameServer, and a broker")
        options.check_stream()
        reader_class = StreamReader if HAS_LIMITS else UnlimitedStreamReader
        return reader_class(options, arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise ConfigError('a topic cannot be overwritten, only appended to; write .mode("append")')
        return BatchWriter(exactly_once.with_write_decider(self._sink_options(schema)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        # In output mode complete (`overwrite`) each batch has the whole result; it is appended, as Kafka's sink does.
        checkpoint = _without_prefix(self.options).get("checkpointlocation")
        return StreamWriter(exactly_once.with_stream_decider(self._sink_options(schema), checkpoint), checkpoint)

    def _source_options(self, schema: StructType) -> SourceOptions | StoredOptions:
        options = _source_options(self._merged_options(schema))
        table.check_columns(_column_types(schema), options)
        return options

    def _sink_options(self, schema: StructType) -> SinkOptions:
        merged = self._merged_options(schema)
        if not merged:
            raise ConfigError(
                "Spark gave no options: for INSERT ... SELECT into a table of the catalog write "
                "INSERT INTO t WITH (nameServer = '...', topic = '...') SELECT ..., or use a CREATE TEMPORARY VIEW"
            )
        options = parse(SinkOptions, merged)
        sink.check_columns(_column_types(schema), options)
        return options

    def _merged_options(self, schema: StructType) -> dict[str, str]:
        table_options = next(
            (field.metadata[TABLE_OPTIONS] for field in schema.fields if TABLE_OPTIONS in field.metadata), "{}"
        )
        options: dict[str, str] = json.loads(table_options)
        return options | _without_prefix(self.options)


def _source_options(options: Mapping[str, str]) -> SourceOptions | StoredOptions:
    return parse(StoredOptions, options) if reads_log_files(options) else parse(SourceOptions, options)


def _without_prefix(options: Mapping[str, str]) -> dict[str, str]:
    """Spark's catalog gives a table's options with a prefix, or both with and without it."""
    return {name.lower().removeprefix("option."): value for name, value in options.items()}


def _column_types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
