"""A disk that is soon full: a file system in memory, and a file on it that takes what room there is.

with SmallDisk(folder, 96 << 20) as disk:
    disk.fill()         # nobody finds a byte more
    disk.free()
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from tests.crash.not_here import NotHere

_CHUNK: Final = bytes(256 << 10)


def fill(ballast: Path) -> None:
    """Let a file have all the room that its disk has left."""
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chunk = _CHUNK
    try:
        while chunk:
            with contextlib.suppress(OSError):
                while os.write(fd, chunk) == len(chunk):
                    pass
            chunk = chunk[: len(chunk) // 16]
    finally:
        os.close(fd)


class SmallDisk:
    """The disk, at `folder`."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        """Raises: NotHere, it takes root on Linux."""
        if sys.platform != "linux" or os.geteuid() != 0:
            raise NotHere("it takes root on Linux to mount a file system")
        self.folder = folder / "small"
        self.folder.mkdir(parents=True)
        self._size = size_bytes

    def __enter__(self) -> Self:
        options = f"size={self._size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)])
        if done.returncode:
            raise NotHere("a file system in memory cannot be mounted")
        return self

    def __exit__(self, *_error: object) -> None:
        # A process that was killed may have a file open for a moment yet: the disk goes with it.
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def fill(self) -> None:
        """Take all the room there is, and what becomes free since the last time."""
        fill(self._ballast)

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"
