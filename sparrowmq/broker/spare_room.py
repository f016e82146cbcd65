"""Room on the disk that is kept back for small files, so that a disk full of messages does not stop groups' progress.

    there is room      config/spare takes four mebibytes, and as much again as two copies of what lies beside it
    the disk is full   each file that is saved takes as much of it as it needs (snapshot.py)
    room again         `spare` is made anew

The log cannot have that room: it takes whole files, of a gibibyte as a rule.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from sparrowmq.broker.part import Chore, Part
from sparrowmq.snapshot import SPARE

LEAST_BYTES: Final = 4 << 20
PERIOD_S: Final = 10.0


class SpareRoom:
    """The room beside the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def part(self) -> Part:
        """It is kept from the start on, and looked after."""
        self.keep()
        return Part(chores=(Chore("keep spare room", PERIOD_S, self.keep),))

    def keep(self) -> None:
        """Take it if it is not there, or too little, and the disk has twice as much to give; otherwise later."""
        path, wanted = self._folder / SPARE, self._wanted()
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size >= wanted:
                return
        self._folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize >= 2 * wanted:
            _take(path, wanted)

    def _wanted(self) -> int:
        """Each file is there twice, as one that is written takes the place of another when it is whole."""
        files = self._folder.glob("*.json") if self._folder.exists() else ()
        return LEAST_BYTES + 2 * sum(file.stat().st_size for file in files)


def _take(path: Path, size: int) -> None:
    """Make a file that has its room; none where the disk, or the system, has it not."""
    with open(path, "wb") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.write(bytes(size))
        except OSError:
            path.unlink(missing_ok=True)
