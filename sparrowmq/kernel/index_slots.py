"""The slots of an index file in memory, and the linking of new entries to them; store/index.py draws the file.

slot hash % slots ──> newest entry ── previous ──> the entry before it in the slot ── ... ── 0
"""

from __future__ import annotations

from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.index_layout import ENTRY_BYTES, KEY_BYTES, PART_BITS, SLOT_BYTES

_OFFSET_IN_KEY, _TIME_IN_KEY = 8, 16
_PREVIOUS_IN_ENTRY = 16
_MAX_SECONDS = 0x7FFFFFFF


class IndexSlots:
    """For each slot the number of its newest entry, 0 for none, as int32, and which parts changed.

    Attributes:
        used: the slots that a link has found empty.
    """

    __slots__ = ("_changed", "_count", "_numbers", "used")

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers = Out()
        self._numbers.zeros(count * SLOT_BYTES)
        self._changed = Out()
        self._changed.zeros(((count >> PART_BITS) + 1) * SLOT_BYTES)
        self.used = 0

    def load(self, at: int, content: bytes) -> None:
        """Set the slots from byte `at` on."""
        self._numbers.put(at, content)

    def newest(self, slot: int) -> int:
        return self._numbers.i32_at(slot * SLOT_BYTES)

    def link(self, keys: bytes, first: int, begin_ms: int) -> bytes:
        """Link keys, as `KeyHashes` has them, to entries from number `first` on of a file that begins at `begin_ms`.

        Returns: the entries.
        """
        source, out, numbers = In(keys), Out(), self._numbers
        at, number = 0, first
        while at < source.size:
            key_hash, stored_ms = source.i64(at), source.i64(at + _TIME_IN_KEY)
            slot_at = key_hash % self._count * SLOT_BYTES
            previous = numbers.i32_at(slot_at)
            if previous <= 0 or previous >= number:
                previous = 0
                self.used += 1
            seconds = 0
            if begin_ms > 0 and stored_ms > begin_ms:
                seconds = min((stored_ms - begin_ms) // 1000, _MAX_SECONDS)
            out.i32(key_hash)
            out.i64(source.i64(at + _OFFSET_IN_KEY))
            out.i32(seconds)
            out.i32(previous)
            numbers.put_i32(slot_at, number)
            self._changed.put_i32((slot_at // SLOT_BYTES >> PART_BITS) * SLOT_BYTES, 1)
            number += 1
            at += KEY_BYTES
        return out.take()

    def unlink(self, entries: bytes) -> None:
        """Undo the link that returned these entries: they could not be written."""
        source, at = In(entries), len(entries) - ENTRY_BYTES
        while at >= 0:
            previous = source.i32(at + _PREVIOUS_IN_ENTRY)
            self.used -= previous == 0
            self._numbers.put_i32(source.i32(at) % self._count * SLOT_BYTES, previous)
            at -= ENTRY_BYTES

    def link_again(self, entries: bytes, first: int) -> None:
        """Have the slots lead to these entries, which are in the file from number `first` on."""
        source, at, number = In(entries), 0, first
        while at < source.size:
            slot = source.i32(at) % self._count
            if slot < 0:  # in C, of a damaged entry
                slot += self._count
            slot_at = slot * SLOT_BYTES
            if self._numbers.i32_at(slot_at) == 0:
                self.used += 1
            self._numbers.put_i32(slot_at, number)
            number += 1
            at += ENTRY_BYTES

    def take_changed(self) -> list[int]:
        """The numbers of the parts that changed since the last call."""
        parts = []
        for part in range(self._changed.size // SLOT_BYTES):
            if self._changed.i32_at(part * SLOT_BYTES) != 0:
                parts.append(part)
                self._changed.put_i32(part * SLOT_BYTES, 0)
        return parts

    def note_changed(self, parts: list[int]) -> None:
        for part in parts:
            self._changed.put_i32(part * SLOT_BYTES, 1)

    def part(self, number: int) -> bytes:
        """The slots of a part, as in the file."""
        begin = number << PART_BITS
        return self._numbers.piece(begin * SLOT_BYTES, min(begin + (1 << PART_BITS), self._count) * SLOT_BYTES)

    def content(self) -> bytes:
        return self._numbers.content()


def count_used(slots: bytes) -> int:
    """The number of slots that are not 0."""
    source, at, count = In(slots), 0, 0
    while at < source.size:
        count += source.i32(at) != 0
        at += SLOT_BYTES
    return count
