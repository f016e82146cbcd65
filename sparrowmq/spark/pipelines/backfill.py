"""Adds to a table what its topic had before: from stored logs, as backups and closed brokers have them.

    /backup/store/commitlog   00000000000000000000  00000000001073741824  ...      a file is a batch
    the table                 ---- added from the files ----|---- read from brokers -------

A table begins at some offset of each queue; of the files only what lies before is added, so no message is there twice,
and a file that is added again after a crash is there once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.locked import locked
from sparrowmq.spark.pipelines.own_session import own_session
from sparrowmq.spark.pipelines.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.table import Settled, TableWriter, begun, state_of
from sparrowmq.spark.stored.files import log_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.stored.blocks import LogFile

_LANE = "-stored"


def backfill(
    table: str | Path,
    store: str | Path,
    *,
    broker: str | None = None,
    options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    say: Say = to_stderr,
) -> Report:
    """Add to a table, in its own mode, what a stored log has from before it began.

    Args:
        table: its folder; `table` has begun it.
        store: a store, its folder commitlog, or one file of that; it may be a copy.
        broker: whose store it is; needed if the topic has several.
        options: of the source, such as `tags`.
    Raises:
        ConfigError: the table is none, was never begun from brokers, or has several brokers.
        BadStore: there are no log files.
    """
    root = Path(os.path.abspath(table))
    settled = begun(root)
    if settled is None or settled.begin is None:
        raise ConfigError(f"{root} was not begun by the pipeline `table`; run that first, with --once")
    broker = broker or _only(settled.begin[settled.topic])
    files = log_files(str(store))
    if dry_run:
        say(f"looks for messages of {settled.topic} in {len(files)} log files")
        return Report()
    with locked(state_of(root)):
        writer = TableWriter(root, settled, say, _LANE)
        begin, session = time.monotonic(), own_session(spark)
        for file in files:
            if not writer.has(number_of(file)):
                given = {**(options or {}), "topic": settled.topic, "brokerName": broker}
                given |= {"path": file.path, "columns": ",".join(settled.shape().columns)}
                rows = session.read.format("rocketmq").options(**given).load()
                writer.write(_before(rows, settled, broker), number_of(file))
    writer.report.seconds = time.monotonic() - begin
    writer.report.offsets = settled.begin
    return writer.report


def number_of(file: LogFile) -> int:
    """The files of a store are of one size; so this counts them."""
    return file.begin // max(file.size, 1)


def _before(rows: DataFrame, settled: Settled, broker: str) -> DataFrame:
    assert settled.begin is not None
    begin = settled.begin[settled.topic].get(broker)
    if begin is None:
        known = ", ".join(sorted(settled.begin[settled.topic]))
        raise ConfigError(f"topic {settled.topic} has no queues at broker {broker}; there are {known}")
    limit = f.create_map(*(f.lit(value) for queue, offset in begin.items() for value in (int(queue), offset)))
    return rows.where(f.col("queueOffset") < f.coalesce(limit[f.col("queueId")], f.lit(0)))


def _only(brokers: Mapping[str, object]) -> str:
    if len(brokers) != 1:
        raise ConfigError(f"whose store is it? Say with `broker` which of {', '.join(sorted(brokers))}")
    return next(iter(brokers))
