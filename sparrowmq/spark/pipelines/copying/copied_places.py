"""The messages of a target queue that are copies, and how far a group that read the originals has read there.

    positions   0   1   2   3   4   5   6
    originals  100 101 102  -  103 104 105     a group that has read 100 to 103 goes on at 3

The message at 3 was written at the target, so the group has not read it, unless a mirror in the other direction has
brought a copy of it to the group. Copies that follow each other are one run: a queue that only its mirror writes to has
a single one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from sparrowmq.core.digits import whole_number
from sparrowmq.protocol.messages.message import MessageQueue


class Origin(NamedTuple):
    """The place that a copy names: of the pipeline `label`; `life` is the incarnation of a topic made again, or ""."""

    label: str
    queue: MessageQueue
    life: str
    offset: int


@dataclass(slots=True)
class _Run:
    """Copies at `position` and behind, of the originals from `offset` on."""

    position: int
    queue: MessageQueue
    life: str
    offset: int
    count: int = 1


def origin_of(text: str) -> Origin | None:
    """Take the property SPARROW_ORIGIN apart; None if a mirror cannot have written it."""
    label, _, rest = text.partition("/")
    place, _, offset = rest.rpartition(":")
    named, _, number = place.rpartition(":")
    topic, _, broker = named.rpartition("@")
    queue_id, _, life = number.partition("+")
    queue, at = whole_number(queue_id), whole_number(offset)
    if not (label and topic and broker) or queue is None or at is None:
        return None
    return Origin(label, MessageQueue(topic, broker, queue), life, at)


class CopiedPlaces:
    """The copies among the messages `[begin, end)` of a queue."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self._runs: list[_Run] = []
        self._lives: dict[MessageQueue, str] = {}  # of each original queue, the last one seen
        self._queues: dict[MessageQueue, MessageQueue] = {}

    def add(self, position: int, origin: Origin | None) -> None:
        """Note the next message; None is one that no mirror has copied."""
        self.end = position + 1
        if origin is None:
            return
        if origin.queue not in self._lives:
            self._queues[origin.queue] = origin.queue
        self._lives[origin.queue] = origin.life
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and (last.queue, last.life) == (origin.queue, origin.life)
            and (last.position + last.count, last.offset + last.count) == (position, origin.offset)
        ):
            last.count += 1
        else:
            queue = self._queues[origin.queue]  # the same object for all runs
            self._runs.append(_Run(position, queue, origin.life, origin.offset))

    @property
    def run_count(self) -> int:
        return len(self._runs)

    def first_unread(self, start: int, read: Mapping[MessageQueue, int], is_read: Callable[[int], bool]) -> int:
        """Return the first position from `start` on whose message a group has not read; the end if it read all.

        Copies from an earlier life of a topic count as read, as their originals are gone.

        Args:
            read: the next original of each queue that the group reads.
            is_read: whether it has read the message at a position, which is no copy.
        """
        position = max(start, self.begin)
        for run in islice(self._runs, self._index_of(position), None):
            for other in range(position, run.position):
                if not is_read(other):
                    return other
            position = max(position, run.position)
            done = run.position + max(0, read.get(run.queue, 0) - run.offset)
            if run.life == self._lives[run.queue] and done < run.position + run.count:
                return max(position, done)
            position = run.position + run.count
        return next((other for other in range(position, self.end) if not is_read(other)), self.end)

    def has_copy_at(self, position: int) -> bool:
        index = self._index_of(position)
        return index < len(self._runs) and self._runs[index].position <= position

    def forget(self, before: int) -> None:
        """Forget the runs that end before a position; what is there counts as unknown."""
        del self._runs[: self._index_of(before)]
        self.begin = max(self.begin, min(before, self.end))

    def _index_of(self, position: int) -> int:
        """Return the index of the first run that ends behind a position."""
        return bisect_right(self._runs, position, key=lambda run: run.position + run.count)


class ReturnedPlaces:
    """The messages of a target queue that a mirror in the other direction has brought to a source queue.

    Attributes:
        since: the first place in the target queue for which these are complete.
        end: the next message of the source queue to note.
    """

    def __init__(self, since: int, begin: int) -> None:
        self.since = since
        self.end = begin
        self._places: dict[int, int] = {}

    def add(self, position: int, original: int | None) -> None:
        """Note the next message of the source queue; None is one that is no such copy."""
        self.end = position + 1
        if original is not None:
            self._places[original] = position

    def place_of(self, original: int) -> int | None:
        """Return where the copy of a message of the target queue is; None if it is not among these."""
        return self._places.get(original)

    def forget(self, before: int) -> None:
        """Forget the copies of what is before a place of the target queue."""
        if before <= self.since:
            return
        self.since = before
        self._places = {original: at for original, at in self._places.items() if original >= before}
