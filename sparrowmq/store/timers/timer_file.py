"""The file of pending timers: what was pending once, and what was settled since. Without it the log tells it, slower.

    timers/%020d    counted up: a new one takes the place of the one before when the settled outweigh the pending
    chunk | "SPTM" 4 | kind 4 | count 4 | queue offset 8 | log offset 8 | `count` items | CRC-32 of all that 4 |
          kind 1   pending: entries as in the queue, 20 bytes; the first chunks, and nowhere else
          kind 2   settled: where the records of timers lay that were delivered, rolled or recalled, 8 bytes

    queue offset    timers of the queue before it are in this file
    log offset      timers that a record before it settles are in this file

So a start takes the pending, takes out the settled, adds what the queue has behind the last queue offset, and takes out
what the records of the log from the last log offset on settle. A settled chunk is written when what settles is on disk,
and not synced: what a crash takes of it, the log says again. Numbers are big-endian.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from sparrowmq.store.layout import ENTRY_SIZE
from sparrowmq.store.numbered_folder import NumberedFolder
from sparrowmq.store.vfs import File, Vfs

log = logging.getLogger(__name__)

_MAGIC: Final = b"SPTM"
_HEAD: Final = struct.Struct(">4siiqq")
_CRC: Final = struct.Struct(">I")
_PENDING: Final = 1
_SETTLED: Final = 2
_SIZES: Final = {_PENDING: ENTRY_SIZE, _SETTLED: 8}
_SPARE_BYTES: Final = 1 << 20  # how much of settled chunks is no reason for a new file


@dataclass(slots=True)
class Known:
    """What a file said.

    Attributes:
        pending: entries.
        settled: where the records of those lay that are not pending any more.
    """

    pending: bytes = b""
    settled: set[int] = field(default_factory=set)
    queue_offset: int = 0
    log_offset: int = 0


class TimerFile:
    """The newest file of a folder; made by the first `replace`."""

    def __init__(self, vfs: Vfs, folder: str) -> None:
        self._vfs = vfs
        self._folder = NumberedFolder(vfs, folder)
        self._file: File | None = None
        self._end = 0
        self._begin_settled = 0

    def load(self) -> Known | None:
        """What the newest file says that can be read; None if there is none. Raises: OutOfResources."""
        for number in self._folder.numbers():
            file = self._folder.open(number, writable=True)
            if known := self._read(self._vfs.read(file, 0, file.size)):
                self._file = file
                return known
            log.warning("%s is damaged; the pending timers are found in the log", file.path)
            self._vfs.close(file)
        return None

    @property
    def wants_replacement(self) -> bool:
        """Whether most of it tells of timers that are no longer pending."""
        return self._file is None or self._end - self._begin_settled > self._begin_settled + _SPARE_BYTES

    def settle(self, offsets: list[int], queue_offset: int, log_offset: int) -> None:
        """Add a chunk of settled timers. Raises: DiskFull, OSError: nothing has changed."""
        assert self._file is not None
        items = struct.pack(f">{len(offsets)}q", *offsets)
        chunk = _chunk(_SETTLED, items, queue_offset, log_offset)
        self._vfs.write(self._file, self._end, chunk)
        self._end += len(chunk)

    def replace(self, pending: list[bytes], queue_offset: int, log_offset: int) -> None:
        """Write a new file, and delete the one before; in any thread. Raises: DiskFull, OSError: it is as before."""
        chunk = _chunk(_PENDING, b"".join(pending), queue_offset, log_offset)
        before, self._file = self._file, self._folder.replace(chunk)
        self._end = self._begin_settled = len(chunk)
        if before is not None:
            self._vfs.close(before)
        self._folder.remove_others()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._vfs.close(self._file)
            self._file = None

    def _read(self, content: bytes) -> Known | None:
        """What its whole chunks say; None if there is not even the first."""
        known, at = Known(), 0
        while (chunk := _whole_chunk(content, at)) is not None:
            kind, items, known.queue_offset, known.log_offset = chunk
            at += _HEAD.size + len(items) + _CRC.size
            if kind == _PENDING:
                known.pending = items
                self._begin_settled = at
            else:
                known.settled.update(struct.unpack(f">{len(items) // 8}q", items))
        self._end = at
        return known if at else None


def _chunk(kind: int, items: bytes, queue_offset: int, log_offset: int) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, len(items) // _SIZES[kind], queue_offset, log_offset)
    return b"".join((head, items, _CRC.pack(crc32(items, crc32(head)))))


def _whole_chunk(content: bytes, at: int) -> tuple[int, bytes, int, int] | None:
    """Kind, items, queue offset and log offset of the chunk at a place; None if none is whole there."""
    if at + _HEAD.size > len(content):
        return None
    magic, kind, count, queue_offset, log_offset = _HEAD.unpack_from(content, at)
    if magic != _MAGIC or kind not in _SIZES or count < 0:
        return None
    begin = at + _HEAD.size
    end = begin + count * _SIZES[kind]
    if end + _CRC.size > len(content):
        return None
    items = content[begin:end]
    is_whole = _CRC.unpack_from(content, end)[0] == crc32(items, crc32(content[at:begin]))
    return (kind, items, queue_offset, log_offset) if is_whole else None
