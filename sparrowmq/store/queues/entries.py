"""Entries of a consume queue as they were read: a view with names over their bytes (layout.py draws an entry).

Numbers are decoded when they are asked for: a pull of 32 entries needs the sum of their sizes and two offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import lt
from typing import Final, NamedTuple

from sparrowmq.kernel.pulls import are_valid
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE

GAP_SIZE: Final = 0x7FFFFFFF  # the size that marks an entry without a message
_SIZE_AT: Final = 8  # in layout.ENTRY
_ENTRIES_PER_SCAN: Final = 512


class Entry(NamedTuple):
    """One entry: the log offset of its message, its size in bytes, and the hash of its tag or its due time."""

    offset: int
    size: int
    tags_code: int

    @property
    def is_gap(self) -> bool:
        return self.size == GAP_SIZE


class Entries:
    """Consecutive entries of a queue, by index from 0 on."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def content(self) -> bytes:
        return self._content

    def __len__(self) -> int:
        return len(self._content) // ENTRY_SIZE

    def __getitem__(self, index: int) -> Entry:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Entry(*ENTRY.unpack_from(self._content, index * ENTRY_SIZE))

    def __iter__(self) -> Iterator[Entry]:
        for index in range(len(self)):
            yield self[index]

    def offset(self, index: int) -> int:
        offset: int = ENTRY.unpack_from(self._content, index * ENTRY_SIZE)[0]
        return offset

    def size(self, index: int) -> int:
        size: int = ENTRY.unpack_from(self._content, index * ENTRY_SIZE)[1]
        return size

    def tags_code(self, index: int) -> int:
        code: int = ENTRY.unpack_from(self._content, index * ENTRY_SIZE)[2]
        return code

    def is_gap(self, index: int) -> bool:
        return self.size(index) == GAP_SIZE

    @property
    def size_bytes(self) -> int:
        """The size of all records together; at least `GAP_SIZE` if there is a gap."""
        return sum(self.columns()[1])

    @property
    def are_valid(self) -> bool:
        """Whether sizes are positive, and each record begins behind the one before. A lost part of a file is zeros, and
        has no positive size.
        """
        return are_valid(self._content)

    @property
    def begin(self) -> int:
        return self.offset(0)

    @property
    def end(self) -> int:
        last = self[len(self) - 1]
        return last.offset + last.size

    def columns(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the offsets and the sizes, for callers that read very many."""
        flat = _flat(len(self)).unpack(self._content)
        return flat[0::3], flat[1::3]


def pack(flat: list[int]) -> bytes:
    """Return the bytes of entries given as offset, size, tags code, and so on, in one list."""
    return _flat(len(flat) // 3).pack(*flat)


@lru_cache(maxsize=1024)
def _flat(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def count_by_bisection(read: Callable[[int, int], bytes], count: int) -> int:
    """Return how many of `count` entries exist, by bisection, in a file that has them without a hole. `read` returns
    that many bytes of the file from a position on.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if any(read(middle * ENTRY_SIZE + _SIZE_AT, 4)):
            low = middle + 1
        else:
            high = middle
    return low


def count_valid(read: Callable[[int, int], bytes], count: int) -> int:
    """Return how many of `count` entries make sense, from the first on: offsets rise, sizes are positive."""
    last = -1
    for start in range(0, count, _ENTRIES_PER_SCAN):
        chunk_count = min(_ENTRIES_PER_SCAN, count - start)
        offsets, sizes = Entries(read(start * ENTRY_SIZE, chunk_count * ENTRY_SIZE)).columns()
        if min(sizes) > 0 and last < offsets[0] and all(map(lt, offsets, offsets[1:])):
            last = offsets[-1]
            continue
        for i, (offset, size) in enumerate(zip(offsets, sizes, strict=True), start):
            is_gap = size == GAP_SIZE and offset == 0
            if size <= 0 or (offset <= last and not is_gap):
                return i
            last = max(last, offset) if not is_gap else last
    return count
