"""The ends of all queues, on disk beside the checkpoint. With them a start detects queue files that are wrong.

    ends/%020d      counted up, allocated: when a chunk has no room in it, a new file takes its place; zeros at its end
    chunk | "SPQE" 4 | kind 4 | count 4 | size 4 | positions as in the checkpoint 6 x 8 | time 8 | items | CRC-32 4 |
          kind 1    all queues that have entries, and all deletions: the first chunk, and nowhere else
          kind 2    the queues that changed since the chunk before it
          kind 3    one deletion, when a topic is deleted
    item  | kind 1 | name 2 + n | 1: queue id 4 | begin 8 | end 8 | CRC 4 | number of full files 4 | 8 for each |
                                | 2: log offset 8: records before it are of the deleted topic; of all topics if n = 0 |

    begin, end      in entries; `begin` is the first one of the queue's first file
    CRC             of the entries in the last file up to `end`; of a full file of all of it, -1 if it is not known

A checkpoint adds a chunk and syncs it before it records its own positions. The log remains the truth: entries that a
queue's files lack, or that differ, are taken from it. Those whose records it no longer has become a gap, and their
offsets are never used again. Each chunk contains positions, so the file is also the checkpoint's second copy. If Java's
broker ran last, the file is void. Numbers are big-endian.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final, TypeAlias
from zlib import crc32

from sparrowmq.errors import DiskFull
from sparrowmq.store.layout import NO_CRC
from sparrowmq.store.queues.queue_files import QueueEnd
from sparrowmq.store.vfs import File, NumberedFolder, Vfs

log = logging.getLogger(__name__)

_MAGIC: Final = b"SPQE"
_HEAD: Final = struct.Struct(">4siii7q")
_CRC: Final = struct.Struct(">I")
_NAME: Final = struct.Struct(">BH")
_END: Final = struct.Struct(">iqqIi")
_DELETED: Final = struct.Struct(">q")
_ALL_CHUNK: Final = 1
_CHANGES_CHUNK: Final = 2
_DELETION_CHUNK: Final = 3
_QUEUE_ITEM: Final = 1
_TOPIC_ITEM: Final = 2
_ROOM_BYTES: Final = 16 << 10  # the least room for changes

Key: TypeAlias = tuple[str, int]

ALL_TOPICS: Final = ""  # the topic of a deletion of the log's files before an offset


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions up to which log, queues and index are on disk. Invariant: scan_from <= dispatched <= flushed."""

    scan_from: int  # a record begins there; a start checks the log from there on
    flushed: int  # the log is on disk up to there
    dispatched: int  # queues and index are on disk for all records before it
    index_file: int = 0  # the growing index file, its name as a number; 0 for none, -1 if the index is off or damaged
    index_next: int = 0  # its next entry
    crc_from: int = NO_CRC  # SparrowMQ wrote each record from there on, and each has a CRC property


def merge_positions(first: Positions | None, second: Positions | None) -> Positions | None:
    """Return the positions on which two copies agree. A crash may have left one copy outdated, or missing.

    Queues and index are trusted up to the lower position. The log is on disk up to the higher one: both copies are
    right about the past.
    """
    if first is None or second is None:
        return first or second
    lower = first if first.dispatched <= second.dispatched else second
    return replace(lower, flushed=max(first.flushed, second.flushed))


@dataclass(slots=True)
class SavedEnds:
    """The content of the file."""

    # The checkpoint's positions when the last chunk was written; None if there was none.
    positions: Positions | None = None
    log_ms: int = 0
    # Of each queue, for the records before `positions.dispatched`.
    ends: dict[Key, QueueEnd] = field(default_factory=dict)
    # By topic, the log offset before which its records belong to a deleted topic of that name.
    deleted: dict[str, int] = field(default_factory=dict)
    # Whether there was a file, but none could be read. Then the checksums of queue files are lost.
    is_lost: bool = False


