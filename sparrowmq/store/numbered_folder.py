"""A folder with one file that is replaced from time to time, under the next number. The newest whole file counts.

    %020d.tmp   written and synced ── renamed to %020d ── folder synced ── files with other numbers deleted

So a crash at any moment leaves a whole file: the one before or the new one. A reader takes the file with the highest
number that makes sense. The next file gets a number above all that were found.
"""

from __future__ import annotations

import os

from sparrowmq.store.layout import offset_name, parse_offset_name
from sparrowmq.store.vfs import File, Vfs


class NumberedFolder:
    """The folder. The first `replace` creates it.

    Attributes:
        number: the number of the newest file that was found or written; -1 if there was none.
    """

    def __init__(self, vfs: Vfs, path: str) -> None:
        self.number = -1
        self._vfs = vfs
        self._path = path

    def numbers(self) -> list[int]:
        """Return the numbers of all files, the newest first."""
        found = [parse_offset_name(name) for name in self._vfs.list_folder(self._path)]
        numbers = sorted((number for number in found if number is not None), reverse=True)
        self.number = max(numbers, default=self.number)
        return numbers

    def open(self, number: int, writable: bool) -> File:
        """Open the file with this number. Raises: OutOfResources."""
        return self._vfs.open(self._path_of(number), writable=writable)

    def replace(self, content: bytes, room_bytes: int = 0) -> File:
        """Write the next file, and return once it is on disk. The file before it stays until `remove_others`.

        Args:
            room_bytes: the size to allocate; 0 for a file that grows as it is written.
        Raises:
            DiskFull, OSError: `number` is as before.
        """
        vfs, path = self._vfs, self._path_of(self.number + 1)
        vfs.make_folder(self._path)
        beside = path + ".tmp"
        if vfs.exists(beside):
            vfs.unlink(beside)
        file = vfs.create(beside, room_bytes, allocate=room_bytes > 0)
        try:
            vfs.write(file, 0, content)
            vfs.sync(file)
            vfs.rename(beside, path)
            vfs.sync_folder(self._path)
        except BaseException:
            vfs.close(file)
            raise
        file.path = path
        self.number += 1
        return file

    def remove_others(self) -> None:
        for name in self._vfs.list_folder(self._path):
            if parse_offset_name(name) not in (None, self.number):
                self._vfs.unlink(os.path.join(self._path, name))

    def _path_of(self, number: int) -> str:
        return os.path.join(self._path, offset_name(number))
