"""The checkpoint: the offset up to which everything is on disk. A start need not check older records.

     0  8  store timestamp of the last record that is on disk                   Java's; 4,096 bytes in all
     8  8  store timestamp of the last record whose queue entry is on disk
    16  8  store timestamp of the last record whose index entries are on disk
    24 16  two offsets of 5.x: flushed by the master, confirmed
    64  8  "SPARROW1"                                                           ours; Java neither reads nor writes it
    72  8  scan from: a record begins there; a start checks the log from there on
    80  8  flushed: the log is on disk up to there
    88  8  dispatched: queues and index are on disk for all records before it
    96  8  the index file that grew, its name as a number; 0 for none, -1 if the index is off or damaged
   104  8  its next entry
   112  8  CRC from: each record from there on was written by us, and has a property CRC
   120  4  CRC-32 of bytes 0 to 120

All fields are in one sector, which a disk writes whole. If the CRC does not match, Java has run on the store in the
meantime, or the sector is damaged: our fields are then ignored. After Java, its timestamps say where a start begins, as
in Java. Otherwise the copy beside the ends of the queues says it (queue_ends.py).
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

from sparrowmq.errors import DiskFull
from sparrowmq.store.index import Index, Unwritten
from sparrowmq.store.layout import NO_CRC, SECTOR
from sparrowmq.store.queues.queue_ends import ALL_TOPICS, Positions, QueueEnds
from sparrowmq.store.queues.queue_files import QueueEnd
from sparrowmq.store.vfs import Unsynced, Vfs, closing, content_of

log = logging.getLogger(__name__)

FILE_SIZE: Final = 4096
_JAVA: Final = struct.Struct(">qqqqq")
_OURS: Final = struct.Struct(">8sqqqqqq")
_OURS_AT: Final = 64
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = _OURS_AT + _OURS.size
_MAGIC: Final = b"SPARROW1"
# Bytes at the log's end that a start checks although they were on disk. The check is too fast to notice.
VERIFIED_BYTES: Final = 16 << 20
# After so many bytes a checkpoint is due, however soon after the last one. The start after a kill puts the later
# records into queues and index again, at about 3 us a message.
DUE_BYTES: Final = 32 << 20
_MARK_BYTES: Final = 1 << 20
UNKNOWN_INDEX: Final = -1  # as the index file: the index lacks keys; a start that uses it builds it again
_JAVA_MARGIN_MS: Final = 3000  # StoreCheckpoint.getMinTimestamp


@dataclass(frozen=True, slots=True)
class Checkpoint:
    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    flushed_by_master: int = 0
    confirmed: int = 0
    positions: Positions | None = None

    @property
    def safe_ms(self) -> int:
        """The time before which all stored records are on disk in log and queues, by Java's rule."""
        return max(0, min(self.log_ms, self.queues_ms) - _JAVA_MARGIN_MS)


def pack(checkpoint: Checkpoint) -> bytes:
    positions = checkpoint.positions
    assert positions is not None
    covered = _JAVA.pack(
        checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms, checkpoint.flushed_by_master, checkpoint.confirmed
    ).ljust(_OURS_AT, b"\0") + _OURS.pack(
        _MAGIC,
        positions.scan_from,
        positions.flushed,
        positions.dispatched,
        positions.index_file,
        positions.index_next,
        positions.crc_from,
    )
    return (covered + _CRC.pack(crc32(covered))).ljust(SECTOR, b"\0")


def unpack(sector: bytes) -> Checkpoint:
    sector = sector.ljust(SECTOR, b"\0")
    magic, *numbers = _OURS.unpack_from(sector, _OURS_AT)
    is_ours = magic == _MAGIC and _CRC.unpack_from(sector, _CRC_AT)[0] == crc32(sector[:_CRC_AT])
    log_ms, queues_ms, index_ms, by_master, confirmed = _JAVA.unpack_from(sector)
    positions = Positions(*numbers) if is_ours else None
    return Checkpoint(log_ms, queues_ms, index_ms, by_master, confirmed, positions)


def load(vfs: Vfs, path: str) -> Checkpoint:
    return unpack(content_of(vfs, path, SECTOR)) if vfs.exists(path) else Checkpoint()


