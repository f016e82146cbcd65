"""One file of the index: fixed in size, mapped; the only place that maps memory.

Keys go into slots all over the file, some thousand at a time, which a map takes in one step. The map lives as long
as anybody holds a view into it, even after `close`, and even after the file was deleted. Never is it flushed:
`mmap.flush` holds the GIL for the length of the write (107 ms for 256 MB, measured), fdatasync of the descriptor syncs
the same pages without it.
"""

from __future__ import annotations

import mmap
from typing import Any, Final, Self

from sparrowmq.errors import DiskFull
from sparrowmq.store.log_file import LogFile
from sparrowmq.store.vfs import File, Vfs, disk_error

_CHUNK: Final = 1 << 20


class MappedFile(LogFile):
    """A file of the index.

    Attributes:
        view: all of it.
    """

    __slots__ = ("_memory", "view")

    def __init__(self, vfs: Vfs, file: File, begin: int) -> None:
        super().__init__(vfs, file, begin)
        self.view = vfs.map(file)
        self._memory: mmap.mmap | None = None

    @classmethod
    def create(cls, vfs: Vfs, path: str, begin: int, size: int) -> Self:
        """A new file with its room on the disk taken. Raises: DiskFull, before anything is mapped; no file is left."""
        file = vfs.create(path, size, allocate=True)
        try:
            return cls(vfs, file, begin)
        except DiskFull:
            vfs.close(file)
            vfs.unlink(path)
            raise

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


def is_unused(vfs: Vfs, path: str) -> bool:
    """Whether a file holds nothing but zeros: a crash can leave one that is too short, and never served."""
    file = vfs.open(path, writable=False)
    try:
        return not any(any(vfs.read(file, offset, _CHUNK)) for offset in range(0, file.size, _CHUNK))
    finally:
        vfs.close(file)
