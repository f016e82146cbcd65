"""Pending timers by the time at which they are due: a wheel of three levels, of which one level holds 20 bytes a timer.

    far      slots of 8.7 minutes  ■■■■ ............ ■■ ....... ■        a slot is a bytearray of queue entries:
    middle   slots of 4.1 s        ■■■■■■■■■■                            | offset in the log 8 | size 4 | due 8 |
    near     slots of 16 ms        ■■■■■■■■■■■■■■■                       and is there only while it holds one

A timer goes to the level whose slots its time has not been poured from yet. A minute before a far slot begins it is
poured into middle ones, four seconds before a middle one does, into near ones; in pieces, so that a million timers of
one minute do not stop the loop. A near slot is taken whole once it is over: nothing is delivered early, and by the
wheel's doing at most 16 ms late. A time that has passed already is a near slot as any other, and is taken next.

The wheel knows the clock only by what it is told, so a clock that goes back makes timers wait, as everybody's clock
does, and one that goes forward makes them due. Nothing here is on disk: timers.py makes it of the queue and a file.

The due time may have `RECALL` added: such an entry is no message but the wish to let one not be delivered. Recalls lie
in near slots of their own from the start, and are taken with the slot of the messages that they name.
Source of the idea: TimerWheel and Slot, Java 5.4, whose slots of 1 s are heads of lists in a log of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from sparrowmq.store.layout import ENTRY, ENTRY_SIZE

RECALL: Final = 1 << 61  # added to the due time of a recall; a time in ms stays far below it

_NEAR_BITS: Final = 4
_MIDDLE_BITS: Final = 12
_FAR_BITS: Final = 19
_MIDDLE_AHEAD_MS: Final = 1 << _MIDDLE_BITS
_FAR_AHEAD_MS: Final = 60_000
_PIECE: Final = 2048  # timers poured at once: about 1 ms


class Level:
    """The slots of one width, `1 << bits` ms, by their number."""

    __slots__ = ("bits", "order", "slots")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.slots: dict[int, bytearray] = {}
        self.order: list[int] = []  # a heap of their numbers

    def add(self, due_ms: int, entry: bytes) -> None:
        """Put an entry into its slot."""
        number = due_ms >> self.bits
        slot = self.slots.get(number)
        if slot is None:
            slot = self.slots[number] = bytearray()
            heapq.heappush(self.order, number)
        slot += entry

    def pop(self) -> bytearray:
        """The earliest slot, which leaves. Raises: IndexError, there is none."""
        return self.slots.pop(heapq.heappop(self.order))

    def take_before(self, offset: int, number: int) -> bytearray:
        """Take from one slot the timers whose records lie before `offset`."""
        slot, kept, taken = self.slots[number], bytearray(), bytearray()
        for at in range(0, len(slot), ENTRY_SIZE):
            entry = slot[at : at + ENTRY_SIZE]
            (taken if ENTRY.unpack(entry)[0] < offset else kept).extend(entry)
        self.slots[number] = kept  # perhaps empty; it is dropped in its time
        return taken


class TimerWheel:
    """The timers that are pending.

    Args:
        file_size: of the files of the log, for `oldest`.
    """

    def __init__(self, file_size: int) -> None:
        self.count = 0
        self._file_size = file_size
        self._near, self._middle, self._far = Level(_NEAR_BITS), Level(_MIDDLE_BITS), Level(_FAR_BITS)
        self._recalls = Level(_NEAR_BITS)
        # Up to which slot, exclusive, the level above has been poured into this one.
        self._near_until = 0
        self._middle_until = 0
        self._pouring: list[tuple[Level, bytearray]] = []
        self._poured = 0  # bytes of the last of `_pouring`
        self._by_file: dict[int, int] = {}  # how many have their record in a file of the log

    def add(self, offset: int, size: int, due: int) -> None:
        """A timer.

        Args:
            offset, size: of its record in the log.
            due: when it is, in ms; with `RECALL` if it recalls another one.
        """
        file = offset // self._file_size
        self._by_file[file] = self._by_file.get(file, 0) + 1
        self.count += 1
        entry, due_ms = ENTRY.pack(offset, size, due), due & (RECALL - 1)
        if due & RECALL:
            self._recalls.add(due_ms, entry)
        elif due_ms >> _MIDDLE_BITS < self._near_until:
            self._near.add(due_ms, entry)
        elif due_ms >> _FAR_BITS < self._middle_until:
            self._middle.add(due_ms, entry)
        else:
            self._far.add(due_ms, entry)

    def settle(self, offset: int) -> None:
        """A timer that was taken needs its record no more."""
        file = offset // self._file_size
        left = self._by_file[file] - 1
        if left:
            self._by_file[file] = left
        else:
            del self._by_file[file]
        self.count -= 1

    @property
    def is_pouring(self) -> bool:
        """Whether some timers are in no slot just now."""
        return bool(self._pouring)

    @property
    def oldest(self) -> int | None:
        """Where the oldest file of the log begins that has a record of a timer; None without timers."""
        return min(self._by_file) * self._file_size if self._by_file else None

    def turn(self, now_ms: int) -> bool:
        """Pour a piece of what comes near; whether there is more to pour, so that nothing can be taken yet."""
        if self._pouring:
            self._pour()
        elif _begins(self._far, now_ms + _FAR_AHEAD_MS):
            self._middle_until = max(self._middle_until, self._far.order[0] + 1)
            self._pouring.append((self._middle, self._far.pop()))
        elif _begins(self._middle, now_ms + _MIDDLE_AHEAD_MS):
            self._near_until = max(self._near_until, self._middle.order[0] + 1)
            self._pouring.append((self._near, self._middle.pop()))
        else:
            return False
        return True

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing is to be done."""
        waits = [_FAR_AHEAD_MS]
        for level, ahead_ms in ((self._far, _FAR_AHEAD_MS), (self._middle, _MIDDLE_AHEAD_MS)):
            if level.order:
                waits.append((level.order[0] << level.bits) - ahead_ms - now_ms)
        waits += [_end(level.order[0]) - now_ms for level in (self._near, self._recalls) if level.order]
        return max(min(waits), 0)

    def take(self, now_ms: int) -> tuple[bytes, bytes]:
        """The messages of the next slot that is over, and the recalls of it; nothing if none is.

        They count as pending until they are settled. To be called when there is nothing to pour.
        """
        numbers = [level.order[0] for level in (self._near, self._recalls) if level.order]
        if not numbers or _end(number := min(numbers)) > now_ms:
            return b"", b""
        near, recalls = self._near.slots, self._recalls.slots
        return (
            bytes(self._near.pop()) if number in near else b"",
            bytes(self._recalls.pop()) if number in recalls else b"",
        )

    def is_over(self, due_ms: int, now_ms: int) -> bool:
        """Whether the slot of a time is over, so that whatever was due then may have been taken."""
        return _end(due_ms >> _NEAR_BITS) <= now_ms

    def slots(self) -> list[bytes]:
        """The entries of all timers that were not taken, for the file."""
        found = [bytes(slot) for _, slot in self._pouring]
        if found:
            found[-1] = found[-1][self._poured :]
        levels = (self._near, self._middle, self._far, self._recalls)
        return found + [bytes(slot) for level in levels for slot in level.slots.values()]

    def take_before(self, offset: int) -> Iterator[bytes]:
        """Take the timers whose records lie before an offset in the log, slot by slot.

        What is poured or added meanwhile may be left out.
        """
        for level in (self._near, self._middle, self._far, self._recalls):
            for number in sorted(level.slots):
                if number in level.slots and (taken := level.take_before(offset, number)):
                    yield bytes(taken)

    def _pour(self) -> None:
        level, slot = self._pouring[-1]
        end = min(self._poured + _PIECE * ENTRY_SIZE, len(slot))
        for at in range(self._poured, end, ENTRY_SIZE):
            entry = bytes(slot[at : at + ENTRY_SIZE])
            level.add(ENTRY.unpack(entry)[2] & (RECALL - 1), entry)
        self._poured = end
        if end == len(slot):
            self._pouring.pop()
            self._poured = 0


def _begins(level: Level, ms: int) -> bool:
    """Whether the earliest slot of a level begins by then."""
    return bool(level.order) and level.order[0] << level.bits <= ms


def _end(near_number: int) -> int:
    """When a near slot is over."""
    return (near_number + 1) << _NEAR_BITS
