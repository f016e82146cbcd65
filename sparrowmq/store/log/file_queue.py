"""A row of files of one size, addressed by one offset.

    | 00000000000000000000 | 00000000001073741824 | 00000000002147483648 |      a byte's file: its offset // file size

Files come at the end and go at the beginning. Each step is on disk before the next one is taken, so that no
crash leaves a hole in the row: a hole is damage, and is reported as such.
"""

from __future__ import annotations

import os

from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.store.layout import missing_file, offset_name, row_of_files
from sparrowmq.store.log.log_file import LogFile, is_unused
from sparrowmq.store.vfs import Vfs


class FileQueue:
    """The files of a commit log."""

    def __init__(self, vfs: Vfs, folder: str, file_size: int, writable: bool = True) -> None:
        """Open what is there.

        Raises:
            BadStore: a file is missing, or has the wrong size. A last file that is short has never held a
                record (its size is on disk before its first record), and is removed.
        """
        self._vfs = vfs
        self.folder = folder
        self.file_size = file_size
        self.files: list[LogFile] = []
        # Whether a file was dropped and its name may still be on the disk: by this process, or by one that was killed.
        self._is_unsynced = True
        begins, stray = row_of_files(folder, vfs.list_folder(folder), file_size)
        for begin in begins:
            path = self._path(begin)
            size = vfs.size(path)
            if size != file_size:
                if begin == begins[-1] and not stray and size < file_size and is_unused(vfs, path):
                    if writable:
                        vfs.unlink(path)
                    break
                raise BadStore(
                    f"{path} has {size} bytes, not {file_size}; set the file size it was made with"
                )
            self.files.append(LogFile.open(vfs, path, begin, writable))
        if stray:
            raise missing_file(folder, begins[-1] + file_size, "restore it from a slave or a backup")

    @property
    def begin(self) -> int:
        """The offset of the first byte that is kept."""
        return self.files[0].begin if self.files else 0

    @property
    def end(self) -> int:
        """The offset behind the last file."""
        return self.files[-1].end if self.files else 0

    def find(self, offset: int) -> LogFile | None:
        """The file that holds the byte at `offset`."""
        if self.files and self.files[0].begin <= offset < self.files[-1].end:
            return self.files[(offset - self.files[0].begin) // self.file_size]
        return None

    def between(self, begin: int, end: int) -> list[LogFile]:
        """The files that hold bytes of `[begin, end)`."""
        return [file for file in self.files if file.begin < end and begin < file.end]

    def create_next(self, begin: int) -> LogFile:
        """A file for the offset `begin`, on disk with its name; `add` takes it into the row.

        May run in a thread: it touches nothing of this object. Raises: DiskFull.
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
        assert not self.files or file.begin == self.end, (
            f"{file.path} does not follow the row that ends at {self.end}"
        )
        self.files.append(file)

    def drop_first(self) -> None:
        """Delete the oldest file. Raises: OutOfResources, but it is gone; the next call makes that sure first."""
        self._begin_drop()
        self.files.pop(0).remove()
        self._vfs.sync_folder(self.folder)
        self._is_unsynced = False

    def drop_last(self) -> None:
        """Delete the newest file. Raises: OutOfResources, as `drop_first`."""
        self._begin_drop()
        self.files.pop().remove()
        self._vfs.sync_folder(self.folder)
        self._is_unsynced = False

    def cut_file(self) -> LogFile | None:
        """A file that somebody cut, though it is open here."""
        return next((file for file in self.files if not file.is_whole), None)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _begin_drop(self) -> None:
        """Of two files that go, the name of the first must be gone from the disk before the second is touched."""
        if self._is_unsynced:
            self._vfs.sync_folder(self.folder)
        self._is_unsynced = True

    def _path(self, begin: int) -> str:
        return os.path.join(self.folder, offset_name(begin))
