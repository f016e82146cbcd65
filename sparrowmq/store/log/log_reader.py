"""The log as it is read: records one by one or in chunks, by their offsets, sound or not.

    parse       the record or blank at an offset, unchecked
    examine     the same, with the problem of one that is damaged
    next_sound  behind damage, the next record by its own offset and checksums

Files are read by pread. An I/O error in a memory map kills the process (log_file.py), and its page faults take a tenth
of a broker's time with SYNC_FLUSH and 128 bytes (measured).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Self

from sparrowmq.errors import CorruptRecord
from sparrowmq.kernel.log_tail import LogTail
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES, PREFIX
from sparrowmq.kernel.records import Passed, collect_prepared, is_sound, pass_sound
from sparrowmq.protocol.messages.record import check, store_timestamp_ms
from sparrowmq.store.layout import BLANK_SIZE, NO_CRC
from sparrowmq.store.log.damage import record_places
from sparrowmq.store.log.log_file import PAGE, FileQueue, LogFile
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1 << 20
_HEAD_READ_BYTES: Final = 1024  # bytes read to find a record's size: most records are shorter


class LogReader(LogTail):
    """A log, and what was found out about it. Records from `written` to `end` are not in its files yet."""

    def __init__(self, row: FileQueue) -> None:
        super().__init__()
        self.row = row
        self.end = self.written = row.begin
        self.crc_from = NO_CRC  # each record from this offset on must have a CRC property
        # Records from this offset on were checked when the store was opened, or were written since then. Earlier
        # records are checked at every read.
        self.verified_from = 0
        self.skips_damaged = False  # whether a reader skips damaged records
        self.suspects: set[int] = set()  # the offsets of damaged records that readers have found

    @classmethod
    def open(cls, settings: StoreSettings, vfs: Vfs) -> Self:
        """Open the log of a store to read. Raises: BadStore, a file is missing, or has another size."""
        return cls(FileQueue.open(vfs, settings.layout.commit_log, settings.commit_log_file_size, writable=False))

    @property
    def begin(self) -> int:
        return self.row.begin

    @property
    def file_size(self) -> int:
        return self.row.file_size

    def start_at(self, end: int) -> None:
        """Let the log end at `end`; the caller has checked everything before it."""
        self.end = self.written = end

    def parse(self, offset: int) -> tuple[memoryview | None, int]:
        """Return the record at `offset` (None: a blank), and the offset of the next record. The content is not checked.
        Raises: CorruptRecord, neither a record nor a blank begins there.
        """
        file = self.row.find(offset)
        if file is None:
            raise CorruptRecord(self.row.folder, offset, "a file of the log; none has this offset")
        remaining_bytes = file.end - offset
        head = self._read(file, offset, _HEAD_READ_BYTES)
        size, magic = PREFIX.unpack_from(head) if remaining_bytes >= BLANK_SIZE else (0, 0)
        if magic in (MAGIC_V1, MAGIC_V2):
            max_size = file.record_end - offset
            if MIN_SIZE_BYTES <= size <= max_size:
                record = head if size <= len(head) else self._read(file, offset, size)
                return memoryview(record)[:size], offset + size
            raise CorruptRecord(file.path, offset, f"a size from {MIN_SIZE_BYTES} to {max_size}, found {size}")
        is_before_next = file.record_end == file.end and BLANK_SIZE <= size < remaining_bytes  # in a piece of the log
        if magic == MAGIC_BLANK and (size == remaining_bytes or is_before_next):
            return None, offset + size
        raise CorruptRecord(file.path, offset, f"a record; found magic {magic & 0xFFFFFFFF:#010x} and size {size}")

    def examine(self, offset: int) -> tuple[memoryview | None, int, str | None]:
        """Return the record at `offset` (None: a blank, or bytes without the shape of a record), the offset of the next
        record, and the damage; None if the record is sound.
        """
        try:
            record, following = self.parse(offset)
        except CorruptRecord as bad:
            return None, offset, f"there should be {bad.expected}"
        return record, following, None if record is None else check(record, offset, offset >= self.crc_from)

    def is_blank(self, offset: int) -> bool:
        record, _, problem = self.examine(offset)
        return record is None and problem is None

    def walk(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield each record of `[begin, end)`; a record or a blank begins at `begin`. Raises: CorruptRecord."""
        while begin < end:
            record, begin = self.parse(begin)
            if record is not None:
                yield record

    def sound_records(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield records as `walk`, but skip damage, log it, and note it in `suspects`."""
        while begin < end:
            record, following, problem = self.examine(begin)
            if problem is not None:
                sound = self.next_sound(begin, end)
                following = end if sound is None else sound
                log.error("the log is damaged from offset %d to %d: %s", begin, following, problem)
                self.suspects.add(begin)
            elif record is not None:
                yield record
            begin = following

    def collect_prepared(self, begin: int, end: int, prepared: set[int]) -> int:
        """Add the prepared offsets, other than 0, of about 1 MiB of records; return the offset to continue at. Damage
        is skipped, and logged.
        """
        following = begin + collect_prepared(self.chunk(begin, min(_CHUNK_BYTES, end - begin)), prepared)
        if following > begin:
            return following
        try:
            record, following = self.parse(begin)  # a blank, or a record larger than a chunk
        except CorruptRecord as bad:
            sound = self.next_sound(begin, end)
            log.error("the log is damaged from offset %d to %d: %s", begin, end if sound is None else sound, bad)
            return end if sound is None else sound
        if record is not None:
            collect_prepared(bytes(record), prepared)
        return following

    def sound_record(self, offset: int) -> memoryview | None:
        record, _, problem = self.examine(offset)
        return record if problem is None else None

    def stored_ms(self, offset: int) -> int | None:
        """Return the time at which the record at `offset` was stored; None if there is none or it is damaged."""
        record = self.sound_record(offset) if self.begin <= offset < self.end else None
        return store_timestamp_ms(record) if record is not None else None

    def count_sound(self, chunk: bytes, offset: int, passed: Passed) -> int:
        """Return how many bytes at the beginning of `chunk`, read at `offset`, are whole sound records."""
        return pass_sound(chunk, offset, self.crc_from, passed)

    def chunk(self, offset: int, max_bytes: int = _CHUNK_BYTES) -> bytes:
        """Return up to `max_bytes` from `offset` on, from one file, without the file's end that no record can use."""
        file = self.row.find(offset)
        if file is None:
            return b""
        return self._read(file, offset, min(max_bytes, file.record_end - offset))

    def is_verified(self, offset: int, size: int, raw: bytes) -> bool:
        """Whether the record of `size` bytes at `offset` may be served; `raw` begins with it."""
        return offset >= self.verified_from or is_sound(raw, 0, size, offset, offset >= self.crc_from)

    def distrust(self) -> None:
        """Check every record at every read from now on: a disk that failed once may soon fail at other pages."""
        self.verified_from = self.row.end

    def report_damage(self, offset: int) -> None:
        """Report that a record to be read is damaged. Raises: CorruptRecord, unless damaged records are skipped."""
        self.suspects.add(offset)
        bad = CorruptRecord(
            self.row.path_at(offset),
            offset,
            "there should be a sound record; it is not served. Restore the file from a slave or a backup, or set "
            "corruptPolicy=quarantine to skip it",
        )
        if not self.skips_damaged:
            raise bad
        log.error("skipped a message: %s", bad)

    def next_sound(self, after_offset: int, end_offset: int) -> int | None:
        """Return the next offset between `after_offset` and `end_offset` at which a sound record begins."""
        places = self.places(after_offset, end_offset)
        return next((place for place in places if self.sound_record(place) is not None), None)

    def places(self, after_offset: int, end_offset: int) -> Iterator[int]:
        """Yield the offsets between these two at which records seem to begin. They are not checked."""
        for file in self.row.between(after_offset + 1, end_offset):
            first = max(after_offset + 1 - file.begin, 0)
            size = min(file.size, end_offset - file.begin)
            for position in record_places(file.read, file.begin, first, size):
                yield file.begin + position

    def last_used_byte(self, offset: int) -> int:
        """Return the offset after the last byte of the log that is not zero; at least `offset`."""
        for file in reversed(self.row.between(offset, self.row.end)):
            for low, high in reversed(file.used_parts(max(offset - file.begin, 0))):
                for begin in range(low + (high - low - 1) // _CHUNK_BYTES * _CHUNK_BYTES, low - 1, -_CHUNK_BYTES):
                    chunk = file.read(begin, min(_CHUNK_BYTES, high - begin))
                    used_content = chunk.rstrip(b"\0")
                    if used_content:
                        return file.begin + begin + len(used_content)
        return offset

    def view(self, offset: int, size: int) -> memoryview | None:
        """Return `size` bytes at `offset`, to be sliced without copies; None if no single file has all of them."""
        content = self.copy(offset, size)
        return None if content is None else memoryview(content)

    def file_with(self, offset: int, size: int) -> LogFile | None:
        """Return the file that has `size` bytes at `offset`; None if no single file has all of them."""
        file, end = self.row.find(offset), offset + size
        return None if file is None or end > self.written or end > file.end else file

    def copy(self, offset: int, size: int) -> bytes | None:
        file = self.file_with(offset, size)
        return None if file is None else self._read(file, offset, size)

    def read_cached(self, offset: int, into: memoryview) -> bool:
        """Fill a buffer from `offset` on, unless that needs the disk, or no single file has all the bytes. Returns
        whether it did.
        """
        file = self.file_with(offset, len(into))
        return file is not None and file.read_cached(offset - file.begin, into)

    def is_cached(self, offset: int) -> bool:
        """Whether a read at `offset` needs no disk. True if no file contains the offset."""
        file = self.row.find(offset)
        return file is None or file.is_cached(offset - file.begin)

    def cache(self, offset: int, size: int) -> None:
        """Make the system cache a part of the log, up to the end of its file. Blocks: call it in a thread."""
        file = self.row.find(offset)
        if file is not None:
            file.cache(offset - file.begin, min(size, file.end - offset))

    def is_unreadable(self, begin: int, end: int) -> bool:
        """Whether an earlier read failed somewhere in `[begin, end)`."""
        return any(
            begin - PAGE < file.begin + position < end
            for file in self.row.between(begin, end)
            for position in file.unreadable
        )

    def close(self) -> None:
        self.row.close()

    def _read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Read bytes of a log file. After a failed read, every record is checked at every read."""
        content = file.read(offset - file.begin, size)
        if file.unreadable and self.verified_from < file.end:
            self.distrust()
        return content
