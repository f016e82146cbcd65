"""The system's calls for files, as simulated processes see them: all paths below `/simdisk` are on their host's disk.

The calls of the module `os` are replaced, so the product's own `Disk` (store/vfs.py), `snapshot.py` and everything else
that touches a file run as they are. Real paths, and callers outside of the simulation, reach the machine.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.disk import Inode, SimDisk
from tests.simulation.schedule import Died

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

ROOT: Final = "/simdisk"
_FIRST_FD: Final = 1 << 24
_PAGE: Final = 4096


@dataclass(eq=False, slots=True)
class Opened:
    """An open file or folder."""

    path: str
    inode: Inode | None
    process: Process
    disk: SimDisk
    locks: list[str] = field(default_factory=list)


def _error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), path or None)


class Files:
    """The calls. `replaced` are those of the module `os` that it stands in for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._opened: dict[int, Opened] = {}
        self._next_fd = _FIRST_FD
        self._locked: dict[tuple[SimDisk, str], Opened] = {}
        self.real: dict[str, Any] = {}
        self.real_open = io.open
        by_path: dict[str, Callable[..., Any]] = {
            "open": self.open_fd,
            "unlink": self.unlink,
            "remove": self.unlink,
            "mkdir": self.mkdir,
            "rmdir": self.rmdir,
            "listdir": self.listdir,
            "scandir": self.scandir,
            "stat": self.stat,
            "lstat": self.stat,
            "statvfs": self.statvfs,
            "replace": self.replace,
            "rename": self.replace,
            "chmod": self.ignored,
            "utime": self.ignored,
        }
        by_fd: dict[str, Callable[..., Any]] = {
            "close": self.close,
            "pread": self.pread,
            "preadv": self.preadv,
            "pwrite": self.pwrite,
            "lseek": self.lseek,
            "fstat": self.fstat,
            "fchmod": self.ignored,
            "ftruncate": self.truncate,
            "fsync": self.fsync,
            "fdatasync": self.fsync,
            "posix_fallocate": self.posix_fallocate,
            "posix_fadvise": self.ignored,  # its cache loses nothing that is not written
            "truncate": self.truncate,
        }
        self.replaced = {name: self._choose(name, call, self._is_ours) for name, call in by_path.items()}
        self.replaced |= {name: self._choose(name, call, self._is_ours) for name, call in by_fd.items()}

    def _choose(self, name: str, call: Callable[..., Any], is_ours: Callable[[Any], bool]) -> Callable[..., Any]:
        real = self.real[name] = getattr(os, name)

        def chosen(first: Any, *rest: Any, **named: Any) -> Any:
            return call(first, *rest, **named) if is_ours(first) else real(first, *rest, **named)

        return chosen

    def _is_ours(self, first: Any) -> bool:
        if isinstance(first, int):
            return first >= _FIRST_FD
        return str(first).startswith(ROOT)

    def killed(self, process: Process) -> None:
        """Close the files of a process that died."""
        for number in [number for number, each in self._opened.items() if each.process is process]:
            self._release(self._opened.pop(number))

    # Inside -----------------------------------------------------------------------------------------------------------

    def _enter(self, what: str, path: str, *, changes: bool = False) -> Process:
        """The process that calls, if it lives. Raises: Died, OSError."""
        loop = self._world.scheduler.current
        if loop is None:
            raise AssertionError(f"{what} of {path} outside of a process")
        process: Process = loop.owner
        process.system_call(what, path)
        if changes and process.host.disk.is_read_only:
            raise _error(errno.EROFS, path)
        return process

    def _demand_room(self, disk: SimDisk, path: str, size: int) -> None:
        if size > 0 and (disk.is_full or disk.used() + size > disk.capacity):
            raise _error(errno.ENOSPC, path)

    def _at(self, fd: Any, what: str, *, changes: bool = False) -> Opened:
        if not isinstance(fd, int):
            path = str(fd)
            process = self._enter(what, path, changes=changes)
            return Opened(path, self._inode(process.host.disk, path), process, process.host.disk)
        opened = self._opened.get(fd)
        if opened is None or opened.process.is_dead:
            raise Died if opened is None else _error(errno.EBADF)
        self._enter(what, opened.path, changes=changes)
        return opened

    def _inode(self, disk: SimDisk, path: str) -> Inode:
        if path not in disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inode = disk.names[path]
        if inode is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return inode

    def _release(self, opened: Opened) -> None:
        for path in opened.locks:
            self._locked.pop((opened.disk, path), None)

    # Calls with a path ------------------------------------------------------------------------------------------------

    def open_fd(self, path: Any, flags: int, mode: int = 0o777, **_: Any) -> int:
        path = str(path).rstrip("/")
        process = self._enter("open", path)
        disk = process.host.disk
        if path in disk.names:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            inode = disk.names[path]
        elif flags & os.O_CREAT:
            self._demand_folder(disk, path)
            if disk.is_read_only:
                raise _error(errno.EROFS, path)
            self._demand_room(disk, path, _PAGE)
            inode = disk.create(path)
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        writes = flags & (os.O_RDWR | os.O_WRONLY)
        if writes and disk.is_read_only:
            raise _error(errno.EROFS, path)
        if flags & os.O_TRUNC and inode is not None and inode.data:
            inode.resize(0)
        self._next_fd += 1
        self._opened[self._next_fd] = Opened(path, inode, process, disk)
        return self._next_fd

    def _demand_folder(self, disk: SimDisk, path: str) -> None:
        folder = os.path.dirname(path)
        if disk.names.get(folder, self) is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def unlink(self, path: Any, **_: Any) -> None:
        path = str(path)
        disk = self._enter("unlink", path, changes=True).host.disk
        self._inode(disk, path)
        disk.remove(path)

    def mkdir(self, path: Any, mode: int = 0o777, **_: Any) -> None:
        path = str(path).rstrip("/")
        disk = self._enter("mkdir", path, changes=True).host.disk
        if path in disk.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._demand_folder(disk, path)
        self._demand_room(disk, path, _PAGE)
        disk.make_folder(path)

    def rmdir(self, path: Any, **_: Any) -> None:
        path = str(path).rstrip("/")
        disk = self._enter("rmdir", path, changes=True).host.disk
        if path not in disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if disk.children(path):
            raise _error(errno.ENOTEMPTY, path)
        disk.remove(path)

    def listdir(self, path: Any = ".") -> list[str]:
        path = str(path).rstrip("/")
        disk = self._enter("listdir", path).host.disk
        if path not in disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if disk.names[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return disk.children(path)

    def scandir(self, path: Any) -> Entries:
        folder = str(path).rstrip("/")
        return Entries([Entry(self, name, f"{folder}/{name}") for name in self.listdir(folder)])

    def stat(self, path: Any, **_: Any) -> os.stat_result:
        if isinstance(path, int):
            return self.fstat(path)
        path = str(path).rstrip("/")
        disk = self._enter("stat", path).host.disk
        if path not in disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._described(disk.names[path])

    def _described(self, inode: Inode | None) -> os.stat_result:
        now = 1_800_000_000 + int(self._world.scheduler.now)
        mode = stat.S_IFDIR | 0o755 if inode is None else stat.S_IFREG | 0o644
        size, number = (0, 1) if inode is None else (len(inode.data), inode.number + 1)
        times = {"st_mtime_ns": now * 10**9, "st_blksize": _PAGE, "st_blocks": -(-size // 512)}
        return os.stat_result((mode, number, 1, 1, 0, 0, size, now, now, now), times)

    def statvfs(self, path: Any) -> os.statvfs_result:
        disk = self._enter("statvfs", str(path)).host.disk
        blocks = disk.capacity // _PAGE
        # A full disk shows some room, as one without inodes does. Otherwise retention would delete messages.
        free = blocks // 5 if disk.is_full else max(0, blocks - disk.used() // _PAGE)
        return os.statvfs_result((_PAGE, _PAGE, blocks, free, free, 1 << 20, 1 << 20, 1 << 20, 0, 255))

    def replace(self, path: Any, to: Any, **_: Any) -> None:
        path, to = str(path), str(to)
        disk = self._enter("rename", path, changes=True).host.disk
        if path not in disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._demand_folder(disk, to)
        disk.rename(path, to)

    def ignored(self, path: Any, *_: Any, **__: Any) -> None:
        self._enter("chmod", str(path))

    # Calls with a descriptor ------------------------------------------------------------------------------------------

    def close(self, fd: int) -> None:
        opened = self._opened.pop(fd, None)
        if opened is not None:
            self._release(opened)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        opened = self._at(fd, "pread")
        assert opened.inode is not None
        return bytes(opened.inode.data[offset : offset + size])

    def preadv(self, fd: int, buffers: list[Any], offset: int, flags: int = 0) -> int:
        content = self.pread(fd, sum(len(buffer) for buffer in buffers), offset)
        begin = 0
        for buffer in buffers:
            part = content[begin : begin + len(buffer)]
            buffer[: len(part)] = part
            begin += len(part)
        return len(content)

    def pwrite(self, fd: int, content: Any, offset: int) -> int:
        opened = self._at(fd, "pwrite", changes=True)
        assert opened.inode is not None
        view = memoryview(content).cast("B")
        self._demand_room(opened.disk, opened.path, offset + len(view) - len(opened.inode.data))
        opened.inode.write(offset, view)
        return len(view)

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        opened = self._at(fd, "lseek")
        assert opened.inode is not None
        data = opened.inode.data
        if whence == os.SEEK_HOLE:
            zero = data.find(bytes(_PAGE), -(-offset // _PAGE) * _PAGE)
            return len(data) if zero < 0 else -(-zero // _PAGE) * _PAGE
        assert whence == os.SEEK_DATA
        while offset < len(data):
            end = (offset // _PAGE + 1) * _PAGE
            if any(data[offset:end]):
                return offset
            offset = end
        raise _error(errno.ENXIO, opened.path)

    def fstat(self, fd: int) -> os.stat_result:
        return self._described(self._at(fd, "fstat").inode)

    def truncate(self, fd: Any, size: int) -> None:
        opened = self._at(fd, "truncate", changes=True)
        assert opened.inode is not None
        opened.inode.resize(size)

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        opened = self._at(fd, "fallocate", changes=True)
        assert opened.inode is not None
        missing = offset + size - len(opened.inode.data)
        self._demand_room(opened.disk, opened.path, missing)
        if missing > 0:
            opened.inode.resize(offset + size)

    def fsync(self, fd: int) -> None:
        opened = self._at(fd, "sync")
        disk = opened.disk
        if disk.failing_syncs:
            disk.failing_syncs -= 1
            if opened.inode is not None:
                opened.inode.fail_sync()
            raise _error(errno.EIO, opened.path)
        if opened.inode is None:
            disk.sync_folder(opened.path)
        else:
            opened.inode.sync()
        opened.process.took_sync()

    # Locks, and files of Python ---------------------------------------------------------------------------------------

    def flock(self, fd: int, operation: int) -> None:
        opened = self._at(fd, "flock")
        holder = self._locked.get((opened.disk, opened.path))
        if holder is not None and holder is not opened:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._locked[opened.disk, opened.path] = opened
        opened.locks.append(opened.path)

    def lockf(self, fd: int, *_: Any) -> None:
        self._at(fd, "lockf")

    def open(self, file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        """`open`, of the module `io`."""
        if isinstance(file, int) or not self._is_ours(file):
            return self.real_open(file, mode, *args, **named)
        named.pop("encoding", None), named.pop("buffering", None), named.pop("newline", None)
        reads = "r" in mode
        flags = os.O_RDONLY if reads else os.O_WRONLY | os.O_CREAT
        flags |= os.O_TRUNC if "w" in mode else os.O_EXCL if "x" in mode else 0
        flags = flags | os.O_RDWR if "+" in mode else flags
        raw = _Raw(self, self.open_fd(file, flags), at_end="a" in mode)
        buffered: Any = io.BufferedReader(raw) if reads else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8")


@dataclass(slots=True)
class Entry:
    """A name in a folder, as `os.scandir` gives it."""

    files: Files
    name: str
    path: str

    def __fspath__(self) -> str:
        return self.path

    def stat(self, **_: Any) -> os.stat_result:
        return self.files.stat(self.path)

    def is_dir(self, **_: Any) -> bool:
        return stat.S_ISDIR(self.stat().st_mode)

    def is_file(self, **_: Any) -> bool:
        return not self.is_dir()

    def is_symlink(self) -> bool:
        return False


class Entries(list[Entry]):
    """The entries of a folder, as a context."""

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


class _Raw(io.RawIOBase):
    """A file of Python without a buffer."""

    def __init__(self, files: Files, fd: int, *, at_end: bool) -> None:
        self._files = files
        self._fd = fd
        self._offset = files.fstat(fd).st_size if at_end else 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Any) -> int:
        content = self._files.pread(self._fd, len(buffer), self._offset)
        buffer[: len(content)] = content
        self._offset += len(content)
        return len(content)

    def write(self, content: Any) -> int:
        size = self._files.pwrite(self._fd, content, self._offset)
        self._offset += size
        return size

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._offset, self._files.fstat(self._fd).st_size if whence == 2 else 0)[whence]
        self._offset = base + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._files.close(self._fd)


class Fcntl:
    """The part of the module `fcntl` that the store uses."""

    LOCK_EX, LOCK_NB = 2, 4

    def __init__(self, files: Files) -> None:
        self.flock = files.flock
        self.lockf = files.lockf
