"""Notes which rows of a table `publish` has sent: `sent.json` in the pipeline's state.

    source queue    0 ........ 2,000 ..... 2,030     a run sends only rows from the noted offset on,
    sent.json             next: 2,000                whether or not the target still has the copies of the others

If the topic of the table was deleted and made again, its offsets begin at 0 again. Rows with lower offsets than the
noted one, and a later store time, show that; so do two rows with one offset. Such rows are refused.

The file also has the incarnations of the target and the ends of its queues after the run. An end only grows while a
topic exists. So another incarnation, or an end that is now lower, belongs to a topic that was deleted and made again:
then nothing is noted of it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from pyspark.sql import functions as f

from sparrowmq.core import snapshot
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Place = tuple[str, str, int, int]

_FILE: Final = "sent.json"
_PLACE: Final = ("topic string", "brokerName string", "queueId int")
_QUEUE: Final = tuple(name.split()[0] for name in _PLACE)


class Reached(NamedTuple):
    """The next offset of each source queue, and the last store time before that, in ms."""

    next: dict[MessageQueue, int]
    times: dict[MessageQueue, int]


class SentRows(msgspec.Struct):
    """The rows that earlier runs have sent.

    Attributes:
        runs: how many have come to their end.
        next: the first offset of each source queue that was not sent. times: the last store time that was, in ms.
        ends: of the target's queues.
        incarnations: of the target on each broker that names one.
    """

    runs: int = 0
    next: list[_Place] = []
    times: list[_Place] = []
    ends: list[_Place] = []
    incarnations: list[tuple[str, str, int]] = []

    @classmethod
    def load(cls, folder: Path) -> SentRows:
        return snapshot.load(folder / _FILE, cls) or cls()

    def is_before(self, ends: Offsets) -> bool:
        """Whether the target was made again since rows were sent to it.

        Args:
            ends: of the target's queues now; those of a broker that is away are left out.
        """
        others = ((topic, broker, ends.incarnations.get((topic, broker), n)) for topic, broker, n in self.incarnations)
        has_shrunk = any(ends.get(queue, end) < end for queue, end in _by_queue(self.ends).items())
        return has_shrunk or list(others) != self.incarnations

    def forgotten(self) -> SentRows:
        """Return what is known when the target has lost all rows: only the number of runs."""
        return SentRows(self.runs)

    def without(self, rows: DataFrame) -> DataFrame:
        if not self.next:
            return rows
        return self._marked(rows).where("not _was_sent").drop("_was_sent", "_time")

    def reached(self, rows: DataFrame) -> Reached:
        """Return the end of what is to be sent of each queue.

        Raises: ConfigError, the topic of the rows was made again, so their offsets do not say which were sent.
        """
        offset, time = f.expr("if(_was_sent, null, queueOffset)"), f.unix_millis("storeTimestamp")
        found = (
            self._marked(rows)
            .groupBy(*_QUEUE)
            .agg(
                f.max(offset).alias("last"),
                f.max(f.when(~f.col("_was_sent"), time)).alias("at"),
                (f.count(offset) - f.count_distinct(offset)).alias("again"),
                f.count_if(f.col("_was_sent") & (time > f.col("_time"))).alias("late"),
            )
        )
        ends: dict[MessageQueue, int] = {}
        times: dict[MessageQueue, int] = {}
        for row in found.collect():
            queue = MessageQueue(row.topic, row.brokerName, row.queueId)
            if row.late or row.again:
                raise _made_again(queue, max(time for *_, time in self.times) if row.late else None)
            if row.last is not None:
                ends[queue], times[queue] = row.last + 1, row.at
        return Reached(ends, times)

    def _marked(self, rows: DataFrame) -> DataFrame:
        """Rows with two more columns: whether earlier runs have sent them, and the last store time of these."""
        times = _by_queue(self.times)
        sent = [(*place, times.get(queue)) for place, queue in zip(self.next, _by_queue(self.next), strict=True)]
        schema = f"{', '.join(_PLACE)}, _sent bigint, _time bigint"
        noted = f.broadcast(rows.sparkSession.createDataFrame(sent, schema))
        joined = rows.join(noted, list(_QUEUE), "left")
        return joined.withColumn("_was_sent", f.expr("_sent is not null and queueOffset < _sent")).drop("_sent")

    def keep(self, folder: Path, sent: Reached, ends: Offsets) -> None:
        """Note the end of a run: how far it has sent the queues, and the ends of the targets."""
        named = {(topic, broker): each for topic, broker, each in self.incarnations} | ends.incarnations
        times = _by_queue(self.times)  # clocks of brokers go back at times
        kept = SentRows(
            self.runs + 1,
            _rows(_by_queue(self.next) | sent.next),
            _rows(times | {queue: max(time, times.get(queue, time)) for queue, time in sent.times.items()}),
            _rows(_by_queue(self.ends) | ends),
            [(*part, each) for part, each in sorted(named.items())],
        )
        snapshot.save(folder / _FILE, kept)


def _made_again(queue: MessageQueue, sent_until_ms: int | None) -> ConfigError:
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


def _by_queue(rows: list[_Place]) -> dict[MessageQueue, int]:
    return {MessageQueue(topic, broker, queue_id): offset for topic, broker, queue_id, offset in rows}


def _rows(offsets: dict[MessageQueue, int]) -> list[_Place]:
    return [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]
