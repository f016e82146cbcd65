"""The files of a queue: found at a start, created, cut and deleted, with the checksums of their entries.

    %020d   300,000 entries of 20 bytes    named after its first byte in the queue; none is missing between two others

Its files follow each other without a hole, so two numbers describe them. The files of 50,000 topics cannot be mapped,
or even kept open (`OpenFiles`).
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from sparrowmq.errors import DiskFull, OutOfResources
from sparrowmq.kernel.crc import crc32
from sparrowmq.kernel.log_tail import QueueTail
from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE, GAP_ENTRY, Layout, missing_file, offset_name, row_of_files
from sparrowmq.store.queues.entries import count_by_bisection, count_valid
from sparrowmq.store.vfs import File, Unsynced, Vfs

log = logging.getLogger(__name__)

_BYTES_PER_READ: Final = 1 << 16  # bytes
_MIN_OPEN_FILES: Final = 4
UNKNOWN_CRC: Final = -1  # the CRC of a file whose CRC is not known


class QueueEnd(NamedTuple):
    """The end of a queue, and the content of its files up to there; queue_ends.py draws it."""

    begin: int
    end: int
    crc: int  # of the entries in the last file
    full_crcs: tuple[int, ...]  # the CRCs of the files before it, each of a whole file; -1 if one is not known


class QueueFile:
    """An open file of a queue; `file.fd` is -1 once it was closed."""

    __slots__ = ("file", "was_used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.was_used = True


class OpenFiles:
    """The open files of all queues of a store, at most `limit`, and the state that queues share. Idle files are closed
    before those in use (second chance). When no descriptor is left, the older half is closed, and the limit falls.
    """

    def __init__(self, vfs: Vfs, limit: int, unsynced: Unsynced) -> None:
        self.vfs = vfs
        self._limit = limit
        self._open_files: deque[QueueFile] = deque()
        self.unsynced = unsynced
        # The queues that were written to since their ends were last asked for; a set in their order.
        self.changed: dict[QueueFiles, None] = {}
        # Rebuilds a damaged file of a `ConsumeQueue`, given its first entry.
        self.rebuild_file: Callable[[Any, int], None] | None = None

    def open(self, path: str, writable: bool) -> QueueFile:
        return self._add(self.open_briefly(path, writable))

    def open_briefly(self, path: str, writable: bool) -> File:
        """Open a file that the caller closes. Raises: FileNotFoundError, OutOfResources."""
        try:
            return self.vfs.open(path, writable)
        except OutOfResources:
            if not self.shrink():
                raise
            return self.vfs.open(path, writable)

    def create(self, path: str, size: int) -> QueueFile:
        try:
            return self._add(self.vfs.create(path, size, allocate=False))
        except OutOfResources:
            if not self.shrink():
                raise
            return self._add(self.vfs.create(path, size, allocate=False))

    def fill(self, file: QueueFile, content: bytes) -> None:
        """Write the content of a new file. If there is no room, delete the file, so that it can be created later."""
        try:
            self.vfs.write(file.file, 0, content)
        except (DiskFull, OSError):
            self.vfs.close(file.file)
            self.vfs.unlink(file.file.path)
            raise

    def shrink(self) -> bool:
        """Close the older half, and keep fewer files open from now on. Returns whether any was closed."""
        count = -(-len(self._open_files) // 2)
        if count:
            self._limit = max(_MIN_OPEN_FILES, min(self._limit, len(self._open_files) * 3 // 4))
            log.warning("no file descriptor is left; at most %d files of queues stay open", self._limit)
        for _ in range(count):
            self.vfs.close(self._open_files.popleft().file)
        return count > 0

    def close(self) -> None:
        while self._open_files:
            self.vfs.close(self._open_files.popleft().file)

    def _add(self, file: File) -> QueueFile:
        while len(self._open_files) >= self._limit:
            oldest = self._open_files.popleft()
            if oldest.was_used and oldest.file.fd != -1:
                oldest.was_used = False
                self._open_files.append(oldest)
            else:
                self.vfs.close(oldest.file)
        queue_file = QueueFile(file)
        self._open_files.append(queue_file)
        return queue_file


class QueueFiles(QueueTail):
    """The files of one queue, and its end. `ConsumeQueue` knows what is in them."""

    __slots__ = (
        "_files",
        "_folder",
        "_full_crcs",
        "_last_crc",
        "_last_file_begin",
        "_reader",
        "_reader_begin",
        "_rebuilt_files",
        "_unchecked_files",
        "_writer",
        "_writer_begin",
        "begin",
        "end",
        "file_entries",
        "min_offset",
        "queue_id",
        "topic",
    )

    def __init__(self, files: OpenFiles, layout: Layout, topic: str, queue_id: int, file_entries: int) -> None:
        super().__init__()
        self.topic = topic
        self.queue_id = queue_id
        # The number of readable entries since the queue's creation: its max offset. Dispatch raises it.
        self.end = Watermark()
        self.min_offset = 0  # the first entry whose message is still in the log
        self._files = files
        self._folder = layout.queue(topic, queue_id)
        self.file_entries = file_entries  # the number of entries of a file
        self.begin = 0  # the first entry that has a place in a file
        self._last_file_begin = -1  # the first entry of the last file; -1 if there is none
        self._last_crc = 0  # of the entries in the last file
        self._full_crcs: list[int] = []  # the CRCs of the files before it
        self._unchecked_files: set[int] = set()  # files (first entries) not yet compared with their CRC
        self._rebuilt_files: set[int] = set()  # files (first entries) that make no sense, but agree with the log
        self._writer: QueueFile | None = None
        self._writer_begin = -1
        self._reader: QueueFile | None = None
        self._reader_begin = -1

    @property
    def is_empty(self) -> bool:
        return self._last_file_begin < 0 or self.end.value == self.begin

    @property
    def paths(self) -> list[str]:
        begins = range(self.begin, self._last_file_begin + 1, self.file_entries) if self._last_file_begin >= 0 else ()
        return [self._path(begin) for begin in begins]

    def file_of(self, queue_offset: int) -> int:
        return queue_offset - queue_offset % self.file_entries

    def load(self, dispatched: int | None, writable: bool = True) -> None:
        """Find the queue's files and its end.

        `dispatched` is None after a clean shutdown. Then the entries have no hole, and bisection finds the end. After a
        crash, the entries of records before the log offset `dispatched` were on disk. The end is then the first entry
        that makes no sense: offsets must rise, and sizes must be positive.

        Raises: BadStore, a file is missing between others.
        """
        begins = self._find_files(dispatched, writable)
        if not begins:
            return
        self.begin, self._last_file_begin = begins[0], begins[-1]
        self._full_crcs, self._last_crc = [UNKNOWN_CRC] * (len(begins) - 1), UNKNOWN_CRC
        first = len(begins) - 1
        while first > 0 and not (dispatched is None or 0 <= self._first_offset(begins[first]) < dispatched):
            first -= 1
        end = begins[first]
        for begin in begins[first:]:
            end = begin + self._count_entries(begin, dispatched is None, writable)
            if end < begin + self.file_entries:
                break
        self.end.value = self.next_offset = end
        self.min_offset = self.begin
        while writable and self._last_file_begin > max(end, self.begin):
            self._drop_last()

    def _find_files(self, dispatched: int | None, writable: bool) -> list[int]:
        """Return the first entries of the files. Files after a hole that a crash left are deleted."""
        vfs, size = self._files.vfs, self.file_entries * ENTRY_SIZE
        row, stray = row_of_files(self._folder, vfs.list_folder(self._folder), size)
        if stray and (dispatched is None or 0 <= self._first_offset(stray[0] // ENTRY_SIZE) < dispatched):
            remedy = "restore it from a backup, or delete the folder consumequeue: it is built again from the log"
            raise missing_file(self._folder, row[-1] + size, remedy)
        for begin in reversed(stray if writable else []):
            vfs.unlink(self._path(begin // ENTRY_SIZE))
            self._files.unsynced.folders.add(self._folder)
        return [begin // ENTRY_SIZE for begin in row]

    def _first_offset(self, begin: int) -> int:
        """Return the log offset of a file's first record; -1 if the file is too short or unused."""
        file = self._files.open_briefly(self._path(begin), writable=False)
        content = self._files.vfs.read(file, 0, ENTRY_SIZE)
        self._files.vfs.close(file)
        is_full = file.size == self.file_entries * ENTRY_SIZE
        return ENTRY.unpack(content)[0] if is_full and any(content) else -1

    def _count_entries(self, begin: int, is_without_holes: bool, writable: bool) -> int:
        """Return the number of entries in a file. A file that a crash left short gets its full size."""
        vfs, size = self._files.vfs, self.file_entries * ENTRY_SIZE
        file = self._files.open_briefly(self._path(begin), writable)
        entries = min(file.size, size) // ENTRY_SIZE
        if writable and file.size != size:
            vfs.truncate(file, size)
            self._files.unsynced.files.add(file.path)
        count = (count_by_bisection if is_without_holes else count_valid)(
            lambda at, wanted: vfs.read(file, at, wanted), entries
        )
        vfs.close(file)
        return count

    def count_used_entries(self) -> int:
        """Return the number of entries if the last byte that is not zero belongs to the last one."""
        if self._last_file_begin < 0:
            return 0
        file = self._files.open_briefly(self._path(self._last_file_begin), writable=False)
        used_bytes = 0
        for at in range(0, file.size, _BYTES_PER_READ):
            content = self._files.vfs.read(file, at, _BYTES_PER_READ).rstrip(b"\0")
            used_bytes = at + len(content) if content else used_bytes
        self._files.vfs.close(file)
        return self._last_file_begin + -(-used_bytes // ENTRY_SIZE)

    def _crc_on_disk(self, begin: int) -> int:
        """Return the CRC of a file's entries before the queue's end; `UNKNOWN_CRC` if it cannot be read."""
        try:
            file = self._files.open_briefly(self._path(begin), writable=False)
            size, crc = min(self.end.value - begin, self.file_entries) * ENTRY_SIZE, 0
            for at in range(0, size, _BYTES_PER_READ):  # a file may have 6 MB
                crc = crc32(self._files.vfs.read(file, at, min(_BYTES_PER_READ, size - at)), crc)
            self._files.vfs.close(file)
            return crc
        except OSError as error:
            log.error("%s: %s", self._path(begin), error)
            return UNKNOWN_CRC

    def _drop_last(self) -> None:
        self._files.vfs.unlink(self._path(self._last_file_begin))
        self._files.unsynced.folders.add(self._folder)
        self._last_file_begin -= self.file_entries
        self._full_crcs.pop()
        self._last_crc = UNKNOWN_CRC

    def remove(self) -> None:
        self._remove_files()
        if self._files.vfs.exists(self._folder):  # a queue that clients only waited at has none
            self._files.vfs.remove_folder(self._folder)

    def _remove_files(self) -> None:
        self._close_files()
        for path in reversed(self.paths):
            self._files.vfs.unlink(path)
            self._files.unsynced.folders.add(self._folder)
        self._last_file_begin, self._full_crcs, self._last_crc = -1, [], 0
        self._unchecked_files.clear()
        self._rebuilt_files.clear()

    def _open_to_write(self, begin: int, start: int) -> QueueFile:
        if begin <= self._last_file_begin:
            with suppress(FileNotFoundError):  # if it was deleted, a read of its old entries builds it again
                return self._files.open(self._path(begin), writable=True)
            self._files.unsynced.folders.add(self._folder)
            return self._files.create(self._path(begin), self.file_entries * ENTRY_SIZE)
        if self._last_file_begin < 0:
            self._make_folder()
        self._files.unsynced.folders.add(self._folder)
        file = self._files.create(self._path(begin), self.file_entries * ENTRY_SIZE)
        if self._last_file_begin < 0:
            self.begin = begin
            self.min_offset = start
            if start > begin:
                self._files.fill(file, GAP_ENTRY * (start - begin))
            self._full_crcs, self._last_crc = [], crc32(GAP_ENTRY * (start - begin))
        else:
            self._full_crcs.append(self._last_crc)
            self._last_crc = 0
        self._last_file_begin = begin
        return file

    def _make_folder(self) -> None:
        topic_folder = os.path.dirname(self._folder)
        self._files.vfs.make_folder(self._folder)
        folders = (self._folder, topic_folder, os.path.dirname(topic_folder))
        self._files.unsynced.folders.update(folders)

    def _close_files(self) -> None:
        for queue_file in (self._writer, self._reader):
            if queue_file is not None:
                self._files.vfs.close(queue_file.file)
        self._writer = self._reader = None

    def _path(self, begin: int) -> str:
        return os.path.join(self._folder, offset_name(begin * ENTRY_SIZE))
