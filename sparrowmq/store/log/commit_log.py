"""The commit log: all messages of all topics, one after the other, in a row of files.

`append` adds a record to the burst, and `write_out` writes the whole burst at once. The caller makes the record,
because it contains its own offset, and calls `make_room` if it ends after `limit`. The limit is -1 if the log must not
grow, so the hot path needs no check of its own.

Files are written by pwrite and read by pread. An I/O error in a memory map kills the process (log_file.py), and its
page faults take a tenth of a broker's time with SYNC_FLUSH and 128 bytes (measured).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Final

from sparrowmq.errors import CorruptRecord, DiskFull, MessageTooLarge
from sparrowmq.kernel.log_tail import LogTail
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES, PREFIX
from sparrowmq.kernel.records import Buffer, Passed, collect_prepared, is_sound, pass_sound
from sparrowmq.protocol.messages.record import check, store_timestamp_ms
from sparrowmq.store.layout import BLANK, BLANK_SIZE, NO_CRC
from sparrowmq.store.log.damage import record_places
from sparrowmq.store.log.log_file import PAGE, FileQueue, LogFile
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1 << 20
_HEAD_READ_BYTES: Final = 1024  # bytes read to find a record's size: most records are shorter


class CommitLog(LogTail):
    """The log's files, and its end. The records from `written` to `end` belong to the current burst."""

    def __init__(self, vfs: Vfs, folder: str, file_size: int, writable: bool = True) -> None:
        super().__init__()
        self.row = FileQueue(vfs, folder, file_size, writable)
        self.end = self.written = self.row.begin
        self.crc_from = NO_CRC  # each record from this offset on must have a CRC property
        # Records from this offset on were checked when the store was opened, or were written since then. Earlier
        # records are checked at every read.
        self.verified_from = 0
        self.skips_damaged = False  # whether a reader skips damaged records
        self.suspects: set[int] = set()  # the offsets of damaged records that readers have found
        self._refusal: Exception | None = None
        self._next_file: Future[LogFile] | None = None
        self._growing_file: LogFile | None = None

    @property
    def begin(self) -> int:
        return self.row.begin

    @property
    def file_size(self) -> int:
        return self.row.file_size

    def write_out(self) -> int:
        """Write the burst, and return the offset up to which the log is in its files. Raises: DiskFull, OSError, try
        again later; the whole burst is kept.
        """
        if self.burst.size:
            assert self._growing_file is not None
            with self.burst.view() as records:
                self._growing_file.write(self.written - self._growing_file.begin, records)
            self.burst.cut(0)
            self.written = self.end
        return self.written

    def make_room(self, size: int) -> None:
        """Make sure that `size` bytes can be appended, in a new file if necessary. Raises: MessageTooLarge; DiskFull,
        and nothing has changed; the error that was given to `refuse`.
        """
        if self._refusal is not None:
            raise self._refusal
        if size > self.file_size - BLANK_SIZE:
            raise MessageTooLarge(
                f"{size} bytes do not fit into a log file of {self.file_size}; raise mappedFileSizeCommitLog"
            )
        if self._growing_file is not None:
            self._write_to(self._growing_file)  # a hold is over
        if self.end + size > self.limit:
            self._roll()

    def hold(self) -> None:
        """Make the next append ask for room, at any size."""
        self.limit = -1

    def append_raw(self, content: Buffer) -> None:
        """Append bytes of another broker's log: records, blanks, or parts of them."""
        self.write_out()
        remaining = memoryview(content)
        while remaining:
            if self._growing_file is None or self.end == self._growing_file.end:
                if self._refusal is not None:
                    raise self._refusal
                self._write_to(self._file_at(self.end))
            assert self._growing_file is not None
            part = remaining[: self._growing_file.end - self.end]
            self._growing_file.write(self.end - self._growing_file.begin, bytes(part))
            self.end = self.written = self.end + len(part)
            remaining = remaining[len(part) :]

    def start_at(self, end: int) -> None:
        """Let the next record begin at `end`; recovery has checked everything before it."""
        self.end = self.written = end
        self._growing_file = None
        self._refusal = None
        file = self.row.find(end)
        if file is not None:
            self._write_to(file)
        else:
            self.limit = end

    def begin_at(self, offset: int) -> None:
        """Let a log that never contained a byte begin at `offset`. Raises: DiskFull, and nothing has changed."""
        next_file, self._next_file = self._next_file, None
        if next_file is not None and next_file.exception() is None:
            self.row.add(next_file.result())
        file = self.row.create_next(offset)
        while self.row.files:
            self.row.drop_last()
        self.row.add(file)
        self.start_at(offset)

    def refuse(self, error: Exception) -> None:
        """Refuse all appends from now on: each raises `error`."""
        self._refusal = error
        self.limit = -1

    def distrust(self) -> None:
        """Check every record at every read from now on: a disk that failed once may soon fail at other pages."""
        self.verified_from = self.row.end

    @property
    def refusal(self) -> Exception | None:
        return self._refusal

    @property
    def wanted_bytes(self) -> int:
        """The room on the disk for the next file; 0 if it is not needed soon, or is there."""
        prepared = self._next_file
        is_there = prepared is not None and prepared.done() and prepared.exception() is None
        return self.file_size if self._is_next_due and not is_there else 0

    @property
    def _is_next_due(self) -> bool:
        return self.row.end - self.end <= self.file_size // 2

    def prepare(self, executor: Executor) -> None:
        """Create the next file in another thread, before it is needed."""
        if self._next_file is None and self._refusal is None and self._is_next_due:
            begin = max(self.row.end, self.end)
            self._next_file = executor.submit(self.row.create_next, begin)

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
            if MIN_SIZE_BYTES <= size <= remaining_bytes - BLANK_SIZE:
                record = head if size <= len(head) else self._read(file, offset, size)
                return memoryview(record)[:size], offset + size
            raise CorruptRecord(
                file.path, offset, f"a size from {MIN_SIZE_BYTES} to {remaining_bytes - BLANK_SIZE}, found {size}"
            )
        if magic == MAGIC_BLANK and size == remaining_bytes:
            return None, file.end
        raise CorruptRecord(file.path, offset, f"a record; found magic {magic & 0xFFFFFFFF:#010x} and size {size}")

    def walk(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield each record of `[begin, end)`; a record or a blank begins at `begin`. Raises: CorruptRecord."""
        while begin < end:
            record, begin = self.parse(begin)
            if record is not None:
                yield record

    def sound_records(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield records as `walk`, but skip damage, log it, and note it in `suspects`."""
        while begin < end:
            try:
                record, following = self.parse(begin)
                problem = self.problem(record, begin) if record is not None else None
            except CorruptRecord as bad:
                record, following, problem = None, begin, f"there should be {bad.expected}"
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
        try:
            record, _ = self.parse(offset)
        except CorruptRecord:
            return None
        return record if record is not None and self.problem(record, offset) is None else None

    def stored_ms(self, offset: int) -> int | None:
        """Return the time at which the record at `offset` was stored; None if there is none or it is damaged."""
        record = self.sound_record(offset) if self.begin <= offset < self.end else None
        return store_timestamp_ms(record) if record is not None else None

    def problem(self, record: memoryview, offset: int) -> str | None:
        """Describe the damage of the record at `offset`; None if it is sound."""
        return check(record, offset, offset >= self.crc_from)

    def pass_sound(self, offset: int, passed: Passed) -> int:
        """Return the end of the consecutive sound records from `offset` on. It checks at most 1 MiB."""
        return offset + self.count_sound(self.chunk(offset), offset, passed)

    def count_sound(self, chunk: bytes, offset: int, passed: Passed) -> int:
        """Return how many bytes at the beginning of `chunk`, read at `offset`, are whole sound records."""
        return pass_sound(chunk, offset, self.crc_from, passed)

    def chunk(self, offset: int, max_bytes: int = _CHUNK_BYTES) -> bytes:
        """Return up to `max_bytes` from `offset` on, from one file, without the file's end that no record can use."""
        file = self.row.find(offset)
        if file is None:
            return b""
        position = offset - file.begin
        return self._read(file, offset, min(max_bytes, file.size - BLANK_SIZE - position))

    def is_verified(self, offset: int, size: int, raw: bytes) -> bool:
        """Whether the record of `size` bytes at `offset` may be served; `raw` begins with it."""
        return offset >= self.verified_from or is_sound(raw, 0, size, offset, offset >= self.crc_from)

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

    def copy(self, offset: int, size: int) -> bytes | None:
        file = self.row.find(offset)
        if file is None or offset + size > self.written or offset + size > file.end:
            return None
        return self._read(file, offset, size)

    def read_cached(self, offset: int, into: memoryview) -> bool:
        """Fill a buffer from `offset` on, unless that needs the disk, or no single file has all the bytes. Returns
        whether it did.
        """
        file = self.row.find(offset)
        end = offset + len(into)
        if file is None or end > self.written or end > file.end:
            return False
        return file.read_cached(offset - file.begin, into)

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
        if self._next_file is not None and self._next_file.exception() is None:
            self.row.add(self._next_file.result())
        self._next_file = None
        self.row.close()

    def _read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Read bytes of a log file. After a failed read, every record is checked at every read."""
        content = file.read(offset - file.begin, size)
        if file.unreadable and self.verified_from < file.end:
            self.distrust()
        return content

    def _roll(self) -> None:
        """Create the next file, then close this one with a blank, so that a full disk changes nothing."""
        full_file = self._growing_file
        following = self._file_at(full_file.end if full_file is not None else self.end)
        self.write_out()
        if full_file is not None and self.end < full_file.end:
            full_file.write(self.end - full_file.begin, BLANK.pack(full_file.end - self.end, MAGIC_BLANK))
        self._write_to(following)
        self.end = self.written = following.begin

    def _file_at(self, begin: int) -> LogFile:
        file = self.row.find(begin)
        if file is None:
            next_file, self._next_file = self._next_file, None
            # Waiting for the result takes at most as long as creating the file here.
            failed = next_file is None or isinstance(next_file.exception(), DiskFull)  # there may be room again
            file = self.row.create_next(begin) if next_file is None or failed else next_file.result()
            self.row.add(file)
        return file

    def _write_to(self, file: LogFile) -> None:
        self._growing_file = file
        self.limit = file.end - BLANK_SIZE
