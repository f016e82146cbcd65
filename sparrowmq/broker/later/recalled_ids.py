"""The messages that the recalls of one slot of the timer wheel name.

A slot may contain tens of thousands of recalls. Each is read once, some in each turn, before the slot's first message
is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparrowmq.broker.later.delivery import Redelivery
from sparrowmq.errors import CorruptRecord
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import Recalls
from sparrowmq.store.timers.timers import Timer, Timers

TURN: Final = 64
TURN_BYTES: Final = 1 << 20  # of records that are read and stored in one turn


class RecalledIds:
    """The messages that the recalls of one slot name. Each recall is read once, before the slot's first message."""

    def __init__(self, way_back: Redelivery) -> None:
        self._way_back = way_back
        self._slot = 0
        self._read = 0  # recalls of the slot that have been read
        self._recalls = Recalls()
        self._damage: CorruptRecord | None = None

    def are_known(self, timers: Timers) -> bool:
        """Read a turn's worth of recalls; return whether all recalls of the current slot have been read.

        A slot with a damaged recall is known too: none of its messages can be delivered.
        """
        if self._slot != timers.slot:
            self._slot, self._read, self._recalls, self._damage = timers.slot, 0, Recalls(), None
        for recall in turn_of(timers.recalls(self._read, TURN)):
            try:
                self._add(recall)
            except CorruptRecord as bad:
                self._damage, self._read = bad, timers.recall_count
                return True
            self._read += 1
        return self._read >= timers.recall_count

    def include(self, properties: Mapping[str, str]) -> bool:
        """Whether a message of the slot was recalled. Raises: CorruptRecord, a recall is damaged."""
        if self._damage is not None:
            raise self._damage.with_traceback(None)  # it would grow with each message
        return self._recalls.include(
            properties.get(Property.REAL_TOPIC, ""),
            properties.get(Property.UNIQ_KEY, ""),
            properties.get(Property.TIMER_OWNER),
        )

    def _add(self, timer: Timer) -> None:
        recall = self._way_back.message(timer.offset, timer.size)
        if recall is not None:
            self._recalls.add(recall.properties)


def turn_of(timers: Sequence[Timer]) -> Iterator[Timer]:
    """Yield timers whose records together have about `TURN_BYTES`, at least one."""
    size = 0
    for timer in timers:
        if size >= TURN_BYTES:
            break
        size += timer.size
        yield timer
