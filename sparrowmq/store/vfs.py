"""The file operations that the store uses. No other module of this package touches a file.

A test can give the store a `Vfs` that records each operation, and open every state in which a power cut could have left
the disk (tests/store/crash_states.py).

The store relies on these promises of a disk:
- written bytes are safe once `sync` of that file has returned; before, they may reach the disk in any order, in units
  of a sector;
- the creation, deletion and name of a file are safe once `sync_folder` of its folder has returned; before, they may
  reach the disk in any order;
- after a failed `sync` the state is unknown: Linux drops the bytes, and the next call reports success.
Source: measured on ext4 and xfs with the shutdown ioctl.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from sparrowmq.errors import BadStore, DiskFull, OutOfResources, StoreLocked
from sparrowmq.kernel.records import Buffer
from sparrowmq.store.layout import Layout, offset_name, parse_offset_name

_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The disk is not at fault: the next attempt succeeds once others have released some.
_SHORTAGES = {
    errno.EMFILE: "this process has no file descriptor left; raise `ulimit -n`",
    errno.ENFILE: "the machine has no file descriptor left; raise fs.file-max",
    errno.ENOMEM: "there is no memory left",
}
# The file system has no links, the file has its most, or it is on another disk.
_NO_LINK_ERRNOS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES)
_IS_BSD = sys.platform == "darwin"
_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_ZEROS = bytes(1 << 20)
PROBE_NAME: Final = "trial"
PROBE_BYTES: Final = 1 << 20  # for the small files of a start
# macOS has no fdatasync. Its fsync does not flush the disk's own cache, and no cheap call does.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


@dataclass(eq=False, slots=True)
class File:
    """An open file; `fd` is -1 once closed."""

    path: str
    fd: int
    size: int
    is_known: bool | None = None  # whether the system finds this file at its path; None while `is_whole` was not called


class Stamp(NamedTuple):
    """A version of a file: two equal stamps of one path mean that the file was not written in between."""

    size: int
    changed_ns: int
    inode: int


@dataclass(slots=True)
class Unsynced:
    """The changed files and folders that must be synced before a checkpoint can cover the changes."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def take(self) -> Unsynced:
        unsynced = Unsynced(self.files, self.folders)
        self.files, self.folders = set(), set()
        return unsynced

    def give_back(self, unsynced: Unsynced) -> None:
        """Add files and folders again that were not synced after all. Any thread may call it."""
        self.files.update(unsynced.files)
        self.folders.update(unsynced.folders)


