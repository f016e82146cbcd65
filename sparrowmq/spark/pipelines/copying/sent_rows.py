"""Notes which rows of a table `publish` has sent: `sent.json` in the pipeline's state.

    source queue    0 ........ 2,000 ..... 2,030     a run sends only rows from the noted offset on,
    sent.json             next: 2,000                whether or not the target still has the copies of the others

The file also has the incarnations of the target and the ends of its queues after the run. An end only grows while a
topic exists. So another incarnation, or an end that is now lower, belongs to a topic that was deleted and made again:
then nothing is noted of it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as f

from sparrowmq import snapshot
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Place = tuple[str, str, int, int]

_FILE: Final = "sent.json"
_PLACE: Final = ("topic string", "brokerName string", "queueId int")


class SentRows(msgspec.Struct):
    """The rows that earlier runs have sent.

    Attributes:
        runs: how many have come to their end.
        next: the first offset of each source queue that was not sent. ends: of the target's queues.
        incarnations: of the target on each broker that names one.
    """

    runs: int = 0
    next: list[_Place] = []
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
        others = (
            (topic, broker, ends.incarnations.get((topic, broker), n))
            for topic, broker, n in self.incarnations
        )
        has_shrunk = any(ends.get(queue, end) < end for queue, end in _by_queue(self.ends).items())
        return has_shrunk or list(others) != self.incarnations

    def forgotten(self) -> SentRows:
        """Return what is known when the target has lost all rows: only the number of runs."""
        return SentRows(self.runs)

    def without(self, rows: DataFrame) -> DataFrame:
        if not self.next:
            return rows
        sent = rows.sparkSession.createDataFrame(self.next, f"{', '.join(_PLACE)}, _sent bigint")
        names = [name.split()[0] for name in _PLACE]
        return (
            rows.join(f.broadcast(sent), names, "left")
            .where("_sent is null or queueOffset >= _sent")
            .drop("_sent")
        )

    def keep(self, folder: Path, sent: dict[MessageQueue, int], ends: Offsets) -> None:
        """Note the end of a run: the next offsets of the queues that it sent, and the ends of the targets."""
        reached = _rows(_by_queue(self.next) | sent)
        named = {(topic, broker): each for topic, broker, each in self.incarnations} | ends.incarnations
        incarnations = [(*part, each) for part, each in sorted(named.items())]
        kept = SentRows(self.runs + 1, reached, _rows(_by_queue(self.ends) | ends), incarnations)
        snapshot.save(folder / _FILE, kept)


def _by_queue(rows: list[_Place]) -> dict[MessageQueue, int]:
    return {MessageQueue(topic, broker, queue_id): offset for topic, broker, queue_id, offset in rows}


def _rows(offsets: dict[MessageQueue, int]) -> list[_Place]:
    return [
        (queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())
    ]
