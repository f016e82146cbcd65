"""The files of consume queues that are open: as many as are in use, of all queues together."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from sparrowmq.errors import OutOfResources
from sparrowmq.store.vfs import File, Unsynced, Vfs

log = logging.getLogger(__name__)

_FEWEST_OPEN: Final = 4


class FewFiles:
    """Files that are open: at most `limit`, rather those in use than the idle (second chance).

    When no file descriptor is left, the older half of them is closed, and fewer are kept from then on: the others who
    need descriptors (sockets, the log, snapshots) have what that leaves.
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
        """A file that the caller closes. Raises: FileNotFoundError, OutOfResources."""
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

    def shrink(self) -> bool:
        """Close the older half, and keep fewer open from now on; whether there was one to close."""
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
    """An open file of a queue, perhaps closed in the meantime (`file.fd` is -1 then)."""

    __slots__ = ("file", "used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.used = True