class Vfs(Protocol):
    """The file system that the store needs. Paths are strings; offsets and sizes are bytes.

    Calls that need a file descriptor or memory raise OutOfResources when there is none. It is a temporary `DiskFull`.
    """

    def create(self, path: str, size: int, allocate: bool) -> File:
        """Create a file of `size` zeros. With `allocate`, also reserve its space on the disk. Raises: DiskFull, there
        is no room; no file is left.
        """

    def open(self, path: str, writable: bool) -> File:
        """Open a file that exists. Raises: FileNotFoundError."""

    def close(self, file: File) -> None:
        """Release the descriptor. Closing twice is harmless."""

    def read(self, file: File, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer at the file's end, and before an unreadable part. Raises: OSError."""

    def is_cached(self, file: File, offset: int) -> bool:
        """Whether a read at `offset` needs no disk access. True if the system cannot tell."""

    def read_cached(self, file: File, offset: int, into: memoryview) -> int:
        """Read as `read` into a buffer, and return the number of bytes; fewer, or -1, if more would need the disk. It
        may need the disk if the system cannot tell. Raises: OSError.
        """

    def forget(self, file: File, offset: int, size: int) -> None:
        """Let the system drop pages of this part from its cache, except those that it has still to write."""

    def used_parts(self, file: File, offset: int) -> list[tuple[int, int]]:
        """Return the parts from `offset` on that may have bytes other than zero: begins and ends, rising."""

    def write(self, file: File, offset: int, content: Buffer) -> None:
        """Write all of `content`. Raises: DiskFull."""

    def truncate(self, file: File, size: int) -> None:
        """Cut or lengthen."""

    def sync(self, file: File) -> None:
        """Return once the file's bytes are on disk. Takes about 0.1 ms or more, without the GIL."""

    def sync_path(self, path: str) -> None:
        """`sync` a file that may not be open here. A missing file is ignored."""

    def sync_folder(self, path: str) -> None:
        """Return once the folder's names are on disk. A folder that is missing or not readable is ignored."""

    def rename(self, path: str, to: str) -> None:
        """Rename the file, and replace a file that has the new name."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def link(self, path: str, to: str) -> bool:
        """Give a file a second name; false if the file system cannot."""

    def stamp(self, path: str) -> Stamp:
        """The size of a file, and what changes when the file is written or replaced. Raises: FileNotFoundError."""

    def make_folder(self, path: str) -> None:
        """Create the folder and its parents, if they are missing. Raises: DiskFull; BadStore, a file is there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder, unless other files are in it."""

    def list_folder(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if the folder is missing, or is a file."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """The size of a file. Raises: FileNotFoundError."""

    def is_whole(self, file: File) -> bool:
        """Whether an open file still is at its path, with its size; false if it was cut or removed from outside."""

    def used_ratio(self, path: str) -> float:
        """The used share of the disk that has a folder, from 0 to 1."""

    def lock(self, path: str) -> File | None:
        """Take the lock that says "a broker runs here"; None if it is taken. `close` releases it."""

    def lock_folder(self, path: str) -> File | None:
        """Lock an existing folder against other callers of this function; None if it is taken."""


class Disk:
    def create(self, path: str, size: int, allocate: bool) -> File:
        fd = -1
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            if allocate:
                _allocate(fd, size)
            else:
                os.ftruncate(fd, size)
        except OSError as error:
            if fd >= 0:
                # A failed allocation leaves a part of the file, which uses the last free space.
                os.close(fd)
                os.unlink(path)
            raise disk_error(path, error) from error
        return File(path, fd, size)

    def open(self, path: str, writable: bool) -> File:
        fd = _open(path, os.O_RDWR if writable else os.O_RDONLY)
        return File(path, fd, os.fstat(fd).st_size)

    def close(self, file: File) -> None:
        if file.fd >= 0:
            os.close(file.fd)
            file.fd = -1

    def read(self, file: File, offset: int, size: int) -> bytes:
        try:
            return os.pread(file.fd, size, offset)
        except OSError as error:
            error.filename = file.path  # a sector cannot be read: the error has to name the file
            raise

    def is_cached(self, file: File, offset: int) -> bool:
        if not hasattr(os, "RWF_NOWAIT"):
            return True
        try:
            os.preadv(file.fd, [bytearray(1)], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # a file system without this flag; the read itself reports other errors
            return True
        return True

    def read_cached(self, file: File, offset: int, into: memoryview) -> int:
        try:
            return os.preadv(file.fd, [into], offset, _NO_WAIT)
        except BlockingIOError:
            return -1
        except OSError:  # a file system without this flag, or a damaged disk, which the read itself reports
            return os.preadv(file.fd, [into], offset)

    def forget(self, file: File, offset: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fd, offset, size, os.POSIX_FADV_DONTNEED)

    def used_parts(self, file: File, offset: int) -> list[tuple[int, int]]:
        # A log file is allocated in advance. Unwritten parts need no read: 1 GiB of them took 1 s to read.
        parts = []
        while offset < file.size and (begin := _seek(file, offset, "SEEK_DATA", file.size)) < file.size:
            offset = _seek(file, begin, "SEEK_HOLE", file.size)
            parts.append((begin, offset))
        return parts

    def write(self, file: File, offset: int, content: Buffer) -> None:
        try:
            _write(file.fd, offset, content)
        except OSError as error:
            raise disk_error(file.path, error) from error

    def truncate(self, file: File, size: int) -> None:
        os.ftruncate(file.fd, size)
        file.size = size

    def sync(self, file: File) -> None:
        _sync_data(file.fd)

    def sync_path(self, path: str) -> None:
        try:
            fd = _open(path, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            _sync_data(fd)
        finally:
            os.close(fd)

    def sync_folder(self, path: str) -> None:
        try:
            fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, PermissionError):  # a folder that we may not read was not created by us
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, path: str, to: str) -> None:
        os.replace(path, to)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def link(self, path: str, to: str) -> bool:
        try:
            os.link(path, to)
        except OSError as error:
            if error.errno not in _NO_LINK_ERRNOS:
                raise disk_error(to, error) from error
            return False
        return True

    def stamp(self, path: str) -> Stamp:
        status = os.stat(path)
        return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)

    def make_folder(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise BadStore(
                f"{path} should be a folder of the store, but it or a folder above it is a file; move that file away, "
                "or choose another storePathRootDir"
            ) from error
        except OSError as error:
            raise disk_error(path, error) from error

    def remove_folder(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise

    def list_folder(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise disk_error(path, error) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def is_whole(self, file: File) -> bool:
        try:
            opened = os.fstat(file.fd)
            current = os.stat(file.path)
        except OSError:  # it was moved, or its folder was, or the disk is gone
            return False
        is_same = os.path.samestat(opened, current)
        if file.is_known is None:  # some network file systems give one file two numbers
            file.is_known = is_same
        return opened.st_size >= file.size and opened.st_nlink > 0 and (is_same or not file.is_known)

    def used_ratio(self, path: str) -> float:
        disk = os.statvfs(path)
        used_blocks = disk.f_blocks - disk.f_bfree
        # As in df and Java, reserved blocks do not count.
        return used_blocks / (used_blocks + disk.f_bavail) if used_blocks else 0.0

    def lock(self, path: str) -> File | None:
        fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            # Java holds a POSIX lock on byte 0. A POSIX lock does not keep a process out of its own store; flock does.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            os.close(fd)
            return None
        return File(path, fd, 0)

    def lock_folder(self, path: str) -> File | None:
        fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:  # some network file systems cannot lock folders; the lock file has to be enough there
            pass
        return File(path, fd, 0)


@contextmanager
def closing(vfs: Vfs, file: File) -> Iterator[File]:
    try:
        yield file
    finally:
        vfs.close(file)


def content_of(vfs: Vfs, path: str, max_bytes: int | None = None) -> bytes:
    """Return the content of a file, or its first `max_bytes` bytes. Raises: FileNotFoundError."""
    with closing(vfs, vfs.open(path, writable=False)) as file:
        return vfs.read(file, 0, file.size if max_bytes is None else max_bytes)


def lock_holder(path: str) -> int:
    """The id of the process that has a lock by `Disk.lock`; 0 if none has, it is this one, or cannot be seen from here.
    The record of a POSIX lock has another order on macOS than on Linux.
    """
    layout, request = ("qqihh", (0, 1, 0, fcntl.F_WRLCK, 0)) if _IS_BSD else ("hhqqi", (fcntl.F_WRLCK, 0, 0, 1, 0))
    try:
        with open(path, "rb") as file:
            lock = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(layout, *request)))
    except OSError:
        return 0
    kind, process = (lock[3], lock[2]) if _IS_BSD else (lock[0], lock[4])
    return int(process) if kind != fcntl.F_UNLCK else 0


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for offset in range(0, size, len(_ZEROS)):
        _write(fd, offset, _ZEROS[: size - offset])


def _write(fd: int, offset: int, content: Buffer) -> None:
    """Write all of `content`. A disk that becomes full takes a part, and reports at the next call that it is full."""
    written = os.pwrite(fd, content, offset)
    while written < len(content):
        written += os.pwrite(fd, content[written:], offset + written)


def _seek(file: File, offset: int, whence: str, beyond: int) -> int:
    """The begin of the next data or hole. All bytes are data if the file system or the system has no holes."""
    is_data = whence == "SEEK_DATA"
    if not hasattr(os, whence):
        return offset if is_data else beyond
    try:
        return min(os.lseek(file.fd, offset, getattr(os, whence)), beyond)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return beyond
        if error.errno != errno.EINVAL:
            raise
        return offset if is_data else beyond


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: str, error: OSError) -> Exception:
    """Return the exception to raise for a system error. Temporary errors become DiskFull."""
    if error.errno in _SHORTAGES:
        return OutOfResources(f"{path} cannot be opened: {_SHORTAGES[error.errno]}")
    if error.errno in _FULL_ERRNOS:
        return DiskFull(f"no room on the disk for {path}; free some")
    if error.filename is None:
        error.filename = path
    return error


def lost_while_open(file: File) -> OSError:
    """The error for a file that was cut or removed from outside while it was open."""
    if os.fstat(file.fd).st_size < file.size:
        remedy = "it was cut while the broker used it: restore it from a slave or a backup; it had"
        return OSError(errno.EIO, f"{remedy} {file.size} bytes", file.path)
    remedy = "it was removed, moved or replaced while the broker used it: move it back, or restore it"
    content_path = f"/proc/{os.getpid()}/fd/{file.fd}"
    if os.path.exists(content_path):
        remedy = f"{remedy}; its content is at {content_path} until the broker stops, so copy that first"
    return OSError(errno.EIO, remedy, file.path)


class StoreLock:
    """The locks of one store, held until `close`: only one broker can open it, even if its lock file is deleted.

        root/lock   byte 0 is locked, as Java locks it; if the file is deleted, a second broker could lock a new one
        root        the folder itself is locked too, and it cannot be deleted while a store is in it
        the log     the folder of the log is locked: two stores may not share one, as `storePathCommitLog` could say

    Raises: StoreLocked, a broker has this store open, or another store with the same log.
    """

    def __init__(self, vfs: Vfs, layout: Layout) -> None:
        self._vfs = vfs
        self._folders: list[File] = []
        file = vfs.lock(layout.lock)
        if file is None:
            raise StoreLocked(layout.root, lock_holder(layout.lock))
        self.file = file  # the lock file
        # If both paths name the same folder, its second lock would conflict with the first.
        for folder in {os.path.realpath(path): path for path in (layout.root, layout.commit_log)}.values():
            locked = vfs.lock_folder(folder)
            if locked is None:
                self.close()
                raise StoreLocked(folder)
            self._folders.append(locked)

    def close(self) -> None:
        for file in (*self._folders, self.file):
            self._vfs.close(file)


class NumberedFolder:
    """A folder with one file that is replaced from time to time, under the next number. The newest whole file counts.

        %020d.tmp   written and synced ── renamed to %020d ── folder synced ── files with other numbers deleted

    So a crash at any moment leaves a whole file: the one before or the new one. A reader takes the file with the
    highest number that makes sense. The next file gets a number above all that were found. The first `replace` creates
    the folder.
    """

    def __init__(self, vfs: Vfs, path: str) -> None:
        self.number = -1  # the number of the newest file that was found or written; -1 if there was none
        self._vfs = vfs
        self._path = path

    def numbers(self) -> list[int]:
        parsed_names = [parse_offset_name(name) for name in self._vfs.list_folder(self._path)]
        numbers = sorted((number for number in parsed_names if number is not None), reverse=True)
        self.number = max(numbers, default=self.number)
        return numbers

    def open(self, number: int, writable: bool) -> File:
        return self._vfs.open(self._path_of(number), writable=writable)

    def replace(self, content: bytes, room_bytes: int = 0) -> File:
        """Write the next file, and return once it is on disk. The file before it stays until `remove_others`.
        `room_bytes`: the size to allocate; 0 for a file that grows as it is written. Raises: DiskFull, OSError:
        `number` is as before.
        """
        vfs, path = self._vfs, self._path_of(self.number + 1)
        vfs.make_folder(self._path)
        temporary_path = path + ".tmp"
        if vfs.exists(temporary_path):
            vfs.unlink(temporary_path)
        file = vfs.create(temporary_path, room_bytes, allocate=room_bytes > 0)
        try:
            vfs.write(file, 0, content)
            vfs.sync(file)
            vfs.rename(temporary_path, path)
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


def probe_writes(vfs: Vfs, folders: Iterable[str], log_folder: str, room_bytes: int) -> None:
    """Create, sync and delete a file in each folder, before a member becomes the master. Blocks: call it in a thread.
    `room_bytes`: the room that the log needs for its next file; 0 if it has that file. Raises: DiskFull, there is no
    room; OSError, a folder cannot be written, or a sync fails.
    """
    sizes = dict.fromkeys(folders, PROBE_BYTES)
    sizes[log_folder] = max(PROBE_BYTES, room_bytes)
    for folder, size in sizes.items():
        path = os.path.join(folder, PROBE_NAME)
        vfs.make_folder(folder)
        if vfs.exists(path):
            vfs.unlink(path)
        file = vfs.create(path, size, allocate=True)
        try:
            vfs.write(file, 0, b"\0")
            vfs.sync(file)
            vfs.sync_folder(folder)
        finally:
            vfs.close(file)
            vfs.unlink(path)
