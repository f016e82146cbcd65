"""A page cache that is full, as it is on every machine that has run for some days.

A virtual machine that was just started has memory that nobody ever touched, and some hosts take back what is not used.
There the first write to a page costs what the host needs to find one: 12 us for 4 KiB where that was measured, 0.9 us
for a message of 300 bytes, more than all else of a broker that gets it in a batch. With a full cache a page that is
written was another file's before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import BinaryIO, Final

_AT_ONCE: Final = 1 << 20


class PageCache:
    """Can be filled with a file of so many GiB that holds nothing, and takes no disk either; 0 does nothing."""

    def __init__(self, gib: int) -> None:
        self._bytes = gib << 30
        self._file: BinaryIO | None = None  # kept, as its pages are gone with it
        if gib:
            self._file = tempfile.TemporaryFile(dir=os.environ.get("TMPDIR", "/var/tmp"))  # noqa: SIM115
            os.ftruncate(self._file.fileno(), self._bytes)

    def fill(self) -> None:
        """Read it from end to end: seconds, but for the first time."""
        if self._file is None:
            return
        room = bytearray(_AT_ONCE)
        for offset in range(0, self._bytes, _AT_ONCE):
            os.preadv(self._file.fileno(), [room], offset)


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--fill-cache`, which says how much."""
    parser.add_argument(
        "--fill-cache",
        type=int,
        default=0,
        metavar="GIB",
        help="fill the page cache before each measurement, on machines whose memory was never touched",
    )
