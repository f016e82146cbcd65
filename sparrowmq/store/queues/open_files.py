"""The open files of consume queues: a limited number for all queues together."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from sparrowmq.errors import DiskFull, OutOfResources
from sparrowmq.store.vfs import File, Unsynced, Vfs

log = logging.getLogger(__name__)

_FEWEST_OPEN: Final = 4


class FewFiles:
    """Open files, at most `limit`. Idle files are closed before those in use (second chance).

    When no file descriptor is left, the older half is closed, and the limit falls. The freed descriptors serve sockets,
    the log and snapshots.
    """

    def __init__(self, vfs: Vfs, limit: int, unsynced: Unsynced) -> None:
        self.vfs = vfs
        self._limit = limit
        self._ring: deque[QueueFile] = deque()
        self.unsynced = unsynced

    def open(self, path: str, writable: bool) -> QueueFile:
        """Raises: FileNotFoundError, OutOfResources."""
        return self._keep(self.open_briefly(path, writable))

    def open_briefly(self, path: str, writable: bool) -> File:
        """Open a file that the caller closes. Raises: FileNotFoundError, OutOfResources."""
        try:
            return self.vfs.open(path, writable)
        except OutOfResources:
            if not self.shrink():
                raise
            return self.vfs.open(path, writable)

    def create(self, path: str, size: int) -> QueueFile:
        """Raises: DiskFull."""
        try:
            return self._keep(self.vfs.create(path, size, allocate=False))
        except OutOfResources:
            if not self.shrink():
                raise
            return self._keep(self.vfs.create(path, size, allocate=False))

    def fill(self, file: QueueFile, content: bytes) -> None:
        """Begin a new file with this content. If there is no room, delete the file, so that it can be created later."""
        try:
            self.vfs.write(file.file, 0, content)
        except (DiskFull, OSError):
            self.vfs.close(file.file)
            self.vfs.unlink(file.file.path)
            raise

    def shrink(self) -> bool:
        """Close the older half, and keep fewer files open from now on. Returns whether there was one to close."""
        count = -(-len(self._ring) // 2)
        if count:
            self._limit = max(_FEWEST_OPEN, min(self._limit, len(self._ring) * 3 // 4))
            log.warning("no file descriptor is left; at most %d files of queues stay open", self._limit)
        for _ in range(count):
            self.vfs.close(self._ring.popleft().file)
        return count > 0

    def close(self) -> None:
        while self._ring:
            self.vfs.close(self._ring.popleft().file)

    def _keep(self, file: File) -> QueueFile:
        while len(self._ring) >= self._limit:
            oldest = self._ring.popleft()
            if oldest.used and oldest.file.fd != -1:
                oldest.used = False
                self._ring.append(oldest)
            else:
                self.vfs.close(oldest.file)
        kept = QueueFile(file)
        self._ring.append(kept)
        return kept


class QueueFile:
    """An open file of a queue. It may have been closed since (`file.fd` is -1 then)."""

    __slots__ = ("file", "used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.used = True
