"""The pipeline `table`: a topic as a Parquet, Delta or Iceberg table that grows with it.

    topic -> batch of messages -> rows, and errors -> staged files -> the table, its table of errors

    /lake/orders             the table
    /lake/orders.errors      bodies that did not become rows: the place, the reason, the bytes
    /lake/orders.state       checkpoint, what was settled at the first start, files that are being written

Spark repeats a batch with the same messages after a crash, and both tables know their last batch. So each message
becomes one row, or one error, even after a failure. The commits of both tables also say which offsets they have, so a
start finds its place with a lost or an older state, too (`progress.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions, parse, past_damage
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, root_of
from sparrowmq.spark.pipelines.lake.lake import FORMATS
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Partitioning
from sparrowmq.spark.pipelines.running.checkpoint_files import is_planned
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Streaming, with_defaults
from sparrowmq.spark.pipelines.running.span import first_span, newest_ms, offsets_by_topic, onward_from
from sparrowmq.spark.pipelines.tables.ddl import types_of
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED, EncodedBodies, described
from sparrowmq.spark.pipelines.tables.error_retry import finish_retry
from sparrowmq.spark.pipelines.tables.json_bodies import ANY, MOST_DEPTH, WIDEN
from sparrowmq.spark.pipelines.tables.partition_columns import demand_partition_columns, demand_partition_types
from sparrowmq.spark.pipelines.tables.row_shapes import MODES, Shape, declared_fields
from sparrowmq.spark.pipelines.tables.table_settings import Settled, begun_at, held, keep, state_of
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter, grown
from sparrowmq.spark.source.partition_ranges import from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    registry: str | None = None,
    schema_file: str | Path | None = None,
    message: str | None = None,
    partition: str = str(BY_DAY),
    type_changes: str = WIDEN,
    state: str | Path | None = None,
    catalog: Catalog | None = None,
    **running: Unpack[Streaming],
) -> Report:
    """Append what a topic has, and gets, to a table; returns when all is read (`once`), or when it is stopped.

    Args:
        to: the table's folder, on a disk that all workers see; or its address, such as `s3://bucket/orders`.
        state: a folder for the progress; needed for an address, else beside the table by default.
        catalog: for Iceberg; by default one in the state.
        format: "parquet", "delta" or "iceberg".
        mode: "raw": each message as it is; "json": a column for each field of JSON bodies; "schema": those of `schema`.
            "avro", "protobuf": a column for each field of the schemas.
        schema: columns as DDL, `id bigint, name string`; for mode schema.
        partition: fields and transforms by which the table is divided, as `country, bucket(16, id)`, or "none".
        type_changes: of mode json: "widen" lets numbers become wider numbers, and "any" also text.
        registry: address of the registry with the schemas of Avro or Protobuf bodies.
        schema_file: instead, their only schema: .avsc, .proto or .desc. message: of a Protobuf file with several.
        running: as `Streaming` has them; `options` are those of the source, such as `tags` or `maxOffsetsPerTrigger`
            (500,000 by default), and `dry_run` says what `preview` returns.
    Raises:
        ConfigError: the arguments do not fit, or are others than those that the table was begun with.
        StreamingQueryException: the query failed; run it again to go on.
    """
    runner, root = Runner(**running), root_of(to, state, catalog)
    bodies = described(mode, registry, schema_file, message)
    asked = _asked(topic, format, mode, schema, runner, bodies, partition, type_changes).at(root)
    if runner.dry_run:
        runner.say(_preview(asked, root, name_server, runner))
        return runner.report
    settled = begun_at(root, asked) or asked
    source = _source(name_server, settled, runner.options)
    kept = state_of(root)
    with held(root, runner, f"table {topic}"):
        finish_retry(root, settled)
        writer = TableWriter(root, settled, runner.report)
        given = with_defaults(source, _ROWS_PER_BATCH)
        place = writer.resume(kept / "checkpoint", runner.say)
        if place is not None:
            given = onward_from(from_json(place), given)
        elif not is_planned(kept / "checkpoint"):
            given = _begin(settled, given)
        # Not before brokers have answered: a topic's name with a slip in it would keep the folder.
        keep(kept, settled)
        runner.stream(given, writer.write, str(kept / "checkpoint"), writer.may_plan_again)
    return runner.report


def preview(
    topic: str,
    to: str | Path,
    *,
    name_server: str,
    format: str = "parquet",
    mode: str = "raw",
    schema: str | None = None,
    registry: str | None = None,
    schema_file: str | Path | None = None,
    message: str | None = None,
    partition: str = str(BY_DAY),
    type_changes: str = WIDEN,
    state: str | Path | None = None,
    catalog: Catalog | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> str:
    """Describe what `table` would do, and write nothing. Takes the arguments of `table`, and raises likewise."""
    runner = Runner(options, spark=spark)
    root = root_of(to, state, catalog)
    bodies = described(mode, registry, schema_file, message)
    asked = _asked(topic, format, mode, schema, runner, bodies, partition, type_changes).at(root)
    return _preview(asked, root, name_server, runner)


def _preview(asked: Settled, root: Path | Address, name_server: str, runner: Runner) -> str:
    begun = begun_at(root, asked)
    settled = begun or asked
    source = _source(name_server, settled, runner.options)
    messages = runner.session.read.format("rocketmq").options(**source).load()
    messages = messages.limit(_PREVIEW_ROWS).cache()
    good, bad = _shape(settled, messages).split(messages)
    errors = bad.count() if bad is not None else 0
    columns = "\n".join(f"  {column.name}: {column.dataType.simpleString()}" for column in good.schema.fields)
    return (
        f"{'goes on with' if begun else 'begins'} a {settled.format} table at {root}, mode {settled.mode}, "
        f"partition {settled.partition}; columns:\n{columns}\n"
        f"of {counted(messages.count(), 'message')} looked at, {errors:,} would become errors; nothing was written"
    )


def _shape(settled: Settled, messages: DataFrame) -> Shape:
    if settled.mode in ENCODED:
        return EncodedBodies(settled, None).shape(messages, 0)
    settled.fields = grown(settled, messages)
    return settled.shape()


def _asked(
    topic: str,
    format: str,
    mode: str,
    schema: str | None,
    runner: Runner,
    bodies: dict[str, Any] | None,
    partition: str,
    type_changes: str,
) -> Settled:
    """The table that the arguments ask for. Raises: ConfigError."""
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is not known; write {', '.join(FORMATS)}")
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is not known; write {', '.join(MODES)}")
    if type_changes not in (WIDEN, ANY):
        raise ConfigError(f"type_changes {type_changes!r} is not known; write {WIDEN} or {ANY}")
    if (mode == "schema") != (schema is not None):
        raise ConfigError("a schema, as `id bigint, name string`, goes with mode schema, and only with that")
    by = Partitioning.parse(partition)
    demand_partition_columns(by, mode, None)  # before Spark is started
    fields = {} if schema is None else declared_fields(schema, runner.session)
    demand_partition_columns(by, mode, fields if mode == "schema" else None)
    demand_partition_types(by, types_of(fields))
    depth = MOST_DEPTH if mode == "json" else 0
    found = Settled(topic, format, mode, schema, fields, bodies=bodies, depth=depth, partition=str(by))
    return replace(found, type_changes=type_changes)


def _begin(settled: Settled, given: dict[str, str]) -> dict[str, str]:
    """Fix the begin of the table, and return options with it: earlier messages may be added from logs."""
    span = first_span(given, settled.begin)
    settled.newest_ms = newest_ms(given, span.start)
    settled.begin = offsets_by_topic(span.start)
    return span.onward(given)


def _source(name_server: str, settled: Settled, options: Mapping[str, str] | None) -> dict[str, str]:
    columns = ",".join(settled.shape().columns)
    given = {**(options or {}), "nameServer": name_server, "topic": settled.topic, "columns": columns}
    if settled.mode != "whole":  # an archive replaces the topic, so there each body counts
        given = past_damage(given)
    parse(SourceOptions, given).check_stream()
    return given
