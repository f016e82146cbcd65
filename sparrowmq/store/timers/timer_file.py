"""The file of pending timers: snapshots of pending timers, and settled ones. Without it a start reads the log, slower.

    timers/%020d    numbered: a new file replaces the previous one when the settled outweigh the pending
    chunk | "SPTM" 4 | kind 4 | count 4 | queue offset 8 | log offset 8 | `count` items | CRC-32 of all that 4 |
          kind 1   pending: entries as in the queue, 20 bytes; the first chunk, and only the first
          kind 2   settled: the log offsets of timers that were delivered, rolled or recalled, 8 bytes

    queue offset    timers of the queue before it are in this file: the same in all chunks of a file
    log offset      timers that a record before it settles are in this file

A start takes the pending timers and adds the queue's timers from the queue offset on. Then it removes the settled ones,
and those that records of the log settle, from the last log offset on. A settled chunk is written when the records that
settle are on disk. It is not synced: the log contains everything that a crash takes from it. Numbers are big-endian.
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
_SPARE_BYTES: Final = 1 << 20  # settled chunks up to this size need no new file


@dataclass(slots=True)
class SavedTimers:
    pending: bytes = b""  # entries
    finished: set[int] = field(default_factory=set)  # the log offsets of timers that are no longer pending
    queue_offset: int = 0
    log_offset: int = 0


class TimerFile:
    """The newest file of a folder. The first `replace` creates it."""

    def __init__(self, vfs: Vfs, folder: str) -> None:
        self._vfs = vfs
        self._folder = NumberedFolder(vfs, folder)
        self._file: File | None = None
        self._end = 0
        self._begin_settled = 0
        self._queue_offset = 0

    def load(self) -> SavedTimers | None:
        """Return the content of the newest readable file; None if there is none. Raises: OutOfResources."""
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
        """Whether most of the file is about timers that are no longer pending."""
        return self._file is None or self._end - self._begin_settled > self._begin_settled + _SPARE_BYTES

    def settle(self, offsets: list[int], log_offset: int) -> None:
        """Add a chunk of settled timers. Raises: DiskFull, OSError: nothing has changed."""
        assert self._file is not None
        items = struct.pack(f">{len(offsets)}q", *offsets)
        chunk = _chunk(_SETTLED, items, self._queue_offset, log_offset)
        self._vfs.write(self._file, self._end, chunk)
        self._end += len(chunk)

    def replace(self, pending: list[bytes], queue_offset: int, log_offset: int) -> None:
        """Write a new file, and delete the previous one; in any thread.

        Raises: DiskFull, OSError, nothing has changed.
        """
        chunk = _chunk(_PENDING, b"".join(pending), queue_offset, log_offset)
        before, self._file = self._file, self._folder.replace(chunk)
        self._end = self._begin_settled = len(chunk)
        self._queue_offset = queue_offset
        if before is not None:
            self._vfs.close(before)
        self._folder.remove_others()

    def close(self) -> None:
        if self._file is not None:
            self._vfs.close(self._file)
            self._file = None

    def _read(self, content: bytes) -> SavedTimers | None:
        """Return the content of the whole chunks; None if not even the first is whole."""
        known, at = SavedTimers(), 0
        while (chunk := _whole_chunk(content, at)) is not None:
            kind, items, queue_offset, known.log_offset = chunk
            at += _HEAD.size + len(items) + _CRC.size
            if kind == _PENDING:
                known.pending = items
                known.queue_offset = self._queue_offset = queue_offset
                self._begin_settled = at
            else:
                known.finished.update(struct.unpack(f">{len(items) // 8}q", items))
        self._end = at
        return known if at else None


def _chunk(kind: int, items: bytes, queue_offset: int, log_offset: int) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, len(items) // _SIZES[kind], queue_offset, log_offset)
    return b"".join((head, items, _CRC.pack(crc32(items, crc32(head)))))


def _whole_chunk(content: bytes, at: int) -> tuple[int, bytes, int, int] | None:
    """Return kind, items, queue offset and log offset of the chunk at a position; None if no whole chunk is there."""
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
