"""The pipeline `publish`: a table back to a topic.

    /lake/orders  ->  orders-again, each message once, in the order and with the ids that it had

Of a table of mode raw a message is as it was. Of the modes json and schema its body is an object of the row's columns:
what lay deeper is text there, and what was null is absent.

The pipeline's state notes in `sent.json` which rows it has sent:

    source queue    0 ........ 2,000 ..... 2,030     a run sends only rows from the noted offset on,
    sent.json             next: 2,000                whether or not the target still has the copies of the others

If the topic of the table was made again, rows have lower offsets than the noted one, and a later store time, or two
rows have one offset. Such rows are refused. The file also has the incarnations of the target and the ends of its queues
after the run. Another incarnation, or a lower end, belongs to a new topic, of which nothing is noted any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Unpack
from zlib import crc32

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines import target_topics as topics
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.message_copies import Copying, copy_rows, ends_of, pair_queues
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Running
from sparrowmq.spark.pipelines.running.session import is_deterministic
from sparrowmq.spark.pipelines.tables.log_parts import last_batches
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, OWN_COLUMNS, quoted_column
from sparrowmq.spark.pipelines.tables.table_settings import load_settings, locate_table, read_rows, state_folder
from sparrowmq.spark.source.partition_ranges import Offsets

_STORED_FILE: Final = "stored.json"
_QueueNumber = tuple[str, str, int, int]

_SENT_FILE: Final = "sent.json"
_QUEUE_FIELDS: Final = ("topic string", "brokerName string", "queueId int")
_QUEUE_COLUMNS: Final = tuple(name.split()[0] for name in _QUEUE_FIELDS)


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
        ConfigError: it is no such table, another run sends it, it got older rows since, or its topic was made again.
        BadStore: the state was lost in part. PythonException: a task failed for good; run it again to go on.
    """
    runner = Runner(**running)
    with runner.timed():
        return _publish(locate_table(table, state, catalog_options), topic, name_server, where, to_cluster, runner)


def _publish(
    table: Path | Address, topic: str, name_server: str, where: str | None, to_cluster: str | None, runner: Runner
) -> Report:
    sink, report = topics.sink_options(runner.options, name_server), runner.report
    rows = read_rows(runner.session, table)
    if COORDINATES not in rows.columns:
        raise ConfigError(f"{table} does not say where its rows come from; the pipeline `table` makes such tables")
    # Each condition has a copy of its own: of rows that one leaves out, the other must not be taken to have sent them.
    name = f"publish-{topic}" if where is None else f"publish-{topic}-{crc32(where.encode()):08x}"
    folder = state_folder(table) / name
    log_parts = _check_stored_parts(folder, table)
    sent_rows = SentRows.load(folder)
    definition = load_settings(table)
    is_raw = {"properties", "body"} <= set(rows.columns) if definition is None else definition.mode == "raw"
    selected = rows if where is None else rows.where(where)
    if not is_deterministic(selected):
        raise ConfigError(f"where={where!r} selects different rows each time, so a second run could not continue")
    rows = rows_to_messages(selected, OWN_COLUMNS if definition is None else definition.own_columns, is_raw=is_raw)
    if runner.dry_run:
        sent_rows.reached(rows)
        report.read = sent_rows.without(rows).count()
        runner.say(f"sends {counted(report.read, 'message')} to {topic}")
        return report
    state = State(folder, {"topic": topic, "to": name_server})
    _check_not_restored(state, sent_rows)
    reached = sent_rows.reached(rows)
    width = max((queue.queue_id for queue in (*reached.next, *state.targets)), default=0) + 1
    for name in topics.create_topics(sink, {topic: width}, to_cluster):
        runner.say(f"made topic {name}")
    if sent_rows.is_before(ends_of(sink, state.targets.values())):
        runner.say(f"topic {topic} was made again since rows were sent, so all rows are sent again")
        sent_rows = sent_rows.cleared()
        reached = sent_rows.reached(rows)
    with runner.at_work(state.folder):
        state.keep_targets(pair_queues(reached.next, topics.writable_queues(sink, [topic]), state.targets))
        snapshot.save(folder / _STORED_FILE, log_parts)
        # A run that was cut short is repeated with the same number, and so with the ends that it noted.
        floors = state.floors(sent_rows.runs, partial(ends_of, sink))
        counts = copy_rows(sent_rows.without(rows), Copying(sink, state.label, state.targets, floors, chained=True))
        sent_rows.keep(folder, reached, ends_of(sink, state.targets.values()))
    runner.say(f"{counts.sent:,} sent, {counts.already_there:,} there already")
    report.add_read(counts.sent + counts.already_there)
    report.written, report.batches = counts.sent, 1
    return report


