"""One file of the commit log, or one index file: fixed in size, mapped; the only place that maps memory.

The map lives as long as anybody holds a view into it, even after `close`, and even after the file was
deleted: so views go to sockets uncopied, and nobody needs to count readers. Never is the map flushed:
`mmap.flush` holds the GIL for the length of the write (107 ms for 256 MB, measured), fdatasync of the
descriptor syncs the same pages without it.
"""

from __future__ import annotations

import mmap
from typing import Any, Final

from sparrowmq.errors import DiskFull
from sparrowmq.store.vfs import File, Vfs, disk_error

_CHUNK: Final = 1 << 20


class MappedFile:
    """A mapped file that holds `[begin, end)` of a row of files."""

    __slots__ = ("_memory", "_source", "_vfs", "begin", "end", "file", "path", "view")

    def __init__(self, vfs: Vfs, file: File, begin: int) -> None:
        self._vfs = vfs
        self.file = file
        self.path = file.path
        self.begin = begin
        self.end = begin + file.size
        self.view = vfs.map(file)
        self._source: Any = self.view.obj  # which gives bytes in one step
        self._memory: mmap.mmap | None = None

    @classmethod
    def create(cls, vfs: Vfs, path: str, begin: int, size: int) -> MappedFile:
        """A new file with its room on the disk taken. Raises: DiskFull, before anything is mapped; no file is left."""
        file = vfs.create(path, size, allocate=True)
        try:
            return cls(vfs, file, begin)
        except DiskFull:
            vfs.close(file)
            vfs.unlink(path)
            raise

    @classmethod
    def open(cls, vfs: Vfs, path: str, begin: int, writable: bool) -> MappedFile:
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
        """A copy of up to `size` bytes; fewer only at the file's end."""
        return bytes(self._source[position : position + size])

    def used_parts(self, position: int) -> list[tuple[int, int]]:
        """Where from a position on something else than zeros may be: begins and ends, rising."""
        return self._vfs.used_parts(self.file, position)

    @property
    def is_memory(self) -> bool:
        """Whether `numbers` can be had."""
        return isinstance(self.view.obj, mmap.mmap)

    def numbers(self, position: int, count: int) -> Any:
        """A numpy array over big-endian int32 of the file, to read and to store into: for writes in no order.

        Raises:
            DiskFull: there is no descriptor or memory for it now.
        """
        import numpy  # takes 0.1 s, which a store without an index need not wait for

        if self._memory is None:
            try:
                self._memory = mmap.mmap(self.file.fd, self.file.size)
            except OSError as error:
                raise disk_error(self.path, error) from error
        return numpy.frombuffer(self._memory, ">i4", count, position)

    @property
    def is_whole(self) -> bool:
        """Whether nobody cut it."""
        return self._vfs.is_whole(self.file)

    def sync(self) -> None:
        self._vfs.sync(self.file)

    def close(self) -> None:
        self._vfs.close(self.file)

    def remove(self) -> None:
        """Delete the file; views into it stay good."""
        self.close()
        self._vfs.unlink(self.path)


def is_unused(vfs: Vfs, path: str) -> bool:
    """Whether a file holds nothing but zeros: a crash can leave one that is too short, and never served."""
    file = vfs.open(path, writable=False)
    try:
        return not any(any(vfs.read(file, offset, _CHUNK)) for offset in range(0, file.size, _CHUNK))
    finally:
        vfs.close(file)
