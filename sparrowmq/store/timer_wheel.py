"""Pending timers by due time: a wheel of two levels. A timer is in one level, and takes 20 bytes there.

    far      slots of 66 s     ■■■■ ............ ■■ ....... ■        a slot is a bytearray of queue entries:
    near     slots of 16 ms    ■■■■■■■■■■■■■■■                       | offset in the log 8 | size 4 | due 8 |
                                                                     and exists only while it contains one

A new timer goes to the far level, unless the slot for its due time has been poured already. A far slot is poured into
near slots ten seconds before it begins, in pieces. A near slot is taken whole once it is over: no timer is delivered
early, and the wheel delays it by at most 16 ms.

Nothing here is on disk: timers.py fills the wheel from the queue and a file.

`RECALL` may be added to the due time: such an entry is no message, but a request to cancel the delivery of one. Recalls
are in near slots of their own from the start. They are taken together with the slot of the messages that they name.
Source of the idea: TimerWheel and Slot, Java 5.4, whose slots of 1 s are heads of lists in a log of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from sparrowmq.store.layout import ENTRY, ENTRY_SIZE

RECALL: Final = 1 << 61  # added to the due time of a recall; a time in ms stays far below it

_NEAR_BITS: Final = 4
_FAR_BITS: Final = 16
_AHEAD_MS: Final = 10_000
_MAX_WAIT_MS: Final = 60_000
_TIMERS_PER_PIECE: Final = 2048  # timers poured at once: about 1 ms


class Level:
    """The slots of one width, `1 << bits` ms, by their number."""

    __slots__ = ("bits", "order", "slots")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.slots: dict[int, bytearray] = {}
        self.order: list[int] = []  # a heap of the slot numbers

    def add(self, due_ms: int, entry: bytes) -> None:
        number = due_ms >> self.bits
        slot = self.slots.get(number)
        if slot is None:
            slot = self.slots[number] = bytearray()
            heapq.heappush(self.order, number)
        slot += entry

    def pop(self) -> bytearray:
        return self.slots.pop(heapq.heappop(self.order))

    def take_before(self, offset: int, number: int) -> bytearray:
        """Take the timers from one slot whose records are before `offset`."""
        slot, kept_entries, taken_entries = self.slots[number], bytearray(), bytearray()
        for at in range(0, len(slot), ENTRY_SIZE):
            entry = slot[at : at + ENTRY_SIZE]
            (taken_entries if ENTRY.unpack(entry)[0] < offset else kept_entries).extend(entry)
        self.slots[number] = kept_entries  # may be empty; it is dropped when its time comes
        return taken_entries


class TimerWheel:
    def __init__(self, file_size: int) -> None:
        self.count = 0
        self._file_size = file_size
        self._near, self._far, self._recalls = Level(_NEAR_BITS), Level(_FAR_BITS), Level(_NEAR_BITS)
        self._poured_until = 0  # the far slots below this number have been poured
        self.pouring = bytearray()  # the far slot that is being poured
        self._poured_bytes = 0  # of `pouring`
        self._by_file: dict[int, int] = {}  # the number of timers that have their record in a file of the log

    def add(self, offset: int, size: int, due: int) -> None:
        """Add a timer by the place of its record, and its due time in ms; with `RECALL` if it recalls another timer."""
        file = offset // self._file_size
        self._by_file[file] = self._by_file.get(file, 0) + 1
        self.count += 1
        entry, due_ms = ENTRY.pack(offset, size, due), due & (RECALL - 1)
        if due & RECALL:
            self._recalls.add(due_ms, entry)
        elif due_ms >> _FAR_BITS < self._poured_until:
            self._near.add(due_ms, entry)
        else:
            self._far.add(due_ms, entry)

    def settle(self, offset: int) -> None:
        file = offset // self._file_size
        remaining_count = self._by_file[file] - 1
        if remaining_count:
            self._by_file[file] = remaining_count
        else:
            del self._by_file[file]
        self.count -= 1

    @property
    def oldest(self) -> int | None:
        """The begin of the oldest log file that contains a record of a timer; None without timers."""
        return min(self._by_file) * self._file_size if self._by_file else None

    def pour_next(self, now_ms: int) -> bool:
        """Pour a piece of the next far slot. Returns whether there was one; then nothing can be taken yet."""
        if not self.pouring:
            order = self._far.order
            if not order or order[0] << _FAR_BITS > now_ms + _AHEAD_MS:
                return False
            self._poured_until = max(self._poured_until, order[0] + 1)
            self.pouring, self._poured_bytes = self._far.pop(), 0
        end = min(self._poured_bytes + _TIMERS_PER_PIECE * ENTRY_SIZE, len(self.pouring))
        for at in range(self._poured_bytes, end, ENTRY_SIZE):
            entry = bytes(self.pouring[at : at + ENTRY_SIZE])
            self._near.add(ENTRY.unpack(entry)[2] & (RECALL - 1), entry)
        self._poured_bytes = end
        if end == len(self.pouring):
            self.pouring = bytearray()
        return True

    def wait_ms(self, now_ms: int) -> int:
        waits = [_MAX_WAIT_MS]
        waits += [(number << _FAR_BITS) - _AHEAD_MS - now_ms for number in self._far.order[:1]]
        waits += [_end_of_slot(level.order[0]) - now_ms for level in (self._near, self._recalls) if level.order]
        return max(min(waits), 0)

    def take(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return the messages of the next slot that is over, and its recalls. They are pending until settled. Call it
        when there is nothing to pour.
        """
        numbers = [level.order[0] for level in (self._near, self._recalls) if level.order]
        if not numbers or _end_of_slot(number := min(numbers)) > now_ms:
            return b"", b""
        near, recalls = self._near.slots, self._recalls.slots
        return (
            bytes(self._near.pop()) if number in near else b"",
            bytes(self._recalls.pop()) if number in recalls else b"",
        )

    def is_over(self, due_ms: int, now_ms: int) -> bool:
        """Whether the slot of a time is over, so that its timers may have been taken."""
        return _end_of_slot(due_ms >> _NEAR_BITS) <= now_ms

    def slots(self) -> list[bytes]:
        """Return the entries of all timers that have not been taken, for the file."""
        levels = (self._near, self._far, self._recalls)
        slots = [bytes(slot) for level in levels for slot in level.slots.values()]
        return [bytes(self.pouring[self._poured_bytes :]), *slots]

    def take_before(self, offset: int) -> Iterator[bytes]:
        """Take the timers whose records are before an offset in the log, slot by slot. Timers that are poured or added
        meanwhile may be left out.
        """
        for level in (self._near, self._far, self._recalls):
            for number in sorted(level.slots):
                if number in level.slots and (entries := level.take_before(offset, number)):
                    yield bytes(entries)


def _end_of_slot(near_number: int) -> int:
    return (near_number + 1) << _NEAR_BITS
