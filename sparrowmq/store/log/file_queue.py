"""A row of files of one size, addressed by one offset.

    | 00000000000000000000 | 00000000001073741824 | 00000000002147483648 |      a byte's file: its offset // file size

Files are added at the end and deleted at the beginning. Each step is on disk before the next one, so that no crash
leaves a hole in the row. A hole is damage, and is reported as damage.
"""

from __future__ import annotations

import os
from typing import Final

from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.store.layout import missing_file, offset_name, row_of_files
from sparrowmq.store.log.log_file import LogFile, is_unused
from sparrowmq.store.vfs import Vfs

_LOOKS: Final = 10


class FileQueue:
    def __init__(self, vfs: Vfs, folder: str, file_size: int, writable: bool = True) -> None:
        """Open the existing files.

        Raises:
            BadStore: a file is missing, or has the wrong size. A short last file has never held a record, because its
                full size is on disk before its first record; it is removed.
        """
        self._vfs = vfs
        self.folder = folder
        self.file_size = file_size
        self.files: list[LogFile] = []
        self._looks = 0
        # Whether a deleted file's name may still be on the disk. This process, or one that was killed, may have deleted
        # it.
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
                    f"{path} has {size} bytes, not {file_size}; give the settings it was made with (-c FILE)"
                )
            self.files.append(LogFile.open(vfs, path, begin, writable))
        if stray:
            raise missing_file(folder, begins[-1] + file_size, "restore it from a slave or a backup")

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

    def between(self, begin: int, end: int) -> list[LogFile]:
        return [file for file in self.files if file.begin < end and begin < file.end]

    def create_next(self, begin: int) -> LogFile:
        """Create a file for the offset `begin`, and sync it and its name; `add` appends it to the row.

        It changes nothing of this object, so it may run in a thread. Raises: DiskFull.
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
        """Delete the oldest file.

        Raises: OutOfResources, the file is deleted, but its folder is not synced yet; the next call syncs it first.
        """
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

    def lost_file(self) -> LogFile | None:
        """Return an open file that another program has truncated, removed or replaced.

        It looks at the newest file, and at every tenth of the others, in turn.
        """
        self._looks = (self._looks + 1) % _LOOKS
        looked_at = [*self.files[self._looks :: _LOOKS], *self.files[-1:]]
        return next((file for file in looked_at if not file.is_whole), None)

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
