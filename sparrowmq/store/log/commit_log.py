"""The commit log: all messages of all topics, one behind the other, in a row of files.

`append` is the hot path of a broker: a list takes the record, and `write_out` writes those of a whole burst at once.
The caller makes the record, because a record says where it lies; it asks `limit` whether the record ends in this
file, and `make_room` otherwise. A log that must not grow (its disk is full, a sync failed, it was closed) has a
limit of -1, so that the hot path needs no check of its own for that.

Files are written by pwrite and read by pread: what fails in a map kills the process (log_file.py), and to store into
one costs a page fault for each page, and after each sync again: a tenth of a broker's time with SYNC_FLUSH and 128
bytes (measured).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Final

from sparrowmq.errors import CorruptRecord, DiskFull, MessageTooLarge
from sparrowmq.protocol.messages.record import Buffer, check, is_sound, store_timestamp_ms
from sparrowmq.protocol.messages.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES, PREFIX
from sparrowmq.protocol.messages.soundness import Passed, pass_sound
from sparrowmq.store.layout import BLANK, BLANK_SIZE, NO_CRC
from sparrowmq.store.log.damage import record_places
from sparrowmq.store.log.file_queue import FileQueue
from sparrowmq.store.log.log_file import PAGE, LogFile
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 20
_SMALL: Final = 1024  # bytes that are read to see how large a record is: most end there
_PIECE: Final = 131_072  # bytes that are joined to be written: pages for a larger copy cost more than a call


class CommitLog:
    """The log's files, and its end.

    Attributes:
        end: the offset at which the next record begins.
        written: the offset up to which the files have it; the records behind it belong to the burst that goes on.
        crc_from: each record from this offset on must have a property CRC.
        proved_from: records from this offset on were checked when the store was opened, or written since; the others
            are checked whenever they are read.
        skips_damaged: whether who reads a damaged record is to go on behind it.
        limit: the highest offset at which a record may end without a new file; -1 if nothing may be appended.
    """

    def __init__(self, vfs: Vfs, folder: str, file_size: int, writable: bool = True) -> None:
        self.row = FileQueue(vfs, folder, file_size, writable)
        self.end = self.written = self.row.begin
        self.limit = -1
        self.crc_from = NO_CRC
        self.proved_from = 0
        self.skips_damaged = False
        self._refusal: Exception | None = None
        self._prepared: Future[LogFile] | None = None
        self._file: LogFile | None = None
        self._burst: list[bytes] = []

    @property
    def begin(self) -> int:
        """The offset of the oldest byte that is kept."""
        return self.row.begin

    @property
    def file_size(self) -> int:
        return self.row.file_size

    def append(self, record: bytes) -> None:
        """Put a record at the end; it must not reach over `limit`."""
        self._burst.append(record)
        self.end += len(record)

    def write_out(self) -> int:
        """Write the burst; returns the offset up to which the files have the log now.

        Raises:
            DiskFull, OSError: try again later; all of it is kept.
        """
        if self._burst:
            assert self._file is not None
            position = self.written - self._file.begin
            if self.end - self.written <= _PIECE:
                self._file.write(position, b"".join(self._burst))
            else:
                for piece in pieces(self._burst):
                    self._file.write(position, piece)
                    position += len(piece)
            self._burst.clear()
            self.written = self.end
        return self.written

    def make_room(self, size: int) -> None:
        """Make sure that `size` bytes can be appended, in a new file if need be.

        Raises:
            MessageTooLarge: no file can hold that many.
            DiskFull: there is no room for a new file; nothing has changed.
            whatever was given to `refuse`.
        """
        if self._refusal is not None:
            raise self._refusal
        if size > self.file_size - BLANK_SIZE:
            raise MessageTooLarge(
                f"{size} bytes do not fit into a log file of {self.file_size}; raise mappedFileSizeCommitLog"
            )
        if self._file is not None:
            self._use(self._file)  # a hold is over
        if self.end + size > self.limit:
            self._roll()

    def hold(self) -> None:
        """Let the next append ask for room, whatever its size."""
        self.limit = -1

    def append_raw(self, content: Buffer) -> None:
        """Append bytes of another broker's log, whatever they hold: records, blanks, parts of them."""
        self.write_out()
        rest = memoryview(content)
        while rest:
            if self._file is None or self.end == self._file.end:
                if self._refusal is not None:
                    raise self._refusal
                self._use(self._file_at(self.end))
            assert self._file is not None
            part = rest[: self._file.end - self.end]
            self._file.write(self.end - self._file.begin, bytes(part))
            self.end = self.written = self.end + len(part)
            rest = rest[len(part) :]

    def start_at(self, end: int) -> None:
        """Let the next record begin at `end`; recovery found that all before it is good."""
        self.end = self.written = end
        self._file = None
        self._refusal = None
        file = self.row.find(end)
        if file is not None:
            self._use(file)
        else:
            self.limit = end

    def begin_at(self, offset: int) -> None:
        """Let a log that never held a byte begin at `offset`. Raises: DiskFull, and it is as it was."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.exception() is None:
            self.row.add(prepared.result())
        file = self.row.create_next(offset)
        while self.row.files:
            self.row.drop_last()
        self.row.add(file)
        self.start_at(offset)

    def refuse(self, error: Exception) -> None:
        """Let no append succeed from now on: each raises `error`."""
        self._refusal = error
        self.limit = -1

    def distrust(self) -> None:
        """Check every record whenever it is read.

        After a failed sync the system may drop what it shows now, and a disk that cannot read one page soon more.
        """
        self.proved_from = self.row.end

    @property
    def refusal(self) -> Exception | None:
        """Why nothing can be appended."""
        return self._refusal

    def prepare(self, executor: Executor) -> None:
        """Have the next file made in another thread, before it is needed."""
        if (
            self._prepared is None
            and self._refusal is None
            and self.row.end - self.end <= self.file_size // 2
        ):
            begin = max(self.row.end, self.end)
            self._prepared = executor.submit(self.row.create_next, begin)

    def parse(self, offset: int) -> tuple[memoryview | None, int]:
        """The record at `offset` (None: a blank) and where the next one begins. Its content is not checked.

        Raises:
            CorruptRecord: neither a record nor a blank begins there.
        """
        file = self.row.find(offset)
        if file is None:
            raise CorruptRecord(self.row.folder, offset, "a file of the log; none has this offset")
        left = file.end - offset
        head = self._read(file, offset, _SMALL)
        size, magic = PREFIX.unpack_from(head) if left >= BLANK_SIZE else (0, 0)
        if magic in (MAGIC_V1, MAGIC_V2):
            if MIN_SIZE_BYTES <= size <= left - BLANK_SIZE:
                record = head if size <= len(head) else self._read(file, offset, size)
                return memoryview(record)[:size], offset + size
            raise CorruptRecord(
                file.path, offset, f"a size from {MIN_SIZE_BYTES} to {left - BLANK_SIZE}, found {size}"
            )
        if magic == MAGIC_BLANK and size == left:
            return None, file.end
        raise CorruptRecord(
            file.path, offset, f"a record; found magic {magic & 0xFFFFFFFF:#010x} and size {size}"
        )

    def walk(self, begin: int, end: int) -> Iterator[memoryview]:
        """Each record of `[begin, end)`; a record or a blank begins at `begin`. Raises: CorruptRecord."""
        while begin < end:
            record, begin = self.parse(begin)
            if record is not None:
                yield record

    def sound_records(self, begin: int, end: int) -> Iterator[memoryview]:
        """As `walk`, but what is damaged is passed over, and told."""
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
            elif record is not None:
                yield record
            begin = following

    def sound_record(self, offset: int) -> memoryview | None:
        """The record at `offset`, if one lies there and is sound."""
        try:
            record, _ = self.parse(offset)
        except CorruptRecord:
            return None
        return record if record is not None and self.problem(record, offset) is None else None

    def stored_ms(self, offset: int) -> int | None:
        """When the record at `offset` was stored, in ms; None if none lies there, or it is damaged."""
        record = self.sound_record(offset) if self.begin <= offset < self.end else None
        return store_timestamp_ms(record) if record is not None else None

    def problem(self, record: memoryview, offset: int) -> str | None:
        """What is wrong with the record at `offset`."""
        return check(record, offset, offset >= self.crc_from)

    def pass_sound(self, offset: int, passed: Passed) -> int:
        """Where the sound records end that follow each other from `offset` on; it looks at a mebibyte at most."""
        return offset + self.count_sound(self.chunk(offset), offset, passed)

    def count_sound(self, chunk: bytes, offset: int, passed: Passed) -> int:
        """How many bytes at the beginning of `chunk`, which lies at `offset`, are whole sound records."""
        return pass_sound(chunk, offset, self.crc_from, passed)

    def chunk(self, offset: int, most: int = _CHUNK) -> bytes:
        """Up to so many bytes from `offset` on, and only where records can be, in one file."""
        file = self.row.find(offset)
        if file is None:
            return b""
        position = offset - file.begin
        return self._read(file, offset, min(most, file.size - BLANK_SIZE - position))

    def is_proved(self, offset: int, size: int, raw: bytes) -> bool:
        """Whether the record of `size` bytes at `offset`, with which `raw` begins, may be served."""
        return offset >= self.proved_from or is_sound(raw, 0, size, offset, offset >= self.crc_from)

    def tell_damage(self, offset: int) -> None:
        """Say that a record that was to be read is damaged. Raises: CorruptRecord, unless it is to be passed over."""
        file = self.row.find(offset)
        path = file.path if file is not None else self.row.folder
        bad = CorruptRecord(
            path,
            offset,
            "there should be a sound record; it is not served. Restore the file from a slave or a backup, or set "
            "corruptPolicy=quarantine to pass over it",
        )
        if not self.skips_damaged:
            raise bad
        log.error("passed over a message: %s", bad)

    def next_sound(self, after: int, before: int) -> int | None:
        """The next offset between the two at which a sound record lies that says that it lies there."""
        for file in self.row.between(after + 1, before):
            first = max(after + 1 - file.begin, 0)
            size = min(file.size, before - file.begin)
            for position in record_places(file.read, file.begin, first, size):
                if self.sound_record(file.begin + position) is not None:
                    return file.begin + position
        return None

    def last_used_byte(self, offset: int) -> int:
        """Behind the last byte of the log that is not zero, and not before `offset`."""
        for file in reversed(self.row.between(offset, self.row.end)):
            for low, high in reversed(file.used_parts(max(offset - file.begin, 0))):
                for begin in range(low + (high - low - 1) // _CHUNK * _CHUNK, low - 1, -_CHUNK):
                    chunk = file.read(begin, min(_CHUNK, high - begin))
                    used = chunk.rstrip(b"\0")
                    if used:
                        return file.begin + begin + len(used)
        return offset

    def view(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes at `offset`, to be cut without copies; None if they are not all there in one file."""
        content = self.copy(offset, size)
        return None if content is None else memoryview(content)

    def copy(self, offset: int, size: int) -> bytes | None:
        """`view`, as bytes."""
        file = self._file_with(offset, size)
        return None if file is None else self._read(file, offset, size)

    def is_cached(self, offset: int) -> bool:
        """Whether a read at `offset` needs no disk. True if no file has it."""
        file = self.row.find(offset)
        return file is None or file.is_cached(offset - file.begin)

    def cache(self, offset: int, size: int) -> None:
        """Have the system cache a part of the log, as far as one file has it. For a thread."""
        file = self.row.find(offset)
        if file is not None:
            file.cache(offset - file.begin, min(size, file.end - offset))

    def is_unreadable(self, begin: int, end: int) -> bool:
        """Whether the disk could not be read somewhere in `[begin, end)`, when that was tried."""
        return any(
            begin - PAGE < file.begin + position < end
            for file in self.row.between(begin, end)
            for position in file.unreadable
        )

    def close(self) -> None:
        if self._prepared is not None and self._prepared.exception() is None:
            self.row.add(self._prepared.result())
        self._prepared = None
        self.row.close()

    def _read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Bytes of a file of the log. Where one cannot be read, none is served unchecked from now on."""
        content = file.read(offset - file.begin, size)
        if file.unreadable and self.proved_from < file.end:
            self.distrust()
        return content

    def _file_with(self, offset: int, size: int) -> LogFile | None:
        """The file that has all of these bytes."""
        file = self.row.find(offset)
        if file is None or offset + size > self.written or offset + size > file.end:
            return None
        return file

    def _roll(self) -> None:
        """Go to the next file: first make it, then close this one with a blank, so that a full disk changes nothing."""
        old = self._file
        following = self._file_at(old.end if old is not None else self.end)
        self.write_out()
        if old is not None and self.end < old.end:
            old.write(self.end - old.begin, BLANK.pack(old.end - self.end, MAGIC_BLANK))
        self._use(following)
        self.end = self.written = following.begin

    def _file_at(self, begin: int) -> LogFile:
        file = self.row.find(begin)
        if file is None:
            prepared, self._prepared = self._prepared, None
            # The result may have to be waited for: as long as making the file here would take.
            failed = prepared is None or isinstance(prepared.exception(), DiskFull)  # there may be room again
            file = self.row.create_next(begin) if prepared is None or failed else prepared.result()
            self.row.add(file)
        return file

    def _use(self, file: LogFile) -> None:
        self._file = file
        self.limit = file.end - BLANK_SIZE


def pieces(burst: list[bytes]) -> Iterator[bytes]:
    """What is written at once of a burst: some hundred small records together, a large batch by itself."""
    small: list[bytes] = []
    room = _PIECE
    for part in burst:
        if len(part) > room:
            if small:
                yield b"".join(small)
            small, room = [], _PIECE
        small.append(part)
        room -= len(part)
    yield b"".join(small)
