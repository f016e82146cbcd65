"""The pipeline `table`: a topic as a Parquet, Delta or Iceberg table that grows with it.

    topic -> batch of messages -> rows, and errors -> staged files -> the table, its table of errors

    /lake/orders             the table
    /lake/orders.errors      bodies that did not become rows: the place, the reason, the bytes
    /lake/orders.state       checkpoint, what was settled at the first start, files that are being written

Spark repeats a batch with the same messages after a crash, and both tables know their last batch. So each message
becomes one row, or one error, even after a failure. The commits of both tables also say which offsets they have, so a
start finds its place with a lost or an older state, too (`progress.py`).

Three more pipelines work on such a table. `backfill` adds what its topic had before, from stored logs: only messages
from before the table began, so each is in it once. Later ones can have smaller offsets if the topic was made again:
their times show them. `log_parts.py` notes which files a table has.

`redrive` tries the errors again after the columns have become wider (`tables/error_retry.py`). `compact` merges small
files of days that are over, and removes days that are too old. Neither of the two starts Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.settings.setting_kinds import size
from sparrowmq.spark.options import SourceOptions, null_bad_records, parse
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, table_root
from sparrowmq.spark.pipelines.lake.lake import FILE_BYTES, FORMATS, Lake, TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Partitioning
from sparrowmq.spark.pipelines.running.checkpoint_files import is_planned
from sparrowmq.spark.pipelines.running.folders import local_path
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.runner import Runner, Running, Streaming, with_defaults
from sparrowmq.spark.pipelines.running.span import first_span, newest_ms, offsets_by_topic, stream_options_from
from sparrowmq.spark.pipelines.tables.ddl import types_of
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED_MODES, EncodedBodies, body_settings
from sparrowmq.spark.pipelines.tables.error_retry import Retry, finish_retry
from sparrowmq.spark.pipelines.tables.json_bodies import ANY, MAX_DEPTH, WIDEN
from sparrowmq.spark.pipelines.tables.log_parts import LogParts, end_by_batches, log_reader
from sparrowmq.spark.pipelines.tables.partition_columns import check_partition_columns, check_partition_types
from sparrowmq.spark.pipelines.tables.row_shapes import MODES, Shape, parse_fields
from sparrowmq.spark.pipelines.tables.table_settings import (
    TableSettings,
    check_no_key,
    load_checked_settings,
    load_settings,
    locate_table,
    lock_table,
    save_settings,
    state_folder,
)
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter, grow_fields
from sparrowmq.spark.source.log_files import log_files, written_spans
from sparrowmq.spark.source.partition_ranges import from_json

_ROWS_PER_BATCH: Final = 500_000
_PREVIEW_ROWS: Final = 1000
_BACKFILL_LANE: Final = "-stored"
_MAX_REASONS: Final = 10  # reasons
FILE_SIZE: Final = size(64 << 20, 512 << 20)


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
    runner, root = Runner(**running), table_root(to, state, catalog)
    bodies = body_settings(mode, registry, schema_file, message)
    requested = _requested_settings(topic, format, mode, schema, runner, bodies, partition, type_changes).at_root(root)
    if runner.dry_run:
        runner.say(_preview(requested, root, name_server, runner))
        return runner.report
    settings = load_checked_settings(root, requested) or requested
    source = _source_options(name_server, settings, runner.options)
    folder = state_folder(root)
    with lock_table(root, runner, f"table {topic}"):
        finish_retry(root, settings)
        writer = TableWriter(root, settings, runner.report)
        stream_options = with_defaults(source, _ROWS_PER_BATCH)
        resumed = writer.resume(folder / "checkpoint", runner.say)
        if resumed is not None:
            stream_options = stream_options_from(from_json(resumed), stream_options)
        elif not is_planned(folder / "checkpoint"):
            stream_options = _fix_begin(settings, stream_options)
        # Not before brokers have answered: a topic's name with a slip in it would keep the folder.
        save_settings(folder, settings)
        runner.stream(stream_options, writer.write, str(folder / "checkpoint"), writer.may_plan_again)
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
    root = table_root(to, state, catalog)
    bodies = body_settings(mode, registry, schema_file, message)
    requested = _requested_settings(topic, format, mode, schema, runner, bodies, partition, type_changes).at_root(root)
    return _preview(requested, root, name_server, runner)


def _preview(requested: TableSettings, root: Path | Address, name_server: str, runner: Runner) -> str:
    existing = load_checked_settings(root, requested)
    settings = existing or requested
    source = _source_options(name_server, settings, runner.options)
    messages = runner.session.read.format("rocketmq").options(**source).load()
    messages = messages.limit(_PREVIEW_ROWS).cache()
    rows, error_rows = _preview_shape(settings, messages).split(messages)
    errors = error_rows.count() if error_rows is not None else 0
    columns = "\n".join(f"  {column.name}: {column.dataType.simpleString()}" for column in rows.schema.fields)
    return (
        f"{'goes on with' if existing else 'begins'} a {settings.format} table at {root}, mode {settings.mode}, "
        f"partition {settings.partition}; columns:\n{columns}\n"
        f"of {counted(messages.count(), 'message')} looked at, {errors:,} would become errors; nothing was written"
    )


def _preview_shape(settings: TableSettings, messages: DataFrame) -> Shape:
    if settings.mode in ENCODED_MODES:
        return EncodedBodies(settings, None).shape(messages, 0)
    settings.fields = grow_fields(settings, messages)
    return settings.shape()


def _requested_settings(
    topic: str,
    format: str,
    mode: str,
    schema: str | None,
    runner: Runner,
    bodies: dict[str, Any] | None,
    partition: str,
    type_changes: str,
) -> TableSettings:
    """The table that the arguments ask for. Raises: ConfigError."""
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is not known; write {', '.join(FORMATS)}")
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is not known; write {', '.join(MODES)}")
    if type_changes not in (WIDEN, ANY):
        raise ConfigError(f"type_changes {type_changes!r} is not known; write {WIDEN} or {ANY}")
    if (mode == "schema") != (schema is not None):
        raise ConfigError("a schema, as `id bigint, name string`, goes with mode schema, and only with that")
    partitioning = Partitioning.parse(partition)
    check_partition_columns(partitioning, mode, None)  # before Spark is started
    fields = {} if schema is None else parse_fields(schema, runner.session)
    check_partition_columns(partitioning, mode, fields if mode == "schema" else None)
    check_partition_types(partitioning, types_of(fields))
    depth = MAX_DEPTH if mode == "json" else 0
    requested = TableSettings(
        topic, format, mode, schema, fields, bodies=bodies, depth=depth, partition=str(partitioning)
    )
    return replace(requested, type_changes=type_changes)


def _fix_begin(settings: TableSettings, options: dict[str, str]) -> dict[str, str]:
    """Fix the begin of the table, and return options with it: earlier messages may be added from logs."""
    span = first_span(options, settings.begin)
    settings.newest_ms = newest_ms(options, span.start)
    settings.begin = offsets_by_topic(span.start)
    return span.stream_options(options)


def _source_options(name_server: str, settings: TableSettings, options: Mapping[str, str] | None) -> dict[str, str]:
    columns = ",".join(settings.shape().columns)
    source_options = {**(options or {}), "nameServer": name_server, "topic": settings.topic, "columns": columns}
    if settings.mode != "whole":  # an archive replaces the topic, so there each body counts
        source_options = null_bad_records(source_options)
    parse(SourceOptions, source_options).check_stream()
    return source_options


def backfill(
    table: str | Path,
    store: str | Path,
    *,
    broker: str | None = None,
    state: str | Path | None = None,
    catalog_options: Mapping[str, str] | None = None,
    **running: Unpack[Running],
) -> Report:
    """Add to a table, in its own mode, what a stored log has from before it began.

    Args:
        table: its folder; `table` has begun it.
        store: a store, its folder commitlog, or one file of that; it may be a copy.
        broker: whose store it is; needed if the topic has several.
        state: the folder of the progress, if the table is at an address. catalog_options: of its catalog.
    Raises:
        ConfigError: the table is none, was never begun from brokers, or has several brokers. BadStore: no log files.
    """
    runner, root = Runner(**running), locate_table(table, state, catalog_options)
    settings = load_settings(root)
    if settings is None or settings.begin is None:
        raise ConfigError(f"{root} was not begun by the pipeline `table`; run that first, with --once")
    check_no_key(root, settings, "a backfill")
    broker = broker or _only_broker(settings.begin[settings.topic])
    files = log_files(str(store))
    if runner.dry_run:
        runner.say(f"looks for messages of {settings.topic} in {len(files)} log files")
        return runner.report
    with lock_table(root, runner), runner.timed():
        finish_retry(root, settings)
        parts_before = end_by_batches(TableWriter(root, settings, runner.report, _BACKFILL_LANE), files)
        if parts_before and len(settings.begin[settings.topic]) > 1:
            raise ConfigError(
                f"an earlier release has added stored logs to {root}, and did not note of which broker; "
                "to add those of all brokers make a new table, in another folder"
            )
        read = log_reader(runner.session, settings, broker, runner.options or {})
        LogParts(state_folder(root) / f"stored-{broker}.json", runner, parts_before).add(
            list(written_spans(files)),
            TableWriter(root, settings, runner.report, f"{_BACKFILL_LANE}-{broker}"),
            lambda file, more: _older_rows(read(file, more), settings, broker),
        )
    runner.report.offsets = settings.begin
    return runner.report


def _older_rows(rows: DataFrame, settings: TableSettings, broker: str) -> DataFrame:
    assert settings.begin is not None
    begin = settings.begin[settings.topic].get(broker)
    if begin is None:
        brokers = ", ".join(sorted(settings.begin[settings.topic]))
        raise ConfigError(f"topic {settings.topic} has no queues at broker {broker}; there are {brokers}")
    limit = f.create_map(*(f.lit(value) for queue, offset in begin.items() for value in (int(queue), offset)))
    is_earlier = f.col("queueOffset") < f.coalesce(limit[f.col("queueId")], f.lit(0))
    newest_ms = (settings.newest_ms or {}).get(broker)
    if newest_ms is not None:
        is_earlier &= f.col("storeTimestamp") <= f.timestamp_millis(f.lit(newest_ms))
    return rows.where(is_earlier)


def _only_broker(brokers: Mapping[str, object]) -> str:
    if len(brokers) != 1:
        raise ConfigError(f"name the broker of the store (broker), one of {', '.join(sorted(brokers))}")
    return next(iter(brokers))


def redrive(table: str | Path, *, dry_run: bool = False, say: Say = to_stderr) -> Report:
    """Try the errors of a table again; those that fit the columns become rows, once, and leave the errors.

    In mode `json` the columns become wider first, as `table` does it. A dry run says how many would fit, and the
    reasons of the others.

    Returns how many errors were tried (`read`), became rows (`written`) and stay (`errors`).
    Raises: ConfigError, there is no table, it has no errors by its mode, or another run is at work.
    """
    root = local_path(table)
    settings = load_settings(root)
    if settings is None:
        raise ConfigError(f"{root} is no table; the pipeline `table` makes them")
    if settings.address is not None:
        raise ConfigError(f"{root} is a table behind an address or in a catalog, whose errors are not tried again")
    runner = Runner(dry_run=dry_run, say=say)
    report = runner.report
    with runner.timed():
        if dry_run:
            result = Retry(root, settings, is_read_only=True).count_fitting()
            say(f"{result.fitting:,} errors would become rows, {result.remaining:,} would stay")
        else:
            with lock_table(root, runner):
                result = Retry(root, settings).run()
            report.written, report.errors = result.fitting, result.remaining
            say(f"{result.fitting:,} errors became rows, {result.remaining:,} stay")
    report.add_read(result.fitting + result.remaining)
    for line in _reason_lines(result.reasons):
        say(line)
    return report


def _reason_lines(reasons: Counter[str]) -> list[str]:
    lines = [f"  {count:,}: {reason}" for reason, count in reasons.most_common(_MAX_REASONS)]
    if len(reasons) > _MAX_REASONS:
        lines.append(f"  and {len(reasons) - _MAX_REASONS:,} other reasons")
    return lines


def today() -> date:
    """In UTC, as tables have days."""
    return datetime.now(UTC).date()


def compact(
    table: str | Path,
    *,
    keep_days: int | None = None,
    all_days: bool = False,
    dry_run: bool = False,
    say: Say = to_stderr,
    file_size: int | str = FILE_BYTES,
    day: Callable[[], date] = today,
    state: str | Path | None = None,
    catalog_options: Mapping[str, str] | None = None,
) -> Report:
    """Put together the small files of a table and of its table of errors; `read` and `written` count files.

    Args:
        keep_days: take out days that are older than so many.
        all_days: also today, to which files are still added.
        file_size: about the size of new files, in bytes or as "256MiB".
        state: the folder of the progress, if the table is at an address. catalog_options: of its catalog.
    Raises: ConfigError, there is no table, or it is being written.
    """
    if keep_days is not None and keep_days < 1:
        raise ConfigError(f"keep_days={keep_days} would leave nothing; give 1 or more")
    file_bytes = _parse_file_size(file_size)
    root = locate_table(table, state, catalog_options)
    settings = load_settings(root)
    if settings is None:
        raise ConfigError(f"{root} is no table; the pipeline `table` makes them")
    can_merge = isinstance(root, Path) or settings.format == "delta"
    if not can_merge and keep_days is None:
        raise ConfigError(
            f"{root}: behind an address only files of Delta tables are merged; give keep_days to remove old "
            "days, and let an engine that knows the table's catalog merge files"
        )
    if keep_days is not None:
        settings.partitioning.period_start(day())
    before = day() + timedelta(days=1) if all_days else day()
    oldest = None if keep_days is None else day() - timedelta(days=min(keep_days, day().toordinal() - 1))
    runner = Runner(dry_run=dry_run, say=say)
    report = runner.report
    with runner.timed(), nullcontext() if dry_run else lock_table(root, runner):
        if not dry_run:
            finish_retry(root, settings)
        for path, lake in _existing_tables(root, settings, is_read_only=dry_run, file_bytes=file_bytes):
            if dry_run:
                say(f"{path}: {counted(len(lake.paths()), 'file')}")
                continue
            if oldest is not None:
                say(f"{path}: {lake.expire(oldest):,} days before {oldest} are removed")
            report.add_read(len(lake.paths()))
            if can_merge:
                lake.compact(before)
            report.written += len(lake.paths())
            say(f"{path}: {counted(len(lake.paths()), 'file')}")
    return report


def _parse_file_size(file_size: int | str) -> int:
    try:
        return int(FILE_SIZE.parse(str(file_size)))
    except ValueError:
        raise ConfigError(f"file_size={file_size} must be from 64MiB to 512MiB") from None


def _existing_tables(
    root: Path | Address, settings: TableSettings, *, is_read_only: bool, file_bytes: int
) -> Iterator[tuple[Path | Address, Lake]]:
    """The table and its table of errors, as far as they are there."""
    table = TableLocation(
        root,
        state_folder(root),
        settings.writer,
        is_read_only=is_read_only,
        file_bytes=file_bytes,
        partitioning=settings.partitioning,
    )
    for location in (table, table.errors):
        if not isinstance(location.path, Path) or location.path.exists():
            yield location.path, open_lake(settings.format, location)
