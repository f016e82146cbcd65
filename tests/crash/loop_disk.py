"""A disk of our own, whose power can be cut: a file system on a loop device, and the ioctl that shuts it down.

    with LoopDisk(folder, "ext4") as disk:
        ...                         # files below disk.folder
        disk.cut()                  # what no sync has brought to the image is lost, what is in memory too
        disk.again()                # its journal is played, as after a power cut
        disk.break_off(page)        # a disk that dies: to read that page, or what lies behind it, gives EIO
    disk.freeze(), disk.thaw()  # each write to it waits, and so do syncs of a disk whose image it has

The kernel drops all pages that were not written: stores through a map and names of files, too. What this does not
show: a disk that lies about what it has, or writes half a sector. Stop who has files open there before the cut: a sync
that is under way then is answered as if all were well.
Source: EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN with NOLOGFLUSH; they are one number.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.crash.not_here import NotHere

KINDS: Final = ("ext4", "xfs")
SIZE_BYTES: Final = 400 << 20  # the smallest that xfs takes is 300 MiB
_SHUTDOWN: Final = 0x8004587D  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH: Final = struct.pack("I", 2)
_FREEZE: Final = 0xC0045877  # FIFREEZE
_THAW: Final = 0xC0045878
_BUSY_LIMIT_S: Final = 10.0
_CHUNK: Final = 1 << 20


def demand(kind: str) -> None:
    """Raises: NotHere, with what is missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NotHere("it takes root on Linux to mount a file system")
    if shutil.which(f"mkfs.{kind}") is None:
        package = "xfsprogs" if kind == "xfs" else "e2fsprogs"
        raise NotHere(f"there is no mkfs.{kind} (Debian: apt install {package})")
    if not os.path.exists("/dev/loop-control"):
        raise NotHere("this kernel has no loop devices")


class LoopDisk:
    """The disk; `image` may lie on a disk of its own, `folder` is where it is mounted."""

    def __init__(self, folder: Path, kind: str, image: Path | None = None, *options: str) -> None:
        """Make the file system with these options of mkfs. Raises: NotHere."""
        demand(kind)
        self.folder = folder / kind
        self.folder.mkdir(parents=True)
        self._image = image or folder / f"{kind}.image"
        self._image.touch()
        os.truncate(self._image, SIZE_BYTES)
        _run(f"mkfs.{kind}", "-q", *options, str(self._image))

    def __enter__(self) -> Self:
        self._mount()
        return self

    def __exit__(self, *_error: object) -> None:
        with suppress(OSError):  # it is not frozen
            self.thaw()
        self._unmount()

    def cut(self) -> None:
        """From now on nothing reaches the image, and what did not is lost."""
        self._control(_SHUTDOWN, _NO_LOG_FLUSH)

    def again(self) -> None:
        """Switch it on again; nobody may have a file of it open."""
        self._unmount()
        self._mount()

    def break_off(self, page: bytes) -> None:
        """Nothing can be read from the place on where these bytes lie, which fill a page: the image ends there."""
        with self._image.open("r+b") as image:
            begin = 0
            while (at := (chunk := image.read(_CHUNK)).find(page)) < 0:
                assert chunk, "the page is not on the disk"
                begin += len(chunk)
            image.truncate(begin + at)

    def mend(self) -> None:
        """Let all of it be read again; what was broken off is zeros."""
        os.truncate(self._image, SIZE_BYTES)

    def freeze(self) -> None:
        self._control(_FREEZE)

    def thaw(self) -> None:
        """Let it write again; nothing happens if somebody has done so already."""
        try:
            self._control(_THAW)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def _control(self, number: int, argument: bytes | int = 0) -> None:
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, number, argument)
        finally:
            os.close(fd)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def _unmount(self) -> None:
        """What was killed may take a moment to let go."""
        deadline = time.monotonic() + _BUSY_LIMIT_S
        while (done := _tried("umount", str(self.folder))).returncode and os.path.ismount(self.folder):
            if time.monotonic() > deadline:
                _tried("umount", "--lazy", str(self.folder))  # or the folder could not be removed
                raise RuntimeError(done.stderr.strip())
            time.sleep(0.02)


def _run(*command: str) -> None:
    """Raises: NotHere, this machine lets nobody do that."""
    done = _tried(*command)
    if done.returncode:
        raise NotHere(f"`{' '.join(command)}` says: {done.stderr.strip() or done.stdout.strip()}")


def _tried(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
