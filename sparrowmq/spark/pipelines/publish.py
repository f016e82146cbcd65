"""The pipeline `publish`: a table back to a topic.

    /lake/orders  ->  orders-again, each message once, in the order and with the ids that it had

Of a table of mode raw a message is as it was. Of the modes json and schema its body is an object of the row's columns:
what lay deeper is text there, and what was null is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from zlib import crc32

from pyspark.sql import functions as f

from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.copying import target_topics as topics
from sparrowmq.spark.pipelines.copying.copied_rows import copy_rows
from sparrowmq.spark.pipelines.copying.message_copies import Copying, ends_of, paired
from sparrowmq.spark.pipelines.copying.sent_rows import SentRows
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.running.own_session import is_steady
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Running
from sparrowmq.spark.pipelines.tables.log_parts import added
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, OWN, column
from sparrowmq.spark.pipelines.tables.table_settings import begun, place_of, read_begun, state_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STORED_FILE: Final = "stored.json"


def publish(
    table: str | Path,
    topic: str,
    *,
    name_server: str,
    where: str | None = None,
    to_cluster: str | None = None,
    state: str | Path | None = None,
    catalog_options: Mapping[str, str] | None = None,
    **running: Unpack[Running],
) -> Report:
    """Send the rows of a table that the pipeline `table` made to a topic; rows that were sent are not sent again.

    Args:
        where: an SQL condition over the table's columns, as `_day = '2026-01-31'`.
        state: the folder of the progress, if the table is at an address. catalog_options: of its catalog.
        running: as `Running` has them; `options` are those of the sink.
    Raises:
        ConfigError: it is no such table, another run sends it, it got older rows since it was sent, or
            its topic was made again.
        BadStore: the state was lost in part.
        PythonException: a task failed for good; run it again to go on.
    """
    runner = Runner(**running)
    with runner.timed():
        return _publish(place_of(table, state, catalog_options), topic, name_server, where, to_cluster, runner)


def _publish(
    table: Path | Address,
    topic: str,
    name_server: str,
    where: str | None,
    to_cluster: str | None,
    runner: Runner,
) -> Report:
    sink, report = topics.sink(runner.options, name_server), runner.report
    rows = read_begun(runner.session, table)
    if COORDINATES not in rows.columns:
        raise ConfigError(f"{table} does not say where its rows come from; the pipeline `table` makes such tables")
    # Each condition has a copy of its own: of rows that one leaves out, the other must not be taken to have sent them.
    name = f"publish-{topic}" if where is None else f"publish-{topic}-{crc32(where.encode()):08x}"
    folder = state_of(table) / name
    stored = _stored(folder, table)
    known = SentRows.load(folder)
    settled = begun(table)
    is_raw = {"properties", "body"} <= set(rows.columns) if settled is None else settled.mode == "raw"
    chosen = rows if where is None else rows.where(where)
    if not is_steady(chosen):
        raise ConfigError(f"where={where!r} chooses other rows each time, so a second run could not continue")
    rows = messages_of(chosen, OWN if settled is None else settled.own, is_raw=is_raw)
    if runner.dry_run:
        known.reached(rows)
        report.read = known.without(rows).count()
        runner.say(f"sends {counted(report.read, 'message')} to {topic}")
        return report
    state = State(folder, {"topic": topic, "to": name_server})
    _demand_newest(state, known)
    reached = known.reached(rows)
    width = max((queue.queue_id for queue in (*reached.next, *state.targets)), default=0) + 1
    for made in topics.make(sink, {topic: width}, to_cluster):
        runner.say(f"made topic {made}")
    if known.is_before(ends_of(sink, state.targets.values())):
        runner.say(f"topic {topic} was made again since rows were sent, so all rows are sent again")
        known = known.forgotten()
        reached = known.reached(rows)
    with runner.at_work(state.folder):
        state.keep(paired(reached.next, topics.writable(sink, [topic]), state.targets))
        snapshot.save(folder / _STORED_FILE, stored)
        # A run that was cut short is repeated with the same number, and so with the ends that it noted.
        floors = state.floors(known.runs, partial(ends_of, sink))
        copied = copy_rows(known.without(rows), Copying(sink, state.label, state.targets, floors, chained=True))
        known.keep(folder, reached, ends_of(sink, state.targets.values()))
    runner.say(f"{copied.sent:,} sent, {copied.there:,} there already")
    report.add_read(copied.sent + copied.there)
    report.written, report.batches = copied.sent, 1
    return report


def _stored(folder: Path, table: Path | Address) -> dict[str, int]:
    """Return the parts of stored logs in a table. Raises: ConfigError, parts were added since rows were sent."""
    now = added(state_of(table))
    was = snapshot.load(folder / _STORED_FILE, dict[str, int])
    if was is None and SentRows.load(folder).runs:
        was = {}  # the file is gone: rows of stored logs may have come since
    if was is not None and was != now:
        raise ConfigError(
            f"`backfill` or `redrive` has added rows to {table} since it was sent, and rows go in the order of "
            "their offsets; publish it to another topic, or choose the rows that are lacking by a condition of their "
            "own (where)"
        )
    return now


def _demand_newest(state: State, known: SentRows) -> None:
    """Raises: BadStore, the rows that were sent are those of an earlier run, or of none."""
    if not state.may_plan_again(known.runs):
        raise BadStore(
            f"{state.part('sent.json')} is gone, or an older copy, so it is not known which rows were sent; restore "
            "the folder of the state from a backup, or publish to another topic"
        )


def messages_of(rows: DataFrame, without: Collection[str] = OWN, *, is_raw: bool) -> DataFrame:
    """Rows as messages, with the columns that a copy needs; bodies are `without` columns of the table itself."""
    place = [f.col(f"{COORDINATES}.{name}") for name in ("topic", "brokerName", "queueId", "queueOffset")]
    place += [f.col(f"{COORDINATES}.{name}") for name in ("bornTimestamp", "storeTimestamp")]
    none = [f.lit(0).alias("flag"), f.lit(0).alias("sysFlag")]
    if is_raw:
        return rows.select(*place, *none, "properties", "body")
    own = [column(name) for name in rows.columns if name not in without]
    properties = f.create_map(f.lit("UNIQ_KEY"), f.col(f"{COORDINATES}.msgId")).alias("properties")
    body = f.to_json(f.struct(*own)).cast("binary").alias("body")
    return rows.select(*place, *none, properties, body)
