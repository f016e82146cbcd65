"""`python -m tests.crash.skewed FILE ARGUMENT...`: `sparrowmq ARGUMENT...`, whose time of day is wrong.

FILE has by how many milliseconds, eight bytes, little endian; it is read at each look at the clock, so who writes there
makes the clock jump. The steady clock, by which leases and time limits go, is the machine's own: Linux lets nobody set
it. Not the product is changed for that, but `SystemClock`, by which all of it knows the time, before it is used.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final

from sparrowmq.loop.clock import SystemClock

_SKEW: Final = struct.Struct("<q")


class Skew:
    """By how much a process that reads this file is wrong; 0 at first."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0)

    def set(self, skew_ms: int) -> None:
        """The clock jumps."""
        fd = os.open(self.file, os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(fd, _SKEW.pack(skew_ms), 0)  # in place: who reads it has mapped it
        finally:
            os.close(fd)


def skew_clock(file: Path) -> None:
    """From now on this process has the time of day that the file says."""
    with file.open("rb") as opened:
        shown = mmap.mmap(opened.fileno(), _SKEW.size, access=mmap.ACCESS_READ)

    def now_ms(self: SystemClock) -> int:
        return time.time_ns() // 1_000_000 + int(_SKEW.unpack(shown)[0])

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


def main(file: str, *arguments: str) -> None:
    skew_clock(Path(file))
    sys.argv = ["sparrowmq", *arguments]
    runpy.run_module("sparrowmq", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
