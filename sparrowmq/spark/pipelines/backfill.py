"""Adds to a table what its topic had before: from stored logs, as backups and closed brokers have them.

    /backup/store/commitlog   00000000000000000000  00000000001073741824  ...
    the table                 ---- added from the files ----|---- read from brokers -------

A table begins at some offset of each queue. Only earlier messages are added from the files, so each message is in it
once. Later ones can have smaller offsets, if the topic was deleted and made again: their times show them.
`log_parts.py` notes which files a table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Running
from sparrowmq.spark.pipelines.tables.error_retry import finish_retry
from sparrowmq.spark.pipelines.tables.log_parts import LogParts, numbered, reader
from sparrowmq.spark.pipelines.tables.table_settings import (
    Settled,
    begun,
    demand_no_key,
    held,
    place_of,
    state_of,
)
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter
from sparrowmq.spark.stored.log_files import log_files, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LANE = "-stored"


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
        running: as `Running` has them.
    Raises:
        ConfigError: the table is none, was never begun from brokers, or has several brokers.
        BadStore: there are no log files.
    """
    runner, root = Runner(**running), place_of(table, state, catalog_options)
    settled = begun(root)
    if settled is None or settled.begin is None:
        raise ConfigError(f"{root} was not begun by the pipeline `table`; run that first, with --once")
    demand_no_key(root, settled, "a backfill")
    broker = broker or _only(settled.begin[settled.topic])
    files = log_files(str(store))
    if runner.dry_run:
        runner.say(f"looks for messages of {settled.topic} in {len(files)} log files")
        return runner.report
    with held(root, runner), runner.timed():
        finish_retry(root, settled)
        known = numbered(TableWriter(root, settled, runner.report, _LANE), files)
        if known and len(settled.begin[settled.topic]) > 1:
            raise ConfigError(
                f"an earlier release has added stored logs to {root}, and did not note of which broker; "
                "to add those of all brokers make a new table, in another folder"
            )
        read = reader(runner.session, settled, broker, runner.options or {})
        LogParts(state_of(root) / f"stored-{broker}.json", runner, known).add(
            list(written(files)),
            TableWriter(root, settled, runner.report, f"{_LANE}-{broker}"),
            lambda file, more: _before(read(file, more), settled, broker),
        )
    runner.report.offsets = settled.begin
    return runner.report


def _before(rows: DataFrame, settled: Settled, broker: str) -> DataFrame:
    assert settled.begin is not None
    begin = settled.begin[settled.topic].get(broker)
    if begin is None:
        known = ", ".join(sorted(settled.begin[settled.topic]))
        raise ConfigError(f"topic {settled.topic} has no queues at broker {broker}; there are {known}")
    limit = f.create_map(*(f.lit(value) for queue, offset in begin.items() for value in (int(queue), offset)))
    is_earlier = f.col("queueOffset") < f.coalesce(limit[f.col("queueId")], f.lit(0))
    newest_ms = (settled.newest_ms or {}).get(broker)
    if newest_ms is not None:
        is_earlier &= f.col("storeTimestamp") <= f.timestamp_millis(f.lit(newest_ms))
    return rows.where(is_earlier)


def _only(brokers: Mapping[str, object]) -> str:
    if len(brokers) != 1:
        raise ConfigError(f"name the broker of the store (broker), one of {', '.join(sorted(brokers))}")
    return next(iter(brokers))