def save(vfs: Vfs, path: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, and return once it is on disk. The caller syncs the folder if the file is new."""
    exists = vfs.exists(path)
    with closing(vfs, vfs.open(path, True) if exists else vfs.create(path, FILE_SIZE, allocate=True)) as file:
        if file.size < FILE_SIZE:
            vfs.truncate(file, FILE_SIZE)
        vfs.write(file, 0, pack(checkpoint))
        vfs.sync(file)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """Everything that one checkpoint writes, collected on the loop so that a thread can write it."""

    checkpoint: Checkpoint
    unsynced: Unsynced
    ends: dict[tuple[str, int], QueueEnd]
    unwritten_slots: list[Unwritten]


class Checkpointer:
    def __init__(self, vfs: Vfs, path: str, unsynced: Unsynced, index: Index | None, ends: QueueEnds) -> None:
        self._vfs = vfs
        self._ends = ends
        self._changed_ends: dict[tuple[str, int], QueueEnd] = {}
        self._path = path
        self._unsynced = unsynced
        self._index = index
        # Offsets at which records begin, rising. A start checks the log from the first one on.
        self._marks: deque[int] = deque()
        self._last_end = 0  # the log's end at the last checkpoint, written or not
        self.crc_from = NO_CRC
        # By the checkpoint on disk, log, queues and index are on disk up to this offset.
        self.written_offset = 0

    def start(self, *marks: int) -> None:
        self._marks = deque(marks)
        self._last_end = marks[-1]

    def mark(self, offset: int) -> None:
        """Remember that a record begins, or the log ends, at `offset`. A start may begin its check there."""
        if offset - self._marks[-1] >= _MARK_BYTES:
            self._marks.append(offset)

    def is_due(self, end: int) -> bool:
        return end - self._last_end >= DUE_BYTES

    def note_deletion_before(self, offset: int) -> None:
        """Write down that the log's files before `offset` are deleted: a start must not miss them. Raises: OSError."""
        try:
            self._ends.delete(ALL_TOPICS, offset)
        except DiskFull as full:  # deleting the files may make room
            log.warning("the next checkpoint says which files of the log were deleted: %s", full)

    def note_ends(self, ends: dict[tuple[str, int], QueueEnd]) -> None:
        """Remember the changed ends of queues, for the checkpoint at the log's current end. Earlier ones whose topic
        was deleted since are left out.
        """
        deleted = self._ends.take_deleted_topics()
        self._changed_ends = {key: end for key, end in self._changed_ends.items() if key[0] not in deleted} | ends

    def begin(self, end: int, now_ms: int) -> CheckpointJob:
        """Collect everything to sync before a checkpoint at `end`. The log itself is on disk up to `end` already."""
        marks = self._marks
        self._last_end = end
        if end > marks[-1]:
            marks.append(end)
        while len(marks) > 1 and marks[1] <= end - VERIFIED_BYTES:
            marks.popleft()
        name, next_entry = self._index_end()
        positions = Positions(marks[0], end, end, name, next_entry, self.crc_from)
        checkpoint = Checkpoint(now_ms, now_ms, now_ms, positions=positions)
        ends, self._changed_ends = self._changed_ends, {}
        slots = self._index.take_unwritten() if self._index is not None else []
        return CheckpointJob(checkpoint, self._unsynced.take(), ends, slots)

    def _index_end(self) -> tuple[int, int]:
        index = self._index
        if index is None or not index.is_complete:
            return UNKNOWN_INDEX, 0
        return (int(index.files[-1].name), index.files[-1].next_entry) if index.files else (0, 0)

    def write(self, job: CheckpointJob) -> None:
        """Sync everything that the checkpoint covers, then write it. Raises: DiskFull, the next one syncs everything;
        OSError, the state of the disk is unknown.
        """
        try:
            self._sync_index(job)
            for path in sorted(job.unsynced.files):
                if self._index is None or not self._index.has(path):
                    self._vfs.sync_path(path)
            for path in sorted(job.unsynced.folders):
                self._vfs.sync_folder(path)
            positions = job.checkpoint.positions
            assert positions is not None
            if self._index is not None and not self._index.is_complete:
                positions = replace(positions, index_file=UNKNOWN_INDEX, index_next=0)
            self._ends.write(job.ends, positions, job.checkpoint.log_ms)
            save(self._vfs, self._path, replace(job.checkpoint, positions=positions))
        except DiskFull:
            self._unsynced.give_back(job.unsynced)
            if self._index is not None:
                self._index.give_back(job.unwritten_slots)
            for key, queue_end in job.ends.items():
                self._changed_ends.setdefault(key, queue_end)
            raise
        self.written_offset = positions.dispatched

    def _sync_index(self, job: CheckpointJob) -> None:
        """Write and sync the index. If that fails, the next start builds the index again. Raises: DiskFull."""
        index = self._index
        if index is None:
            return
        try:
            for unwritten in job.unwritten_slots:
                unwritten.write(self._vfs)
            for path in sorted(filter(index.has, job.unsynced.files)):
                self._vfs.sync_path(path)
        except OSError as error:
            index.mark_damaged(error)
