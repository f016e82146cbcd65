"""One file of the commit log, or of the index: fixed in size, written by pwrite and read by pread.

No memory is mapped. What a map shows can be cut off by an operator, or lie on a sector that the disk reads no more, and
to touch it then kills the process: no error, and every connection gone for one message. A pread answers such a read
with an error, or with less than was asked for. Here that is damage like any other: **what cannot be read is zeros**, so
no checksum fits it, and all that knows what to do about rot (reading, the scrubber, recovery, `store repair`) does it.

    wanted        ├──────────────────────────────────────┤
    pread         an error, or less
    page by page  ├───────┼───────┼ zeros ┼───────┼──────┤      the page is told once, and kept in `unreadable`

The disk is asked again each time: what cannot be read now may be readable later, as over a network. A read of one
message costs 0.9 us more than through a map, one of 256 KiB 16 us (measured), and a file half of the descriptors.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from typing import Final, Self

from sparrowmq.store.vfs import File, Vfs

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 20
PAGE: Final = 4096  # what a disk reads at least, and what one bad sector takes with it
_UNREADABLE: Final = (errno.EIO, errno.ENODATA, errno.EBADMSG)  # a bad sector, by the kind of disk


class LogFile:
    """A file that holds `[begin, end)` of a row of files.

    Attributes:
        unreadable: positions at which the disk could not be read when it was asked.
    """

    __slots__ = ("_vfs", "begin", "end", "file", "path", "unreadable")

    def __init__(self, vfs: Vfs, file: File, begin: int) -> None:
        self._vfs = vfs
        self.file = file
        self.path = file.path
        self.begin = begin
        self.end = begin + file.size
        self.unreadable: set[int] = set()

    @classmethod
    def create(cls, vfs: Vfs, path: str, begin: int, size: int) -> Self:
        """A new file with its room on the disk taken. Raises: DiskFull; no file is left."""
        return cls(vfs, vfs.create(path, size, allocate=True), begin)

    @classmethod
    def open(cls, vfs: Vfs, path: str, begin: int, writable: bool) -> Self:
        file = vfs.open(path, writable)
        try:
            return cls(vfs, file, begin)
        except BaseException:
            vfs.close(file)
            raise

    @property
    def size(self) -> int:
        return self.end - self.begin

    def write(self, position: int, content: bytes) -> None:
        """Write at a position of the file; it is on disk after the next `sync`."""
        self._vfs.write(self.file, position, content)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the file's end. What cannot be read is zeros."""
        size = min(size, self.end - self.begin - position)
        if size <= 0:
            return b""
        try:
            content = self._vfs.read(self.file, position, size)
        except OSError as error:
            if error.errno not in _UNREADABLE:
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
            content, problem = self._vfs.read(self.file, position, size), "somebody cut the file"
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            content, problem = b"", str(error)
        if len(content) < size and position - position % PAGE not in self.unreadable:
            self.unreadable.add(position - position % PAGE)
            log.error("%s cannot be read at %d: %s", self.path, position + len(content), problem)
        return content.ljust(size, b"\0")

    def is_cached(self, position: int) -> bool:
        """Whether a read at a position needs no disk."""
        return self._vfs.is_cached(self.file, position)

    def cache(self, position: int, size: int) -> None:
        """Read a part so that the system caches it. For a thread: the file may be closed meanwhile."""
        with suppress(OSError):  # the read on the loop reports it
            self._vfs.read(self.file, position, size)

    def used_parts(self, position: int) -> list[tuple[int, int]]:
        """Where from a position on something else than zeros may be: begins and ends, rising."""
        return self._vfs.used_parts(self.file, position)

    @property
    def is_whole(self) -> bool:
        """Whether nobody cut it."""
        return self._vfs.is_whole(self.file)

    def sync(self) -> None:
        self._vfs.sync(self.file)

    def close(self) -> None:
        self._vfs.close(self.file)

    def remove(self) -> None:
        """Delete the file; what was read of it stays good."""
        self.close()
        self._vfs.unlink(self.path)


def is_unused(vfs: Vfs, path: str) -> bool:
    """Whether a file holds nothing but zeros: a crash can leave one that is too short, and never served."""
    file = vfs.open(path, writable=False)
    try:
        return not any(any(vfs.read(file, offset, _CHUNK)) for offset in range(0, file.size, _CHUNK))
    finally:
        vfs.close(file)
