"""The pipeline `table`: a topic as a Parquet, Delta or Iceberg table that grows with it.

    topic -> batch of messages -> rows, and errors -> staged files -> the table, its table of errors

    /lake/orders             the table
    /lake/orders.errors      bodies that did not become rows: where they lie, why, the bytes
    /lake/orders.state       checkpoint, what was settled at the first start, files that are being written

Spark repeats a batch with the same messages after a crash, and both tables know their last batch: so each message
becomes one row, or one error, whatever fails in between.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.lake.lake import FORMATS
from sparrowmq.spark.pipelines.running.locked import locked
from sparrowmq.spark.pipelines.running.own_session import own_session
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.span import span_of, told
from sparrowmq.spark.pipelines.running.stream_runs import Stream, is_planned, with_defaults
from sparrowmq.spark.pipelines.tables.begun_table import Settled, begun_at, keep, state_of
from sparrowmq.spark.pipelines.tables.row_shapes import MODES, declared_fields
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter, grown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_PER_BATCH: Final = 500_000
_PREVIEW_ROWS: Final = 1000


def table(
    topic: str,
    to: str | Path,
    *,
    name_server: str,
    format: str = "parquet",
    mode: str = "raw",
    schema: str | None = None,
    once: bool = False,
    every: str = "10 seconds",
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    say: Say | None = None,
    metrics: str | None = None,
) -> Report:
    """Append what a topic has, and gets, to a table; returns when all is read (`once`), or when it is stopped.

    Args:
        to: the table's folder, on a disk that all workers see.
        format: "parquet", "delta" or "iceberg".
        mode: "raw": each message as it is; "json": a column for each field of JSON bodies; "schema": those of `schema`.
        schema: columns as DDL, `id bigint, name string`; for mode schema.
        every: how often it looks for new messages.
        options: of the source, such as `tags` or `maxOffsetsPerTrigger` (500,000 if not given).
        say: gets a line for each batch; stderr if not given.
        metrics: where Prometheus can read how it is doing, `host:port`.
    Raises:
        ConfigError: the arguments do not fit, or are others than those that the table was begun with.
        StreamingQueryException: the query failed; run it again to go on.
    """
    root = Path(os.path.abspath(to))
    settled = Settled(topic, *_checked(format, mode, schema), _declared(mode, schema))
    settled = begun_at(root, settled) or settled
    source = _source(topic, name_server, settled, options)
    writer = TableWriter(root, settled, say or to_stderr)
    with locked(state_of(root)), writer.report.told_at(metrics, f"table {topic}"):
        _stream(writer, source, own_session(spark)).run(writer.report, once=once, every=every)
    return writer.report


def _stream(writer: TableWriter, source: Mapping[str, str], spark: SparkSession) -> Stream:
    root, settled = writer.root, writer.settled
    checkpoint = state_of(root) / "checkpoint"
    writer.check(checkpoint)
    given = with_defaults(source, _ROWS_PER_BATCH)
    if not is_planned(checkpoint):
        given = _begin(settled, given)
    # Not before brokers have answered: a topic's name with a slip in it would keep the folder.
    keep(state_of(root), settled)
    return Stream(spark, given, writer.write, str(checkpoint))


def preview(
    topic: str,
    to: str | Path,
    *,
    name_server: str,
    format: str = "parquet",
    mode: str = "raw",
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> str:
    """What `table` would do, in words; nothing is written. Takes the arguments of `table`, and raises likewise."""
    settled = Settled(topic, *_checked(format, mode, schema), _declared(mode, schema))
    begun = begun_at(Path(os.path.abspath(to)), settled)
    settled = begun or settled
    spark = own_session(spark)
    source = _source(topic, name_server, settled, options)
    messages = spark.read.format("rocketmq").options(**source).load().limit(_PREVIEW_ROWS).cache()
    settled.fields = grown(settled, messages)
    good, bad = settled.shape().split(messages)
    errors = bad.count() if bad is not None else 0
    columns = "\n".join(f"  {column.name}: {column.dataType.simpleString()}" for column in good.schema.fields)
    return (
        f"{'goes on with' if begun else 'begins'} a {format} table at {to}, mode {mode}; columns:\n{columns}\n"
        f"of {messages.count():,} messages looked at, {errors:,} would become errors; nothing was written"
    )


def _checked(format: str, mode: str, schema: str | None) -> tuple[str, str, str | None]:
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is not known; write {', '.join(FORMATS)}")
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is not known; write {', '.join(MODES)}")
    if (mode == "schema") != (schema is not None):
        raise ConfigError("a schema, as `id bigint, name string`, goes with mode schema, and only with that")
    return format, mode, schema


def _declared(mode: str, schema: str | None) -> dict[str, str]:
    return declared_fields(schema) if mode == "schema" and schema is not None else {}


def _begin(settled: Settled, given: dict[str, str]) -> dict[str, str]:
    """The options with the place where the table begins, which is settled: what lies before may be added from logs."""
    span = span_of(given)
    settled.begin = told(span.start)
    places = span.of(given)
    del places["endingOffsets"]
    return places


def _source(
    topic: str, name_server: str, settled: Settled, options: Mapping[str, str] | None
) -> dict[str, str]:
    columns = ",".join(settled.shape().columns)
    given = {**(options or {}), "nameServer": name_server, "topic": topic, "columns": columns}
    parse(SourceOptions, given).check_stream()
    return given