def _check_stored_parts(folder: Path, table: Path | Address) -> dict[str, int]:
    """Return the parts of stored logs in a table. Raises: ConfigError, parts were added since rows were sent."""
    parts = last_batches(state_folder(table))
    parts_before = snapshot.load(folder / _STORED_FILE, dict[str, int])
    if parts_before is None and SentRows.load(folder).runs:
        parts_before = {}  # the file is gone: rows of stored logs may have come since
    if parts_before is not None and parts_before != parts:
        raise ConfigError(
            f"`backfill` or `redrive` has added rows to {table} since it was sent, and rows go in the order of "
            "their offsets; publish it to another topic, or choose the missing rows by a condition of their "
            "own (where)"
        )
    return parts


def _check_not_restored(state: State, sent_rows: SentRows) -> None:
    if not state.may_plan_again(sent_rows.runs):
        raise BadStore(
            f"{state.part('sent.json')} is gone, or an older copy, so it is not known which rows were sent; restore "
            "the folder of the state from a backup, or publish to another topic"
        )


def rows_to_messages(rows: DataFrame, without: Collection[str] = OWN_COLUMNS, *, is_raw: bool) -> DataFrame:
    """Rows as messages, with the columns that a copy needs; bodies are `without` columns of the table itself."""
    columns = [f.col(f"{COORDINATES}.{name}") for name in ("topic", "brokerName", "queueId", "queueOffset")]
    columns += [f.col(f"{COORDINATES}.{name}") for name in ("bornTimestamp", "storeTimestamp")]
    no_flags = [f.lit(0).alias("flag"), f.lit(0).alias("sysFlag")]
    if is_raw:
        return rows.select(*columns, *no_flags, "properties", "body")
    body_columns = [quoted_column(name) for name in rows.columns if name not in without]
    properties = f.create_map(f.lit("UNIQ_KEY"), f.col(f"{COORDINATES}.msgId")).alias("properties")
    body = f.to_json(f.struct(*body_columns)).cast("binary").alias("body")
    return rows.select(*columns, *no_flags, properties, body)


class Reached(NamedTuple):
    """The next offset of each source queue, and the last store time before that, in ms."""

    next: dict[MessageQueue, int]
    times: dict[MessageQueue, int]


