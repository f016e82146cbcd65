"""A consume queue: the places in the log of one queue's messages, 20 bytes for each (layout.py draws an entry).

Entries are collected while a burst of messages is appended, and then one pwrite writes them. A pread reads them: the
files of 50,000 topics cannot be mapped, or even kept open (`OpenFiles`). A queue without traffic costs one object. Its
files follow each other without a hole, so two numbers describe them.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from sparrowmq.errors import BadStore, CorruptRecord, DiskFull, OutOfResources
from sparrowmq.kernel.crc import crc32
from sparrowmq.kernel.log_tail import QueueTail
from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.layout import (
    ENTRY,
    ENTRY_SIZE,
    GAP_ENTRY,
    Layout,
    missing_file,
    offset_name,
    parse_offset_name,
    row_of_files,
)
from sparrowmq.store.queues.entries import GAP_SIZE, Entries, Entry, count_by_bisection, count_valid, pack
from sparrowmq.store.vfs import File, Unsynced, Vfs

log = logging.getLogger(__name__)

_ENTRIES_PER_SCAN: Final = 512
_BYTES_PER_READ: Final = 1 << 16  # bytes
_NO_ENTRIES: Final = Entries(b"")
_MIN_OPEN_FILES: Final = 4
_UNKNOWN_CRC: Final = -1  # the CRC of a file whose CRC is not known


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
        self.changed: dict[ConsumeQueue, None] = {}
        # Rebuilds a damaged file of a queue, given its first entry.
        self.rebuild_file: Callable[[ConsumeQueue, int], None] | None = None

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


class ConsumeQueue(QueueTail):
    """One queue of a topic."""

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
    def max_offset(self) -> int:
        return self.end.value

    @property
    def is_empty(self) -> bool:
        return self._last_file_begin < 0 or self.end.value == self.begin

    @property
    def paths(self) -> list[str]:
        begins = range(self.begin, self._last_file_begin + 1, self.file_entries) if self._last_file_begin >= 0 else ()
        return [self._path(begin) for begin in begins]

    def write_pending(self) -> None:
        """Write the unwritten entries and raise `end`; all of them stay unwritten if that fails. Raises: DiskFull."""
        start = self.end.value
        content = self.unwritten.content()
        self.write(start, content)
        self.unwritten.cut(0)
        self.end.advance(start + len(content) // ENTRY_SIZE)

    def write(self, start: int, content: bytes) -> None:
        """Write entries from the queue's end, `start`, on. Readers do not see them yet."""
        self._files.changed[self] = None
        try:
            self._write_entries(start, content)
        except BaseException:
            self._last_crc = _UNKNOWN_CRC
            raise

    def _write_entries(self, start: int, content: bytes) -> None:
        while content:
            begin = start - start % self.file_entries
            part = content[: (begin + self.file_entries - start) * ENTRY_SIZE]
            if begin != self._writer_begin or self._writer is None or self._writer.file.fd == -1:
                self._writer = self._open_to_write(begin, start)
                self._writer_begin = begin
            self._writer.was_used = True
            self._files.unsynced.files.add(self._writer.file.path)
            self._files.vfs.write(self._writer.file, (start - begin) * ENTRY_SIZE, part)
            if self._last_crc != _UNKNOWN_CRC:
                self._last_crc = crc32(part, self._last_crc)
            start += len(part) // ENTRY_SIZE
            content = content[len(part) :]

    def read(self, start: int, count: int) -> Entries:
        """Return at most `count` entries from `start` on, from one file. A damaged file is built again first. Raises:
        BadStore, the file is damaged, and cannot be built again.
        """
        begin = start - start % self.file_entries
        count = min(count, self.end.value - start, begin + self.file_entries - start)
        if count <= 0:
            return _NO_ENTRIES
        entries = self._read_entries(begin, start, count)
        if len(entries) == count and (entries.are_valid or begin in self._rebuilt_files):
            return entries
        if self._rebuild_file(begin):
            entries = self._read_entries(begin, start, count)
            if not entries.are_valid:
                self._rebuilt_files.add(begin)
        if len(entries) != count:
            raise BadStore(
                f"{self._path(begin)} ends too early, or cannot be read; stop the broker and delete consumequeue: "
                "it is built again from the log"
            )
        return entries

    def stored_entries(self, start: int, count: int) -> bytes:
        """At most `count` entries from `start` on, from one file, unchecked; none if they cannot be read."""
        begin = start - start % self.file_entries
        count = min(count, self.end.value - start, begin + self.file_entries - start)
        return self._read_entries(begin, start, count).content if count > 0 else b""

    def _read_entries(self, begin: int, start: int, count: int) -> Entries:
        """Read entries of one file; fewer where it ends, or cannot be read."""
        try:
            reader = self._reader
            if begin != self._reader_begin or reader is None or reader.file.fd == -1:
                reader = self._open_to_read(begin)
            reader.was_used = True
            content = self._files.vfs.read(reader.file, (start - begin) * ENTRY_SIZE, count * ENTRY_SIZE)
            return Entries(content)
        except OSError as error:
            log.error("%s: %s", self._path(begin), error)
            return _NO_ENTRIES

    def _rebuild_file(self, begin: int) -> bool:
        """Build a damaged file again from the log. Returns False if the store has no function for that. Raises:
        BadStore.
        """
        if self._files.rebuild_file is None:
            return False
        log.warning("%s is damaged; it is built again from the log", self._path(begin))
        self._rebuilt_files.add(begin)
        try:
            self._files.rebuild_file(self, begin)
        except (OSError, CorruptRecord) as error:
            # Recovery looks at the cause.
            raise BadStore(f"{self._path(begin)} is damaged, and cannot be built again: {error}") from error
        finally:
            self._rebuilt_files.discard(begin)
        return True

    def rebuild(self, queue_offset: int) -> bool:
        """Rebuild the file with an entry from the log. Returns False if the store cannot do it. Raises: BadStore."""
        return self._rebuild_file(self.file_of(queue_offset))

    def entry(self, queue_offset: int) -> Entry | None:
        """Return one entry; None if it does not exist, or only fills a gap."""
        if not self.min_offset <= queue_offset < self.end.value:
            return None
        entry = self.read(queue_offset, 1)[0]
        return None if entry.is_gap else entry

    def last_entry(self) -> tuple[int, int]:
        """Return the log offset and the size of the queue's last message; (-1, 0) if there is none."""
        for queue_offset in range(self.end.value - 1, self.begin - 1, -1) if self._last_file_begin >= 0 else ():
            entry = self.read(queue_offset, 1)[0]
            if not entry.is_gap:
                return entry.offset, entry.size
        return -1, 0

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

    def find(self, log_offset: int) -> int:
        """Return the first queue offset whose message is at or after `log_offset` in the log."""
        low, high = self.begin, self.end.value
        while low < high:
            middle = (low + high) // 2
            entries = self.read(middle, 1)
            message_offset, offset = middle, entries.offset(0)
            if entries.is_gap(0):
                message_offset, offset = self._last_message(low, middle)
            if offset < log_offset:
                low = middle + 1
            else:
                high = message_offset
        return low

    def _last_message(self, low: int, high: int) -> tuple[int, int]:
        """Return the last entry of `[low, high)` that is no gap, and its log offset; (low, -1) if there is none."""
        while low < high:
            last = high - 1
            start = max(low, high - _ENTRIES_PER_SCAN, last - last % self.file_entries)
            entries = self.read(start, high - start)
            for i in range(len(entries) - 1, -1, -1):
                if not entries.is_gap(i):
                    return start + i, entries.offset(i)
            high = start
        return low, -1

    def forget_before(self, log_begin: int, dispatched: int) -> None:
        """Raise `min_offset` past the messages that left the log, and delete files that only have such entries.

        A file stays until the next one has an entry on disk (of a record before `dispatched`): otherwise a crash would
        leave no trace of the queue's end. The folder is synced before each deletion, so that a crash leaves no hole.
        """
        self.min_offset = self.find(log_begin)
        while (following := self.begin + self.file_entries) <= min(self.min_offset, self._last_file_begin):
            first = self.read(following, 1)
            if not first or first.begin >= dispatched:
                break
            self._close_files()
            self._files.vfs.sync_folder(self._folder)
            self._files.vfs.unlink(self._path(self.begin))
            self._files.unsynced.folders.add(self._folder)
            self._files.changed[self] = None
            self._unchecked_files.discard(self.begin)
            self._full_crcs.pop(0)
            self.begin += self.file_entries

    def known_end(self) -> QueueEnd | None:
        """Return the queue's end and the content of its files; None if it has no file."""
        if self._last_file_begin < 0:
            return None
        if self._last_crc == _UNKNOWN_CRC:
            self._last_crc = self._crc_on_disk(self._last_file_begin)
        if self._last_crc == _UNKNOWN_CRC and not self._rebuild_file(self._last_file_begin):
            raise BadStore(f"{self._path(self._last_file_begin)} cannot be read")
        return QueueEnd(self.begin, self.end.value, self._last_crc, tuple(self._full_crcs))

    def restore(self, saved: QueueEnd) -> list[int]:
        """Set the queue's files as saved, and delete others; return the first entries of damaged ones. Full files are
        checked at their first read.
        """
        step = self.file_entries
        self.begin, self._last_file_begin = saved.begin, saved.begin + len(saved.full_crcs) * step
        self.end.value = self.next_offset = saved.end
        self.min_offset = saved.begin
        self._full_crcs, self._last_crc = list(saved.full_crcs), saved.crc
        begins = range(self.begin, self._last_file_begin + 1, step)
        sizes = {begin: self._size_of(begin) for begin in begins}
        damaged = [begin for begin, size in sizes.items() if size != step * ENTRY_SIZE]
        if self._last_file_begin not in damaged and self._crc_on_disk(self._last_file_begin) != self._last_crc:
            damaged.append(self._last_file_begin)
        self._unchecked_files = {
            begin
            for begin, crc in zip(begins, self._full_crcs, strict=False)
            if begin not in damaged and crc != _UNKNOWN_CRC
        }
        wanted_names = {os.path.basename(self._path(begin)) for begin in begins}
        for name in self._files.vfs.list_folder(self._folder):
            if name not in wanted_names and parse_offset_name(name) is not None:
                self._files.vfs.unlink(os.path.join(self._folder, name))
                self._files.unsynced.folders.add(self._folder)
        return damaged

    def replace_file(self, begin: int, content: bytes) -> None:
        """Create the file again whose first entry is `begin`. Missing entries up to the queue's end become a gap."""
        vfs, size = self._files.vfs, self.file_entries * ENTRY_SIZE
        wanted_bytes = min(self.end.value - begin, self.file_entries) * ENTRY_SIZE
        content += GAP_ENTRY * ((wanted_bytes - len(content)) // ENTRY_SIZE)
        self._close_files()
        self._make_folder()
        path = self._path(begin)
        if vfs.exists(path):  # a new file has other places on the disk
            vfs.unlink(path)
        self._files.unsynced.folders.add(self._folder)
        file = self._files.create(path, size).file
        vfs.write(file, 0, content)
        vfs.close(file)
        self._files.unsynced.files.add(path)
        self._files.changed[self] = None
        self._unchecked_files.discard(begin)
        if begin == self._last_file_begin:
            self._last_crc = crc32(content)
        else:
            self._full_crcs[(begin - self.begin) // self.file_entries] = crc32(content)

    def file_of(self, queue_offset: int) -> int:
        return queue_offset - queue_offset % self.file_entries

    def _size_of(self, begin: int) -> int:
        path = self._path(begin)
        return self._files.vfs.size(path) if self._files.vfs.exists(path) else -1

    def check_files(self) -> None:
        """Compare all full files with their CRCs now. Raises: BadStore, a damaged one cannot be built again."""
        for begin in sorted(self._unchecked_files):
            self._check_file(begin)

    def _check_file(self, begin: int) -> None:
        """Compare a full file with its CRC before its first read; a damaged one is built again."""
        self._unchecked_files.discard(begin)
        if self._crc_on_disk(begin) != self._full_crcs[(begin - self.begin) // self.file_entries]:
            try:
                self._rebuild_file(begin)
            except BadStore:
                self._unchecked_files.add(begin)
                raise

    def _crc_on_disk(self, begin: int) -> int:
        """Return the CRC of a file's entries before the queue's end; `_UNKNOWN_CRC` if it cannot be read."""
        try:
            file = self._files.open_briefly(self._path(begin), writable=False)
            size, crc = min(self.end.value - begin, self.file_entries) * ENTRY_SIZE, 0
            for at in range(0, size, _BYTES_PER_READ):  # a file may have 6 MB
                crc = crc32(self._files.vfs.read(file, at, min(_BYTES_PER_READ, size - at)), crc)
            self._files.vfs.close(file)
            return crc
        except OSError as error:
            log.error("%s: %s", self._path(begin), error)
            return _UNKNOWN_CRC

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
        self._full_crcs, self._last_crc = [_UNKNOWN_CRC] * (len(begins) - 1), _UNKNOWN_CRC
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

    def _drop_last(self) -> None:
        self._files.vfs.unlink(self._path(self._last_file_begin))
        self._files.unsynced.folders.add(self._folder)
        self._last_file_begin -= self.file_entries
        self._full_crcs.pop()
        self._last_crc = _UNKNOWN_CRC

    def truncate(self, queue_offset: int) -> None:
        """Delete the entries from `queue_offset` on. No reader may wait for `end` yet."""
        vfs, last = self._files.vfs, max(self.file_of(queue_offset), self.begin)
        if last in self._unchecked_files:
            self._check_file(last)
        self._close_files()
        while self._last_file_begin > self.begin and self._last_file_begin >= queue_offset:
            self._drop_last()
        self._unchecked_files = {begin for begin in self._unchecked_files if begin < self._last_file_begin}
        if self._last_file_begin >= 0:
            file = self._files.open_briefly(self._path(self._last_file_begin), writable=True)
            vfs.truncate(file, max(0, queue_offset - self._last_file_begin) * ENTRY_SIZE)
            vfs.truncate(file, self.file_entries * ENTRY_SIZE)
            vfs.close(file)
            self._files.unsynced.files.add(file.path)
        self._last_crc = _UNKNOWN_CRC
        self._files.changed[self] = None
        self.end.value = self.next_offset = queue_offset
        self.min_offset = min(self.min_offset, queue_offset)

    def restart(self, queue_offset: int) -> None:
        """Set the next entry to `queue_offset`. Earlier entries stay if they lead up to it."""
        if self.begin < queue_offset < self.next_offset:
            self.truncate(queue_offset)
            return
        self._remove_files()
        self.end.value = self.next_offset = self.min_offset = queue_offset

    def write_gap(self, until: int) -> None:
        self.write(self.next_offset, pack([0, GAP_SIZE, 0]) * (until - self.next_offset))
        self.next_offset = until
        self.end.advance(until)

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

    def _open_to_read(self, begin: int) -> QueueFile:
        if begin == self._writer_begin and self._writer is not None and self._writer.file.fd != -1:
            self._reader = self._writer
        else:
            if begin in self._unchecked_files:
                self._check_file(begin)
            self._reader = self._files.open(self._path(begin), writable=False)
        self._reader_begin = begin
        return self._reader

    def _close_files(self) -> None:
        for queue_file in (self._writer, self._reader):
            if queue_file is not None:
                self._files.vfs.close(queue_file.file)
        self._writer = self._reader = None

    def _path(self, begin: int) -> str:
        return os.path.join(self._folder, offset_name(begin * ENTRY_SIZE))
