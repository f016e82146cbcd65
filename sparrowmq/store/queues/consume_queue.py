"""A consume queue: the places in the log of one queue's messages, 20 bytes for each (layout.py draws an entry).

Entries are collected while a burst of messages is appended, and then one pwrite writes them. A pread reads them. A
queue without traffic costs one object. A file that is damaged, or differs from its checksum, is built again from the
log before its entries are used. queue_files.py has the files themselves.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.kernel.crc import crc32
from sparrowmq.store.layout import ENTRY_SIZE, GAP_ENTRY, parse_offset_name
from sparrowmq.store.queues.entries import GAP_SIZE, Entries, Entry, pack
from sparrowmq.store.queues.queue_files import UNKNOWN_CRC, QueueEnd, QueueFiles

log = logging.getLogger(__name__)

_ENTRIES_PER_SCAN: Final = 512
_NO_ENTRIES: Final = Entries(b"")


class ConsumeQueue(QueueFiles):
    """One queue of a topic."""

    __slots__ = ()

    @property
    def max_offset(self) -> int:
        return self.end.value

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
            while content:
                begin = self.file_of(start)
                part = content[: (begin + self.file_entries - start) * ENTRY_SIZE]
                if begin != self._writer_begin or self._writer is None or self._writer.file.fd == -1:
                    self._writer = self._open_to_write(begin, start)
                    self._writer_begin = begin
                self._writer.was_used = True
                self._files.unsynced.files.add(self._writer.file.path)
                self._files.vfs.write(self._writer.file, (start - begin) * ENTRY_SIZE, part)
                if self._last_crc != UNKNOWN_CRC:
                    self._last_crc = crc32(part, self._last_crc)
                start += len(part) // ENTRY_SIZE
                content = content[len(part) :]
        except BaseException:
            self._last_crc = UNKNOWN_CRC
            raise

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
        if self.rebuild(begin):
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
            reader, writer = self._reader, self._writer
            if begin != self._reader_begin or reader is None or reader.file.fd == -1:
                if begin == self._writer_begin and writer is not None and writer.file.fd != -1:
                    reader = writer
                else:
                    if begin in self._unchecked_files:
                        self._check_file(begin)
                    reader = self._files.open(self._path(begin), writable=False)
                self._reader, self._reader_begin = reader, begin
            reader.was_used = True
            content = self._files.vfs.read(reader.file, (start - begin) * ENTRY_SIZE, count * ENTRY_SIZE)
            return Entries(content)
        except OSError as error:
            log.error("%s: %s", self._path(begin), error)
            return _NO_ENTRIES

    def rebuild(self, queue_offset: int) -> bool:
        """Build the file with an entry again from the log. Returns False if the store cannot. Raises: BadStore."""
        begin = self.file_of(queue_offset)
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
        if self._last_crc == UNKNOWN_CRC:
            self._last_crc = self._crc_on_disk(self._last_file_begin)
        if self._last_crc == UNKNOWN_CRC and not self.rebuild(self._last_file_begin):
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
        vfs, paths = self._files.vfs, {begin: self._path(begin) for begin in begins}
        damaged = [at for at, path in paths.items() if not vfs.exists(path) or vfs.size(path) != step * ENTRY_SIZE]
        if self._last_file_begin not in damaged and self._crc_on_disk(self._last_file_begin) != self._last_crc:
            damaged.append(self._last_file_begin)
        self._unchecked_files = {
            begin
            for begin, crc in zip(begins, self._full_crcs, strict=False)
            if begin not in damaged and crc != UNKNOWN_CRC
        }
        for name in vfs.list_folder(self._folder):
            path = os.path.join(self._folder, name)
            if path not in paths.values() and parse_offset_name(name) is not None:
                vfs.unlink(path)
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

    def check_files(self) -> None:
        """Compare all full files with their CRCs now. Raises: BadStore, a damaged one cannot be built again."""
        for begin in sorted(self._unchecked_files):
            self._check_file(begin)

    def _check_file(self, begin: int) -> None:
        """Compare a full file with its CRC before its first read; a damaged one is built again."""
        self._unchecked_files.discard(begin)
        if self._crc_on_disk(begin) != self._full_crcs[(begin - self.begin) // self.file_entries]:
            try:
                self.rebuild(begin)
            except BadStore:
                self._unchecked_files.add(begin)
                raise

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
        self._last_crc = UNKNOWN_CRC
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
