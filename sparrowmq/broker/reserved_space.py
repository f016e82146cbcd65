"""Reserved disk space for small files, so that groups can save their progress while messages fill the disk.

    there is space     config/spare takes 4 MiB, plus the size of two copies of the JSON files beside it
    the disk is full   each file that is saved takes the space it needs from `spare` (snapshot.py)
    space again        `spare` is created again

The log does not use that space: it allocates whole files, usually of 1 GiB.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from sparrowmq.broker.part import Chore, Part
from sparrowmq.core.snapshot import SPARE

LEAST_BYTES: Final = 4 << 20
PERIOD_S: Final = 10.0


class SpareRoom:
    """The reserved space beside the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def part(self) -> Part:
        """Reserve the space now. Returns a part that checks it every 10 s."""
        self.keep()
        return Part(chores=(Chore("keep spare room", PERIOD_S, self.keep),))

    def keep(self) -> None:
        """Reserve the space if it is missing or too small, and the disk has twice as much free. Otherwise wait."""
        path, wanted = self._folder / SPARE, self._needed_bytes()
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size >= wanted:
                return
        self._folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize >= 2 * wanted:
            _take(path, wanted)

    def _needed_bytes(self) -> int:
        """The bytes to reserve. Each file counts twice: a new one replaces the old one only when it is complete."""
        files = self._folder.glob("*.json") if self._folder.exists() else ()
        return LEAST_BYTES + 2 * sum(file.stat().st_size for file in files)


def _take(path: Path, size: int) -> None:
    """Create a file with allocated space. Leave no file if the disk is full, or the system cannot allocate."""
    with open(path, "wb") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.write(bytes(size))
        except OSError:
            path.unlink(missing_ok=True)
