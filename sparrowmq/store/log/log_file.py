"""One file of the commit log, or of the index: fixed in size, written by pwrite and read by pread.

No memory is mapped. An operator may truncate a mapped file, or the disk may fail to read a mapped sector, and an access
to that memory kills the process. A pread returns an error instead, or fewer bytes. This class treats both as damage:
**unreadable bytes are zeros**, so no checksum fits them.

    wanted        ├──────────────────────────────────────┤
    pread         an error, or less
    page by page  ├───────┼───────┼ zeros ┼───────┼──────┤      the page is logged once, and kept in `unreadable`

Each read asks the disk again: a page may become readable later. Compared with a map, a read of one message costs 0.9 us
more, and one of 256 KiB 16 us more (measured).
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from typing import Final, Self

from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.kernel.records import Buffer
from sparrowmq.store.layout import BLANK_SIZE, missing_file, offset_name, row_of_files
from sparrowmq.store.vfs import File, Vfs, closing, lost_while_open

log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1 << 20
PAGE: Final = 4096  # the least that a disk reads, and that one bad sector makes unreadable
_UNREADABLE_ERRNOS: Final = (errno.EIO, errno.ENODATA, errno.EBADMSG)  # errors of a bad sector, by the kind of disk
_TURNS_TO_CHECK_ALL: Final = 10


class LogFile:
    """A file that contains `[begin, end)` of a row of files."""

    __slots__ = ("_vfs", "begin", "end", "file", "path", "record_end", "unreadable")

    def __init__(self, vfs: Vfs, file: File, begin: int, is_piece: bool = False) -> None:
        self._vfs = vfs
        self.file = file
        self.path = file.path
        self.begin = begin
        self.end = begin + file.size
        # Records end there or before, so that a file of the log has room for a blank. A piece in set-aside need not.
        self.record_end = self.end if is_piece else self.end - BLANK_SIZE
        self.unreadable: set[int] = set()  # the positions of pages that the disk could not read

    @classmethod
    def create(cls, vfs: Vfs, path: str, begin: int, size: int) -> Self:
        """Create a file, and allocate its space on the disk. Raises: DiskFull; no file is left."""
        return cls(vfs, vfs.create(path, size, allocate=True), begin)

    @classmethod
    def open(cls, vfs: Vfs, path: str, begin: int, writable: bool, *, is_piece: bool = False) -> Self:
        file = vfs.open(path, writable)
        try:
            return cls(vfs, file, begin, is_piece)
        except BaseException:
            vfs.close(file)
            raise

    @property
    def size(self) -> int:
        return self.end - self.begin

    def write(self, position: int, content: Buffer) -> None:
        self._vfs.write(self.file, position, content)

    def rewrite_pages(self, position: int, content: bytes) -> None:
        """Write pages again whose earlier write failed. Rewriting does not clear ext4's "unwritten" flag, so the data
        reads as zeros once it has left the cache. So the pages are dropped from the cache first.
        """
        first, end = position // PAGE * PAGE, position + len(content)
        self._vfs.forget(self.file, first, -(-(end - first) // PAGE) * PAGE)
        self.write(position, content)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the file's end. Unreadable bytes are zeros."""
        size = min(size, self.end - self.begin - position)
        if size <= 0:
            return b""
        try:
            content = self._vfs.read(self.file, position, size)
        except OSError as error:
            if error.errno not in _UNREADABLE_ERRNOS:
                raise
            content = b""
        return content if len(content) == size else self._read_pages(position, size)

    def _read_pages(self, position: int, size: int) -> bytes:
        end, pages = position + size, []
        while position < end:
            following = min(end, position - position % PAGE + PAGE)
            pages.append(self._read_page(position, following - position))
            position = following
        return b"".join(pages)

    def _read_page(self, position: int, size: int) -> bytes:
        try:
            content, problem = self._vfs.read(self.file, position, size), "another program truncated the file"
        except OSError as error:
            if error.errno not in _UNREADABLE_ERRNOS:
                raise
            content, problem = b"", str(error)
        if len(content) < size and position - position % PAGE not in self.unreadable:
            self.unreadable.add(position - position % PAGE)
            log.error("%s cannot be read at %d: %s", self.path, position + len(content), problem)
        return content.ljust(size, b"\0")

    def is_cached(self, position: int) -> bool:
        return self._vfs.is_cached(self.file, position)

    def read_cached(self, position: int, into: memoryview) -> bool:
        """Fill a buffer with bytes of the file, unless that needs the disk, or fails. Returns whether it did."""
        try:
            return self._vfs.read_cached(self.file, position, into) == len(into)
        except OSError:  # `read` reports it
            return False

    def cache(self, position: int, size: int) -> None:
        """Read a part so that the system caches it. Call it in a thread: another one may close the file meanwhile."""
        with suppress(OSError):  # the read on the loop reports it
            self._vfs.read(self.file, position, size)

    def used_parts(self, position: int) -> list[tuple[int, int]]:
        return self._vfs.used_parts(self.file, position)

    @property
    def is_whole(self) -> bool:
        return self._vfs.is_whole(self.file)

    def sync(self) -> None:
        self._vfs.sync(self.file)
        if not self.is_whole:  # a sync of a removed file succeeds
            raise lost_while_open(self.file)

    def close(self) -> None:
        self._vfs.close(self.file)

    def remove(self) -> None:
        """Delete the file. Bytes that were read from it stay valid."""
        self.close()
        self._vfs.unlink(self.path)


