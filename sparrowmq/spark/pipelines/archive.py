"""The pipeline `archive`: a topic's messages in Parquet files, and one reader over them and what came since.

    /archive/orders/_day=2026-01-31/...      all that the source shows of each message
    archived(spark, ...)                     rows of the archive, and behind the last of them those of the topic

Retention may then remove them from the brokers. From brokers it goes on run by run; without a broker it takes the files
of a stored log that are full.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, table_root
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.partitioning import DAY
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Streaming
from sparrowmq.spark.pipelines.running.span import offsets_by_topic, span_of
from sparrowmq.spark.pipelines.table import table
from sparrowmq.spark.pipelines.tables.log_parts import LogParts, end_by_batches, log_reader
from sparrowmq.spark.pipelines.tables.progress import Record, parse_stream_record
from sparrowmq.spark.pipelines.tables.table_settings import (
    TableSettings,
    create_or_load_settings,
    load_settings,
    locate_table,
    lock_table,
    read_rows,
    state_folder,
)
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter
from sparrowmq.spark.source.log_files import Span, full_files, log_files
from sparrowmq.spark.source.partition_ranges import Offsets, broker_topic, from_json, lose_old_topic, recreated_topics

_MODE = "whole"


def archive(
    topic: str,
    to: str | Path,
    *,
    name_server: str | None = None,
    store: str | Path | None = None,
    broker: str | None = None,
    format: str = "parquet",
    state: str | Path | None = None,
    catalog: Catalog | None = None,
    **running: Unpack[Streaming],
) -> Report:
    """Add to an archive what it lacks of a topic.

    Args:
        name_server: of the cluster. store: a stored log instead, of the broker `broker`.
        running: as `Streaming` has them, but `once` is the default; a stored log is always read once.
    Raises:
        ConfigError: an argument is wrong. StreamingQueryException: the query failed; run it again to go on.
    """
    if (name_server is None) == (store is None):
        raise ConfigError("give either name_server (-n) or store")
    running = Streaming(once=True, every="1 minute") | running
    if store is not None:
        root = table_root(to, state, catalog)
        settings = TableSettings(topic, format, _MODE, None).at_root(root)
        return _archive_store(settings, root, store, broker, Runner(**running))
    assert name_server is not None
    table_arguments: Any = {"format": format, "mode": _MODE, "state": state, "catalog": catalog}
    return table(topic, to, name_server=name_server, **table_arguments, **running)


def _archive_store(
    settings: TableSettings, root: Path | Address, store: str | Path, broker: str | None, runner: Runner
) -> Report:
    if broker is None:
        raise ConfigError("name the broker of the store (broker); its files do not contain the name")
    files = full_files(log_files(str(store)))
    if runner.dry_run:
        runner.say(f"archives messages of {settings.topic} from {len(files)} full log files")
        return runner.report
    with lock_table(root, runner), runner.timed():
        settings = create_or_load_settings(root, settings)
        if settings.begin is not None:
            raise ConfigError(f"{root} is filled from brokers; add older messages by the pipeline `backfill`")
        writer = TableWriter(root, settings, runner.report, f"-{broker}")
        parts = LogParts(state_folder(root) / f"stored-{broker}.json", runner, end_by_batches(writer, files))
        spans = [Span(file, 0, file.size) for file in files]
        parts.add(spans, writer, log_reader(runner.session, settings, broker, runner.options or {}))
    return runner.report


def archived(
    spark: SparkSession,
    path: str | Path,
    *,
    name_server: str | None = None,
    options: Mapping[str, str] | None = None,
    state: str | Path | None = None,
    catalog_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """An archive and, with `name_server`, what its topic has behind it; each message once, in the source's columns.

    Raises:
        ConfigError: there is no archive. RowsLost: the topic was deleted and made again since; archive it first, with
            failOnDataLoss=false. Or, when it is read: retention has removed messages in between; archive more often.
    """
    root = locate_table(path, state, catalog_options)
    settings = load_settings(root)
    if settings is None or settings.mode != _MODE:
        raise ConfigError(f"{root} is no archive; the pipeline `archive` makes them")
    archive_rows, record = _rows_and_record(spark, root, settings)
    if name_server is None:
        return archive_rows
    source_options = {**(options or {}), "nameServer": name_server, "topic": settings.topic}
    return archive_rows.unionByName(
        _messages_behind(spark, _next_offsets(record, archive_rows), source_options, settings)
    )


def _rows_and_record(
    spark: SparkSession, root: Path | Address, settings: TableSettings
) -> tuple[DataFrame, Record | None]:
    """Return the rows of an archive, and the record of the last batch that is among them."""
    while True:
        record = _record(root, settings)
        rows = read_rows(spark, root).drop(DAY).select(*settings.shape().columns)
        if _record(root, settings) == record:
            return rows, record


def _record(root: Path | Address, settings: TableSettings) -> Record | None:
    location = TableLocation(root, state_folder(root), settings.writer, is_read_only=True)
    return parse_stream_record(open_lake(settings.format, location).record())


def _next_offsets(record: Record | None, archive_rows: DataFrame) -> Offsets:
    """The next offsets of an archive: by its last commit, or behind its rows if stored logs filled it last."""
    if record is not None and record.end is not None:
        return from_json(record.end)
    ends = archive_rows.groupBy("topic", "brokerName", "queueId").agg(f.max("queueOffset").alias("last")).collect()
    return Offsets({MessageQueue(row.topic, row.brokerName, row.queueId): row.last + 1 for row in ends})


def _messages_behind(
    spark: SparkSession, known_offsets: Offsets, options: Mapping[str, str], settings: TableSettings
) -> DataFrame:
    """The topic's messages behind the archive; of an unknown queue, from the archive's begin. Raises: RowsLost."""
    span, begin = span_of(options), settings.first_offsets() | known_offsets
    recreated = recreated_topics(known_offsets, span.end)
    for part in sorted(recreated):
        lose_old_topic(part, known_offsets, is_named=True, fail=parse(SourceOptions, options).fail_on_data_loss)
    start = {
        queue: offset if broker_topic(queue) in recreated else begin.get(queue, offset)
        for queue, offset in span.start.items()
    }
    source = spark.read.format("rocketmq").options(**{**options, "columns": ",".join(settings.shape().columns)})
    return source.option("startingOffsets", json.dumps(offsets_by_topic(start))).load()
