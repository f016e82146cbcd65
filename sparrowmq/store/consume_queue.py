"""A consume queue: where in the log the messages of one queue are, 20 bytes for each (layout.py draws an entry).

Entries are collected while a burst of messages is appended, and then written by one pwrite. They are read by
pread, and not through a map, because 50,000 topics with four queues each cannot have their files mapped, nor
even open: `OpenFiles` keeps as many as are in use, and a queue without traffic costs an object.

A queue's files are a row like those of the log, but sparse; as they follow each other without a hole, two
numbers tell which there are.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from operator import lt
from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be

from sparrowmq.errors import BadStore, DiskFull, OutOfResources
from sparrowmq.store.entries import GAP_SIZE, Entries, Entry, pack
from sparrowmq.store.layout import (
    ENTRY,
    ENTRY_SIZE,
    GAP_ENTRY,
    Layout,
    missing_file,
    offset_name,
    row_of_files,
)
from sparrowmq.store.vfs import File, Unsynced, Vfs
from sparrowmq.watermark import Watermark

log = logging.getLogger(__name__)

_SCAN_CHUNK: Final = 512
_FEWEST_OPEN: Final = 4
_NONE: Final = Entries(b"")


class OpenFiles:
    """Files of queues that are open: at most `limit`, rather those in use than the idle (second chance).

    When no file descriptor is left, the older half of them is closed, and fewer are kept from then on: the others who
    need descriptors (sockets, the log, snapshots) have what that leaves.
    """

    def __init__(self, vfs: Vfs, limit: int, unsynced: Unsynced) -> None:
        self.vfs = vfs
        self._limit = limit
        self._ring: deque[QueueFile] = deque()
        self.unsynced = unsynced

    def open(self, path: str, writable: bool) -> QueueFile:
        """Raises: FileNotFoundError, OutOfResources."""
        return self._keep(self.open_briefly(path, writable))

    def open_briefly(self, path: str, writable: bool) -> File:
        """A file that the caller closes. Raises: FileNotFoundError, OutOfResources."""
        try:
            return self.vfs.open(path, writable)
        except OutOfResources:
            if not self.shrink():
                raise
            return self.vfs.open(path, writable)

    def create(self, path: str, size: int) -> QueueFile:
        """Raises: DiskFull."""
        try:
            return self._keep(self.vfs.create(path, size, allocate=False))
        except OutOfResources:
            if not self.shrink():
                raise
            return self._keep(self.vfs.create(path, size, allocate=False))

    def shrink(self) -> bool:
        """Close the older half, and keep fewer open from now on; whether there was one to close."""
        count = -(-len(self._ring) // 2)
        if count:
            self._limit = max(_FEWEST_OPEN, min(self._limit, len(self._ring) * 3 // 4))
            log.warning("no file descriptor is left; at most %d files of queues stay open", self._limit)
        for _ in range(count):
            self.vfs.close(self._ring.popleft().file)
        return count > 0

    def close(self) -> None:
        while self._ring:
            self.vfs.close(self._ring.popleft().file)

    def _keep(self, file: File) -> QueueFile:
        while len(self._ring) >= self._limit:
            oldest = self._ring.popleft()
            if oldest.used and oldest.file.fd != -1:
                oldest.used = False
                self._ring.append(oldest)
            else:
                self.vfs.close(oldest.file)
        kept = QueueFile(file)
        self._ring.append(kept)
        return kept


class QueueFile:
    """An open file of a queue, perhaps closed in the meantime (`file.fd` is -1 then)."""

    __slots__ = ("file", "used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.used = True


class ConsumeQueue:
    """One queue of a topic.

    Attributes:
        end: how many entries there are to read, counted from the queue's birth: its max offset. Raised by dispatch.
        next_offset: the queue offset that the next message gets; `end` plus the fresh ones.
        begin: the first entry that has a place in a file.
        min_offset: the first entry whose message is still in the log.
        fresh: the entries of the messages that are not written yet, as bytes.
    """

    __slots__ = (
        "_file_entries",
        "_files",
        "_folder",
        "_last",
        "_reader",
        "_reader_begin",
        "_writer",
        "_writer_begin",
        "begin",
        "end",
        "fresh",
        "min_offset",
        "next_offset",
        "queue_id",
        "topic",
    )

    def __init__(
        self, files: OpenFiles, layout: Layout, topic: str, queue_id: int, file_entries: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.end = Watermark()
        self.next_offset = 0
        self.min_offset = 0
        self.fresh = BytesWriter()
        self._files = files
        self._folder = layout.queue(topic, queue_id)
        self._file_entries = file_entries
        self.begin = 0
        self._last = -1  # the first entry of the last file; -1 if there is no file
        self._writer: QueueFile | None = None
        self._writer_begin = -1
        self._reader: QueueFile | None = None
        self._reader_begin = -1

    @property
    def max_offset(self) -> int:
        """The offset behind the last entry that can be read."""
        return self.end.value

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry on disk."""
        return self._last < 0 or self.end.value == self.begin

    @property
    def paths(self) -> list[str]:
        """The files that there are."""
        return [self._path(begin) for begin in self._file_begins()]

    def add(self, offset: int, size: int, tags_code: int) -> None:
        """The queue's next message, not written yet."""
        fresh = self.fresh
        write_i64_be(fresh, offset)
        write_i32_be(fresh, size)
        write_i64_be(fresh, tags_code)
        self.next_offset += 1

    def write_fresh(self) -> None:
        """Write the fresh entries and raise `end`; all of them stay fresh if that fails.

        Raises:
            DiskFull: try again later.
        """
        start = self.end.value
        content = self.fresh.getvalue()
        self.write(start, content)
        self.fresh = BytesWriter()
        self.end.advance(start + len(content) // ENTRY_SIZE)

    @property
    def has_fresh(self) -> bool:
        """Whether there are messages that are not written yet."""
        return len(self.fresh) > 0

    def write(self, start: int, content: bytes) -> None:
        """Write entries from entry `start` on; whoever reads, does not see them yet."""
        while content:
            begin = start - start % self._file_entries
            part = content[: (begin + self._file_entries - start) * ENTRY_SIZE]
            if begin != self._writer_begin or self._writer is None or self._writer.file.fd == -1:
                self._writer = self._open_to_write(begin, start)
                self._writer_begin = begin
            self._writer.used = True
            self._files.unsynced.files.add(self._writer.file.path)
            self._files.vfs.write(self._writer.file, (start - begin) * ENTRY_SIZE, part)
            start += len(part) // ENTRY_SIZE
            content = content[len(part) :]

    def read(self, start: int, count: int) -> Entries:
        """Entries from `start` on: at most `count`, and only from one file."""
        begin = start - start % self._file_entries
        count = min(count, self.end.value - start, begin + self._file_entries - start)
        if count <= 0:
            return _NONE
        reader = self._reader
        if begin != self._reader_begin or reader is None or reader.file.fd == -1:
            reader = self._open_to_read(begin)
        reader.used = True
        content = self._files.vfs.read(reader.file, (start - begin) * ENTRY_SIZE, count * ENTRY_SIZE)
        if len(content) != count * ENTRY_SIZE:
            raise BadStore(
                f"{reader.file.path} ends too early; delete consumequeue: it is made anew from the log"
            )
        return Entries(content)

    def entry(self, queue_offset: int) -> Entry | None:
        """One entry; None if it is not there, or only fills a gap."""
        if not self.min_offset <= queue_offset < self.end.value:
            return None
        entry = self.read(queue_offset, 1)[0]
        return None if entry.is_gap else entry

    def last_entry(self) -> tuple[int, int]:
        """Where in the log the last message of the queue begins, and its size; (-1, 0) if there is none."""
        for queue_offset in range(self.end.value - 1, self.begin - 1, -1) if self._last >= 0 else ():
            entry = self.read(queue_offset, 1)[0]
            if not entry.is_gap:
                return entry.offset, entry.size
        return -1, 0

    def used_entries(self) -> int:
        """How many entries there would be if the last byte that is not zero belonged to the last one."""
        if self._last < 0:
            return 0
        file = self._files.open_briefly(self._path(self._last), writable=False)
        content = self._files.vfs.read(file, 0, file.size).rstrip(b"\0")
        self._files.vfs.close(file)
        return self._last + -(-len(content) // ENTRY_SIZE)

    def find(self, log_offset: int) -> int:
        """The first queue offset whose message lies at or behind `log_offset` in the log."""
        low, high = self.begin, self.end.value
        while low < high:
            middle = (low + high) // 2
            entries = self.read(middle, 1)
            found, offset = middle, entries.offset(0)
            if entries.is_gap(0):
                found, offset = self._last_message(low, middle)
            if offset < log_offset:
                low = middle + 1
            else:
                high = found
        return low

    def _last_message(self, low: int, high: int) -> tuple[int, int]:
        """The last entry of `[low, high)` that fills no gap, and its offset in the log; (low, -1) if there is none."""
        while low < high:
            last = high - 1
            start = max(low, high - _SCAN_CHUNK, last - last % self._file_entries)
            entries = self.read(start, high - start)
            for i in range(len(entries) - 1, -1, -1):
                if not entries.is_gap(i):
                    return start + i, entries.offset(i)
            high = start
        return low, -1

    def forget_before(self, log_begin: int, known: int) -> None:
        """Raise `min_offset` past the messages that are no longer in the log, and delete files that hold only such.

        A file stays until the next one has an entry on disk (of a record before `known`): a crash would otherwise
        leave nothing that tells how far the queue went. The folder is synced before each file goes, for of two that
        go a crash could bring back the first one alone.
        """
        self.min_offset = self.find(log_begin)
        while (following := self.begin + self._file_entries) <= min(self.min_offset, self._last):
            if not 0 <= self._first_offset(following) < known:
                break
            self._close_own()
            self._files.vfs.sync_folder(self._folder)
            self._files.vfs.unlink(self._path(self.begin))
            self._files.unsynced.folders.add(self._folder)
            self.begin += self._file_entries

    def load(self, known: int | None, writable: bool = True) -> None:
        """Find the queue's files and its end.

        `known` is None after a shutdown in order: the entries stand without a hole, and the end is found by halving.
        After a crash it says that the entries of records before that offset in the log were on disk. The end is
        then where the first entry makes no sense: offsets rise, sizes are positive.

        Raises:
            BadStore: a file is missing between others.
        """
        begins = self._find_files(known, writable)
        if not begins:
            return
        self.begin, self._last = begins[0], begins[-1]
        first = len(begins) - 1
        while first > 0 and not (known is None or 0 <= self._first_offset(begins[first]) < known):
            first -= 1
        end = begins[first]
        for begin in begins[first:]:
            end = begin + self._count(begin, known is None, writable)
            if end < begin + self._file_entries:
                break
        self.end.value = self.next_offset = end
        self.min_offset = self.begin
        while writable and self._last > max(end, self.begin):
            self._drop_last()

    def _find_files(self, known: int | None, writable: bool) -> list[int]:
        """The first entries of the files; those behind a hole that a crash left are deleted."""
        vfs, size = self._files.vfs, self._file_entries * ENTRY_SIZE
        row, stray = row_of_files(self._folder, vfs.list_folder(self._folder), size)
        if stray and (known is None or 0 <= self._first_offset(stray[0] // ENTRY_SIZE) < known):
            remedy = (
                "restore it from a backup, or delete the folder consumequeue: it is made anew from the log"
            )
            raise missing_file(self._folder, row[-1] + size, remedy)
        for begin in reversed(stray if writable else []):
            vfs.unlink(self._path(begin // ENTRY_SIZE))
            self._files.unsynced.folders.add(self._folder)
        return [begin // ENTRY_SIZE for begin in row]

    def _first_offset(self, begin: int) -> int:
        """Where the first record of a file lies; -1 if the file has not its full size."""
        file = self._files.open_briefly(self._path(begin), writable=False)
        content = self._files.vfs.read(file, 0, ENTRY_SIZE)
        self._files.vfs.close(file)
        is_full = file.size == self._file_entries * ENTRY_SIZE
        return ENTRY.unpack(content)[0] if is_full and any(content) else -1

    def _count(self, begin: int, whole: bool, writable: bool) -> int:
        """How many entries a file holds; it gets its full size if a crash left it shorter."""
        vfs, size = self._files.vfs, self._file_entries * ENTRY_SIZE
        file = self._files.open_briefly(self._path(begin), writable)
        entries = min(file.size, size) // ENTRY_SIZE
        if writable and file.size != size:
            vfs.truncate(file, size)
            self._files.unsynced.files.add(file.path)
        count = _halve(vfs, file, entries) if whole else _scan(vfs, file, entries)
        vfs.close(file)
        return count

    def _drop_last(self) -> None:
        self._files.vfs.unlink(self._path(self._last))
        self._files.unsynced.folders.add(self._folder)
        self._last -= self._file_entries

    def truncate(self, queue_offset: int) -> None:
        """Forget the entries from `queue_offset` on; nobody may wait for `end` yet."""
        vfs = self._files.vfs
        self._close_own()
        while self._last > self.begin and self._last >= queue_offset:
            self._drop_last()
        if self._last >= 0:
            file = self._files.open_briefly(self._path(self._last), writable=True)
            vfs.truncate(file, max(0, queue_offset - self._last) * ENTRY_SIZE)
            vfs.truncate(file, self._file_entries * ENTRY_SIZE)
            vfs.close(file)
            self._files.unsynced.files.add(file.path)
        self.end.value = self.next_offset = queue_offset
        self.min_offset = min(self.min_offset, queue_offset)

    def restart(self, queue_offset: int) -> None:
        """Let the next entry be `queue_offset`; what is below it stays, if it leads up to it."""
        if self.begin < queue_offset < self.next_offset:
            self.truncate(queue_offset)
            return
        self._remove_files()
        self.end.value = self.next_offset = self.min_offset = queue_offset

    def write_gap(self, until: int) -> None:
        """Let entries that stand for no message fill the queue up to `until`."""
        self.write(self.next_offset, pack([0, GAP_SIZE, 0]) * (until - self.next_offset))
        self.next_offset = until
        self.end.advance(until)

    def remove(self) -> None:
        """Delete the queue's files and its folder."""
        self._remove_files()
        if self._files.vfs.exists(self._folder):  # one that was only waited for has none
            self._files.vfs.remove_folder(self._folder)

    def _remove_files(self) -> None:
        self._close_own()
        for path in reversed(self.paths):
            self._files.vfs.unlink(path)
            self._files.unsynced.folders.add(self._folder)
        self._last = -1

    def _open_to_write(self, begin: int, start: int) -> QueueFile:
        if begin <= self._last:
            return self._files.open(self._path(begin), writable=True)
        vfs = self._files.vfs
        if self._last < 0:
            vfs.make_folder(self._folder)
            topic_folder = os.path.dirname(self._folder)
            self._files.unsynced.folders.update((topic_folder, os.path.dirname(topic_folder)))
        self._files.unsynced.folders.add(self._folder)
        file = self._files.create(self._path(begin), self._file_entries * ENTRY_SIZE)
        if self._last < 0:
            self.begin = begin
            self.min_offset = start
            if start > begin:
                self._fill(file, GAP_ENTRY * (start - begin))
        self._last = begin
        return file

    def _fill(self, file: QueueFile, gap: bytes) -> None:
        """Begin a new file with a gap; without room for it the file goes again, so that it can be made later."""
        vfs = self._files.vfs
        try:
            vfs.write(file.file, 0, gap)
        except (DiskFull, OSError):
            vfs.close(file.file)
            vfs.unlink(file.file.path)
            raise

    def _open_to_read(self, begin: int) -> QueueFile:
        if begin == self._writer_begin and self._writer is not None and self._writer.file.fd != -1:
            self._reader = self._writer
        else:
            self._reader = self._files.open(self._path(begin), writable=False)
        self._reader_begin = begin
        return self._reader

    def _close_own(self) -> None:
        for queue_file in (self._writer, self._reader):
            if queue_file is not None:
                self._files.vfs.close(queue_file.file)
        self._writer = self._reader = None

    def _path(self, begin: int) -> str:
        return os.path.join(self._folder, offset_name(begin * ENTRY_SIZE))

    def _file_begins(self) -> Iterator[int]:
        return iter(range(self.begin, self._last + 1, self._file_entries) if self._last >= 0 else ())


class QueueTable:
    """All queues of a store, by topic and queue id."""

    def __init__(self, files: OpenFiles, layout: Layout, file_entries: int) -> None:
        self.files = files
        # Two looks cost less than one with a pair, which would have to be made.
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._layout = layout
        self._file_entries = file_entries

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter([queue for queues in self._by_topic.values() for queue in queues.values()])

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if there is one."""
        queues = self._by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made now if there was none. Raises: InvalidName."""
        queue = self.get(topic, queue_id)
        if queue is None:
            queue = ConsumeQueue(self.files, self._layout, topic, queue_id, self._file_entries)
            self._by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    def load(self, known: int | None, writable: bool = True) -> None:
        """Find the queues on disk; `known` as in `ConsumeQueue.load`. Raises: BadStore."""
        vfs = self.files.vfs
        for topic in vfs.list_folder(self._layout.consume_queue):
            for name in vfs.list_folder(self._layout.topic(topic)):
                if name.isascii() and name.isdigit():
                    self.obtain(topic, int(name)).load(known, writable)

    def remove_topic(self, topic: str) -> None:
        """Delete the topic's queues; its messages stay in the log until that is old enough."""
        for queue in self._by_topic.pop(topic, {}).values():
            queue.remove()
        if self.files.vfs.exists(self._layout.topic(topic)):
            self.files.vfs.remove_folder(self._layout.topic(topic))
            self.files.vfs.sync_folder(self._layout.consume_queue)


def _halve(vfs: Vfs, file: File, file_entries: int) -> int:
    low, high = 0, file_entries
    while low < high:
        middle = (low + high) // 2
        if any(vfs.read(file, middle * ENTRY_SIZE + 8, 4)):
            low = middle + 1
        else:
            high = middle
    return low


def _scan(vfs: Vfs, file: File, file_entries: int) -> int:
    last = -1
    for start in range(0, file_entries, _SCAN_CHUNK):
        count = min(_SCAN_CHUNK, file_entries - start)
        offsets, sizes = Entries(vfs.read(file, start * ENTRY_SIZE, count * ENTRY_SIZE)).columns()
        if min(sizes) > 0 and last < offsets[0] and all(map(lt, offsets, offsets[1:])):
            last = offsets[-1]
            continue
        for i, (offset, size) in enumerate(zip(offsets, sizes, strict=True), start):
            is_gap = size == GAP_SIZE and offset == 0
            if size <= 0 or (offset <= last and not is_gap):
                return i
            last = max(last, offset) if not is_gap else last
    return file_entries
