"""The machine's file system, with faults that a test switches on."""

from __future__ import annotations

import errno
import os
import threading

from sparrowmq.errors import DiskFull
from sparrowmq.kernel.records import Buffer
from sparrowmq.store.log.log_file import PAGE
from sparrowmq.store.vfs import Disk, File


class FaultyDisk(Disk):
    """A disk.

    Attributes:
        full_for: the parts of paths for which there is no room.
        write_error, sync_error: what a write to a file without allocated room, a sync fails with; a sync fails once, as
            on Linux.
        bad: the pages that cannot be read, by path and position, and the number of the error.
        write_errors, sync_errors: the number of the error that a write to a file, or a sync, fails with, by its path.
        log_error: what a write to a file of the log fails with.
        may_sync: while it is not set, a sync that is called does not return.
        synced: the names of the files that were synced, in order.
        sync_began: set by each sync as it begins.
        bytes_read: how many bytes were asked for.
    """

    def __init__(self) -> None:
        self.full_for: tuple[str, ...] = ()
        self.bad: dict[tuple[str, int], int] = {}
        self.write_error: Exception | None = None
        self.write_errors: dict[str, int] = {}
        self.sync_errors: dict[str, int] = {}
        self.log_error: Exception | None = None
        self.sync_error: OSError | None = None
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.sync_began = threading.Event()
        self.synced: list[str] = []
        self.bytes_read = 0
        self._allocated: set[str] = set()

    def create(self, path: str, size: int, allocate: bool) -> File:
        self._demand_room(path)
        if allocate:
            self._allocated.add(path)
        return super().create(path, size, allocate)

    def read(self, file: File, offset: int, size: int) -> bytes:
        self.bytes_read += size
        for page in range(offset - offset % PAGE, offset + size, PAGE) if self.bad else ():
            number = self.bad.get((file.path, page))
            if number is not None:
                raise OSError(number, os.strerror(number))
        return super().read(file, offset, size)

    def write(self, file: File, offset: int, content: Buffer) -> None:
        if self.log_error is not None and "commitlog" in file.path:
            raise self.log_error
        if (number := self.write_errors.get(file.path)) is not None:
            raise OSError(number, os.strerror(number), file.path)
        if file.path not in self._allocated:
            self._demand_room(file.path)
            if self.write_error is not None:
                raise self.write_error
        super().write(file, offset, content)

    def sync(self, file: File) -> None:
        self._await_sync(file.path)
        super().sync(file)

    def sync_path(self, path: str) -> None:
        self._await_sync(path)
        super().sync_path(path)

    def unlink(self, path: str) -> None:
        """What is made there later lies elsewhere on the disk."""
        super().unlink(path)
        self.bad = {place: number for place, number in self.bad.items() if place[0] != path}

    def rename(self, path: str, to: str) -> None:
        super().rename(path, to)
        self.bad = {(to if name == path else name, at): number for (name, at), number in self.bad.items()}

    def _await_sync(self, path: str) -> None:
        self.sync_began.set()
        assert self.may_sync.wait(10), "the test forgot to let the sync go on"
        error, self.sync_error = self.sync_error, None
        if error is not None:
            raise error
        if (number := self.sync_errors.get(path)) is not None:
            raise OSError(number, os.strerror(number), path)
        self.synced.append(os.path.basename(path))

    def _demand_room(self, path: str) -> None:
        if any(part in path for part in self.full_for):
            raise DiskFull(f"no room on the disk for {path}")


def broken() -> OSError:
    """What a disk that breaks answers."""
    return OSError(errno.EIO, os.strerror(errno.EIO))