class SentRows(msgspec.Struct):
    """The rows that earlier runs have sent: `runs` counts those that have come to their end.

    `next` is the first offset of each source queue that was not sent, and `times` the last store time that was, in ms.
    `ends` are those of the target's queues, and `incarnations` those of the target on each broker that names one.
    """

    runs: int = 0
    next: list[_QueueNumber] = []
    times: list[_QueueNumber] = []
    ends: list[_QueueNumber] = []
    incarnations: list[tuple[str, str, int]] = []

    @classmethod
    def load(cls, folder: Path) -> SentRows:
        return snapshot.load(folder / _SENT_FILE, cls) or cls()

    def is_before(self, ends: Offsets) -> bool:
        """Whether the target was made again since rows were sent to it; `ends` are those of its reachable queues."""
        current = (
            (topic, broker, ends.incarnations.get((topic, broker), incarnation))
            for topic, broker, incarnation in self.incarnations
        )
        has_shrunk = any(ends.get(queue, end) < end for queue, end in _by_queue(self.ends).items())
        return has_shrunk or list(current) != self.incarnations

    def cleared(self) -> SentRows:
        """Return what is known when the target has lost all rows: only the number of runs."""
        return SentRows(self.runs)

    def without(self, rows: DataFrame) -> DataFrame:
        if not self.next:
            return rows
        return self._mark_sent(rows).where("not _was_sent").drop("_was_sent", "_time")

    def reached(self, rows: DataFrame) -> Reached:
        """Return the end of what is to be sent of each queue. Raises: ConfigError, their topic was made again."""
        offset, time = f.expr("if(_was_sent, null, queueOffset)"), f.unix_millis("storeTimestamp")
        per_queue = (
            self._mark_sent(rows)
            .groupBy(*_QUEUE_COLUMNS)
            .agg(
                f.max(offset).alias("last"),
                f.max(f.when(~f.col("_was_sent"), time)).alias("at"),
                (f.count(offset) - f.count_distinct(offset)).alias("again"),
                f.count_if(f.col("_was_sent") & (time > f.col("_time"))).alias("late"),
            )
        )
        ends: dict[MessageQueue, int] = {}
        times: dict[MessageQueue, int] = {}
        for row in per_queue.collect():
            queue = MessageQueue(row.topic, row.brokerName, row.queueId)
            if row.late or row.again:
                raise _recreated_error(queue, max(time for *_, time in self.times) if row.late else None)
            if row.last is not None:
                ends[queue], times[queue] = row.last + 1, row.at
        return Reached(ends, times)

    def _mark_sent(self, rows: DataFrame) -> DataFrame:
        """Rows with two more columns: whether earlier runs have sent them, and the last store time of these."""
        times = _by_queue(self.times)
        next_offsets = [
            (*place, times.get(queue)) for place, queue in zip(self.next, _by_queue(self.next), strict=True)
        ]
        schema = f"{', '.join(_QUEUE_FIELDS)}, _sent bigint, _time bigint"
        known = f.broadcast(rows.sparkSession.createDataFrame(next_offsets, schema))
        joined = rows.join(known, list(_QUEUE_COLUMNS), "left")
        return joined.withColumn("_was_sent", f.expr("_sent is not null and queueOffset < _sent")).drop("_sent")

    def keep(self, folder: Path, sent: Reached, ends: Offsets) -> None:
        """Note the end of a run: how far it has sent the queues, and the ends of the targets."""
        incarnations = {
            (topic, broker): incarnation for topic, broker, incarnation in self.incarnations
        } | ends.incarnations
        times = _by_queue(self.times)  # clocks of brokers go back at times
        updated = SentRows(
            self.runs + 1,
            _queue_numbers(_by_queue(self.next) | sent.next),
            _queue_numbers(times | {queue: max(time, times.get(queue, time)) for queue, time in sent.times.items()}),
            _queue_numbers(_by_queue(self.ends) | ends),
            [(*part, incarnation) for part, incarnation in sorted(incarnations.items())],
        )
        snapshot.save(folder / _SENT_FILE, updated)


def _recreated_error(queue: MessageQueue, sent_until_ms: int | None) -> ConfigError:
    """The refusal of rows whose topic was made again; after those of the topic before were sent, if there is a time."""
    if sent_until_ms is not None:
        return ConfigError(
            f"topic {queue.topic} was made again since its rows were sent, and offsets of {queue} come twice; send "
            f"the new rows by a condition: --where '_mq.storeTimestamp > timestamp_millis({sent_until_ms})'"
        )
    return ConfigError(
        f"topic {queue.topic} was made again while the table was filled, and offsets of {queue} come twice; send the "
        "rows of each topic by a condition of its own: with --where '_mq.storeTimestamp < \"2026-01-31 08:00:00\"' and "
        "the time when it was made again, and then with >= for <"
    )


def _by_queue(rows: list[_QueueNumber]) -> dict[MessageQueue, int]:
    return {MessageQueue(topic, broker, queue_id): offset for topic, broker, queue_id, offset in rows}


def _queue_numbers(offsets: dict[MessageQueue, int]) -> list[_QueueNumber]:
    return [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]
