"""The commit log: all messages of all topics, one after the other, in a row of files.

`append` adds a record to the burst, and `write_out` writes the whole burst at once. The caller makes the record,
because it contains its own offset, and calls `make_room` if it ends after `limit`. The limit is -1 if the log must not
grow, so the hot path needs no check of its own.

log_reader.py has the other half: how records are read.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future

from sparrowmq.errors import DiskFull, MessageTooLarge
from sparrowmq.kernel.record_layout import MAGIC_BLANK
from sparrowmq.kernel.records import Buffer
from sparrowmq.store.layout import BLANK, BLANK_SIZE
from sparrowmq.store.log.log_file import FileQueue, LogFile
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.vfs import Vfs


class CommitLog(LogReader):
    """The log of a store. The records from `written` to `end` belong to the current burst."""

    def __init__(self, vfs: Vfs, folder: str, file_size: int, writable: bool = True) -> None:
        super().__init__(FileQueue.open(vfs, folder, file_size, writable))
        self._refusal: Exception | None = None
        self._next_file: Future[LogFile] | None = None
        self._growing_file: LogFile | None = None

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
        super().start_at(end)
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

    def close(self) -> None:
        if self._next_file is not None and self._next_file.exception() is None:
            self.row.add(self._next_file.result())
        self._next_file = None
        super().close()

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
        self.limit = file.record_end