def is_unused(vfs: Vfs, path: str) -> bool:
    """Whether a file contains only zeros: a crash can leave one that is too short and was never used."""
    with closing(vfs, vfs.open(path, writable=False)) as file:
        return not any(any(vfs.read(file, offset, _CHUNK_BYTES)) for offset in range(0, file.size, _CHUNK_BYTES))


class FileQueue:
    """A row of files of one size, addressed by one offset.

        | 00000000000000000000 | 00000000001073741824 | 00000000002147483648 |    a byte's file: its offset // file size

    Files are added at the end and deleted at the beginning. Each step is on disk before the next one, so that no crash
    leaves a hole in the row. A hole is damage, and is reported as damage.
    """

    def __init__(self, vfs: Vfs, folder: str, file_size: int, files: list[LogFile]) -> None:
        self._vfs = vfs
        self.folder = folder
        self.file_size = file_size
        self.files = files
        self._check_turn = 0
        # Whether a deleted file's name may still be on the disk. This process, or one that was killed, may have deleted
        # it.
        self._is_unsynced = True

    @classmethod
    def open(cls, vfs: Vfs, folder: str, file_size: int, writable: bool = True) -> Self:
        """Open the existing files. Raises: BadStore, a file is missing, or has the wrong size. A short last file has
        never held a record, because its full size is on disk before its first record; it is removed.
        """
        files: list[LogFile] = []
        begins, stray = row_of_files(folder, vfs.list_folder(folder), file_size)
        for begin in begins:
            path = os.path.join(folder, offset_name(begin))
            size = vfs.size(path)
            if size != file_size:
                if begin == begins[-1] and not stray and size < file_size and is_unused(vfs, path):
                    if writable:
                        vfs.unlink(path)
                    break
                raise BadStore(
                    f"{path} has {size} bytes, not {file_size}; give the settings it was made with (-c FILE)"
                )
            files.append(LogFile.open(vfs, path, begin, writable))
        if stray:
            raise missing_file(folder, begins[-1] + file_size, "restore it from a slave or a backup")
        return cls(vfs, folder, file_size, files)

    @property
    def begin(self) -> int:
        return self.files[0].begin if self.files else 0

    @property
    def end(self) -> int:
        return self.files[-1].end if self.files else 0

    def find(self, offset: int) -> LogFile | None:
        if self.files and self.files[0].begin <= offset < self.files[-1].end:
            return self.files[(offset - self.files[0].begin) // self.file_size]
        return None

    def path_at(self, offset: int) -> str:
        """Return the path of the file with an offset; the folder if no file has it."""
        file = self.find(offset)
        return file.path if file is not None else self.folder

    def between(self, begin: int, end: int) -> list[LogFile]:
        return [file for file in self.files if file.begin < end and begin < file.end]

    def create_next(self, begin: int) -> LogFile:
        """Create a file for the offset `begin`, and sync it and its name, in any thread; `add` appends it to the row.
        Raises: DiskFull.
        """
        self._vfs.make_folder(self.folder)
        file = LogFile.create(self._vfs, self._path(begin), begin, self.file_size)
        try:
            file.sync()
            self._vfs.sync_folder(self.folder)
        except DiskFull:
            file.remove()
            raise
        return file

    def add(self, file: LogFile) -> None:
        assert not self.files or file.begin == self.end, f"{file.path} does not follow the row that ends at {self.end}"
        self.files.append(file)

    def drop_first(self) -> None:
        """Delete the oldest file. Raises: OutOfResources, the file is deleted, but its folder is not synced yet; the
        next call syncs it first.
        """
        self._begin_drop()
        self.files.pop(0).remove()
        self._vfs.sync_folder(self.folder)
        self._is_unsynced = False

    def drop_last(self) -> None:
        self._begin_drop()
        self.files.pop().remove()
        self._vfs.sync_folder(self.folder)
        self._is_unsynced = False

    def lost_file(self) -> LogFile | None:
        """Return an open file that another program has changed. It checks the newest, and a tenth of the others."""
        self._check_turn = (self._check_turn + 1) % _TURNS_TO_CHECK_ALL
        checked = [*self.files[self._check_turn :: _TURNS_TO_CHECK_ALL], *self.files[-1:]]
        return next((file for file in checked if not file.is_whole), None)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _begin_drop(self) -> None:
        """Sync the deletion of the last file before the next one begins."""
        if self._is_unsynced:
            self._vfs.sync_folder(self.folder)
        self._is_unsynced = True

    def _path(self, begin: int) -> str:
        return os.path.join(self.folder, offset_name(begin))