class QueueEnds:
    """The newest file of the folder. Its content is also kept in memory, packed, for the next whole file.

    Checkpoints write it in a thread, deletions on the event loop: one at a time.
    """

    def __init__(self, vfs: Vfs, folder: str) -> None:
        self._vfs = vfs
        self._folder = NumberedFolder(vfs, folder)
        self._file: File | None = None
        self._size = 0
        self._queues: dict[str, dict[int, bytes]] = {}  # by topic: a deletion takes no time for other topics
        self._deleted: dict[str, int] = {}
        self._deleted_topics: set[str] = set()  # topics deleted since the ends of the next chunk were collected
        self._positions, self._log_ms = Positions(0, 0, 0), 0
        self._lock = Lock()

    def load(self) -> SavedEnds:
        """Return the content of the newest readable file. The next `write` creates another. Raises: OutOfResources."""
        numbers = self._folder.numbers()
        for number in numbers:
            file = self._folder.open(number, writable=False)
            saved = _read(self._vfs.read(file, 0, file.size))
            self._vfs.close(file)
            if saved.positions is not None:
                return saved
            log.warning("%s is damaged", file.path)
        return SavedEnds(is_lost=bool(numbers))

    def begin(self, content: SavedEnds) -> None:
        """Continue from content that is known to be right. The next `write` creates a new file."""
        self._deleted = dict(content.deleted)
        self._queues = {}
        self._remember({key: _pack_queue(key, end) for key, end in content.ends.items()})

    def write(self, changed: dict[Key, QueueEnd], positions: Positions, log_ms: int) -> None:
        """Add the changes before a checkpoint, and sync them. Raises: DiskFull, OSError: nothing has changed."""
        with self._lock:
            items = {key: _pack_queue(key, end) for key, end in changed.items() if key[0] not in self._deleted_topics}
            chunk = _chunk(_CHANGES_CHUNK, items.values(), positions, log_ms)
            if not self._append(chunk):
                self._replace([*self._pack_others(items), *items.values()], positions, log_ms)
            self._remember(items)
            self._positions, self._log_ms = positions, log_ms

    def take_deleted_topics(self) -> set[str]:
        """Return the topics deleted since the last call, when the ends of the next chunk are collected."""
        with self._lock:
            deleted, self._deleted_topics = self._deleted_topics, set()
        return deleted

    def delete(self, topic: str, log_end: int) -> None:
        """Write the deletion of a topic, to which no record before `log_end` belongs. Raises: DiskFull, OSError, it is
        in memory only.
        """
        with self._lock:
            self._deleted[topic] = log_end
            self._deleted_topics.add(topic)
            self._queues.pop(topic, None)
            try:
                chunk = _chunk(_DELETION_CHUNK, [_pack_deletion(topic, log_end)], self._positions, 0)
                if self._file is not None and not self._append(chunk):
                    self._replace([*self._pack_others({})], self._positions, self._log_ms)
            except (DiskFull, OSError):
                self.close()  # so that the next successful write contains the deletion
                raise

    def _remember(self, items: dict[Key, bytes]) -> None:
        for (topic, queue_id), packed in items.items():
            self._queues.setdefault(topic, {})[queue_id] = packed

    def _pack_others(self, items: dict[Key, bytes]) -> Iterator[bytes]:
        for topic, queues in self._queues.items():
            for queue_id, packed in queues.items():
                if (topic, queue_id) not in items:
                    yield packed

    def close(self) -> None:
        if self._file is not None:
            self._vfs.close(self._file)
            self._file = None

    def _append(self, chunk: bytes) -> bool:
        if self._file is None or self._size + len(chunk) > self._file.size:
            return False
        self._vfs.write(self._file, self._size, chunk)
        self._vfs.sync(self._file)
        self._size += len(chunk)
        return True

    def _replace(self, queues: list[bytes], positions: Positions, log_ms: int) -> None:
        items = [*queues, *(_pack_deletion(*deletion) for deletion in self._deleted.items())]
        chunk = _chunk(_ALL_CHUNK, items, positions, log_ms)
        file = self._folder.replace(chunk, 3 * len(chunk) + _ROOM_BYTES)
        self.close()
        self._file, self._size = file, len(chunk)
        self._folder.remove_others()


def _pack_queue(key: Key, end: QueueEnd) -> bytes:
    topic, queue_id = key
    name = topic.encode()
    numbers = _END.pack(queue_id, end.begin, end.end, end.crc, len(end.full_crcs))
    return b"".join(
        (_NAME.pack(_QUEUE_ITEM, len(name)), name, numbers, struct.pack(f">{len(end.full_crcs)}q", *end.full_crcs))
    )


def _pack_deletion(topic: str, log_end: int) -> bytes:
    name = topic.encode()
    return b"".join((_NAME.pack(_TOPIC_ITEM, len(name)), name, _DELETED.pack(log_end)))


def _chunk(kind: int, items: Iterable[bytes], positions_at_end: Positions, log_ms: int) -> bytes:
    items = list(items)
    content = b"".join(items)
    positions = (
        positions_at_end.scan_from,
        positions_at_end.flushed,
        positions_at_end.dispatched,
        positions_at_end.index_file,
        positions_at_end.index_next,
        positions_at_end.crc_from,
        log_ms,
    )
    head = _HEAD.pack(_MAGIC, kind, len(items), len(content), *positions)
    return b"".join((head, content, _CRC.pack(crc32(content, crc32(head)))))


def _read(content: bytes) -> SavedEnds:
    """Return the content of a file's whole chunks. There must be a first one."""
    saved, at = SavedEnds(), 0
    while at + _HEAD.size + _CRC.size <= len(content):
        magic, kind, count, size, *positions, log_ms = _HEAD.unpack_from(content, at)
        begin, end = at + _HEAD.size, at + _HEAD.size + size
        if magic != _MAGIC or size < 0 or end + _CRC.size > len(content) or (kind == _ALL_CHUNK) != (at == 0):
            break
        if _CRC.unpack_from(content, end)[0] != crc32(content[at:end]):
            break
        _add_chunk(saved, content[begin:end], count, is_deletion=kind == _DELETION_CHUNK)
        if kind != _DELETION_CHUNK:
            saved.positions, saved.log_ms = Positions(*positions), log_ms
        at = end + _CRC.size
    return saved


def _add_chunk(saved: SavedEnds, content: bytes, count: int, is_deletion: bool) -> None:
    """Add a chunk's items. Queues beside an old deletion belong to a topic that was created again."""
    for item in _items(content, count):
        if isinstance(item, tuple):
            topic, offset = item
            saved.deleted[topic] = offset
            for key in [key for key in saved.ends if is_deletion and key[0] == topic]:
                del saved.ends[key]
        else:
            saved.ends.update(item)


def _items(content: bytes, count: int) -> Iterator[tuple[str, int] | dict[Key, QueueEnd]]:
    at = 0
    for _ in range(count):
        kind, length = _NAME.unpack_from(content, at)
        name_end = at + _NAME.size + length
        topic = content[at + _NAME.size : name_end].decode()
        if kind == _TOPIC_ITEM:
            yield topic, _DELETED.unpack_from(content, name_end)[0]
            at = name_end + _DELETED.size
        else:
            queue_id, begin, end, crc, files = _END.unpack_from(content, name_end)
            at = name_end + _END.size + 8 * files
            full = struct.unpack_from(f">{files}q", content, name_end + _END.size)
            yield {(topic, queue_id): QueueEnd(begin, end, crc, full)}
