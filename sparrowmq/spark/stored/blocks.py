"""A log file in blocks of whole records, about a mebibyte each: what is decoded at once.

    file    | record | record | record | record | record | ... | BLANK |
    read    |------ 1 MiB -------|
    block   |-----------------|  |
                              |------ the next read ...

Files are read, never mapped: a disk that fails under a map kills the process. Where no record begins the log is
damaged; reading goes on at the next place that holds a sound record that names this place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.record_layout import (
    INT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE_BYTES,
    PREFIX,
)
from sparrowmq.spark.columns.slices import Positions
from sparrowmq.spark.source.partition_ranges import lose
from sparrowmq.store.log.damage import record_places

BLOCK_BYTES: Final = 1 << 20
_LARGEST_RECORD_BYTES: Final = 256 << 20  # far above maxMessageSize; a size beyond it is damage


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log; `begin` is the offset of its first byte."""

    path: str
    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Span:
    """Whole records of one file: the bytes from `start` to `end`, counted from the file's first one."""

    file: LogFile
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class Block(NamedTuple):
    """Records end to end."""

    at: int  # where in the file `raw` begins
    raw: bytes
    starts: Positions  # of the records, in `raw`
    ends: Positions

    def places(self) -> list[tuple[int, int]]:
        """The begin and end of each record in the file."""
        return list(zip((self.starts + self.at).tolist(), (self.ends + self.at).tolist(), strict=True))

    @property
    def end(self) -> int:
        """The end of the last record in the file."""
        return self.at + int(self.ends[-1])


class Opened:
    """A log file that is open for reading."""

    def __init__(self, file: LogFile) -> None:
        """Raises: OSError."""
        self.file = file
        self._descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the file's end. Raises: OSError."""
        return os.pread(self._descriptor, size, position)

    def is_sound(self, start: int, end: int) -> bool:
        """Whether the bytes are a record that names this place and fits its CRCs."""
        return record.check(self.read(start, end - start), self.file.begin + start) is None

    def next_sound(self, position: int) -> int | None:
        """The next place of a sound record, from `position` on."""
        file = self.file
        for place in record_places(self.read, file.begin, position, file.size):
            (size,) = INT.unpack(self.read(place, INT.size))
            fits = MIN_SIZE_BYTES <= size <= min(file.size - place, _LARGEST_RECORD_BYTES)
            if fits and self.is_sound(place, place + size):
                return place
        return None

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)


def blocks(opened: Opened, span: Span, *, fail: bool = True, may_end: bool = False) -> Iterator[Block]:
    """The records of a span.

    Args:
        fail: whether damage is an error; else it is passed over, and the log says how much.
        may_end: whether the log may end within the span. It does where neither record nor BLANK follows.
    Raises:
        RowsLost: the file is damaged.
        OSError: it cannot be read.
    """
    position = span.start
    while position < span.end:
        raw, places, used = _next(opened, position, span.end - position)
        if used:
            starts = np.frombuffer(places, "<i8")
            yield Block(position, raw, starts, np.append(starts[1:], used))
            position += used
        elif may_end or _is_blank(raw, left=opened.file.size - position):
            return
        else:
            following = min(opened.next_sound(position + 1) or span.end, span.end)
            lose_damaged(opened.file, position, following, fail=fail)
            position = following


def lose_damaged(file: LogFile, start: int, end: int, *, fail: bool) -> None:
    """Damage was found: end the query, or say it in the log and go on. Raises: RowsLost."""
    what = f"{file.path} is damaged from offset {file.begin + start} to {file.begin + end}"
    lose(what, fail=fail, advice="Read another copy of it, or set failOnDataLoss=false to read what is sound")


def _next(opened: Opened, position: int, left: int) -> tuple[bytes, bytes, int]:
    """The bytes at a position, where records begin in them, and where the last whole one ends; 0 if there is none."""
    raw = opened.read(position, min(BLOCK_BYTES, left))
    places, used = record.leading(raw)
    if not used and len(raw) >= PREFIX.size:
        size, magic = PREFIX.unpack_from(raw)
        if magic in (MAGIC_V1, MAGIC_V2) and len(raw) < size <= min(left, _LARGEST_RECORD_BYTES):
            raw = opened.read(position, size)
            places, used = record.leading(raw)
    return raw, places, used


def _is_blank(raw: bytes, left: int) -> bool:
    """Whether the log goes on in the next file: a BLANK, or no room for one."""
    return left < PREFIX.size or (len(raw) >= PREFIX.size and PREFIX.unpack_from(raw)[1] == MAGIC_BLANK)
