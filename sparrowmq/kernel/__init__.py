"""The kernel: what every message passes, as plain Python that the set-up also compiles. Both forms do the same.

    cursor.py    checked access to bytes; compiled from cursor.pyx, the only file with pointers
    X.py         the rest, for both forms; X.pxd gives its attributes and locals the types of C
    compiled/    what tools/kernel.py built of them for each Python, with the checksum of the sources

The compiled form runs if it was built from these very sources, else they run themselves, a tenth as fast. The variable
SPARROWMQ_KERNEL asks for one: `plain`, or `compiled`, which is an error where it is not there.
"""

from __future__ import annotations

import os
import sys
from typing import Final
from zlib import crc32

SOURCES: Final = os.path.dirname(os.path.abspath(__file__))
COMPILED: Final = os.path.join(SOURCES, "compiled", sys.implementation.cache_tag or "python")
CHECKSUM: Final = "sources.sum"  # in COMPILED, written after everything else
VARIABLE: Final = "SPARROWMQ_KERNEL"


def checksum() -> str:
    """The checksum of the sources."""
    total = 0
    for name in sorted(os.listdir(SOURCES)):
        if name.endswith((".py", ".pyx", ".pxd")):
            with open(os.path.join(SOURCES, name), "rb") as file:
                total = crc32(file.read(), crc32(name.encode(), total))
    return f"{total:08x}"


def is_built() -> bool:
    """Whether the compiled form is there, and of these sources."""
    try:
        with open(os.path.join(COMPILED, CHECKSUM)) as file:
            return file.read() == checksum()
    except OSError:
        return False


def is_compiled() -> bool:
    """Whether the compiled form runs."""
    return COMPILED in __path__


def _choose() -> None:
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "plain", "compiled"):
        raise ImportError(f"{VARIABLE}={wanted}: give plain or compiled, or leave it out")
    if wanted != "plain" and is_built():
        __path__.insert(0, COMPILED)
    elif wanted == "compiled":
        raise ImportError(
            f"{VARIABLE}=compiled, but the kernel was not built from these sources: `./run setup` does it"
        )


_choose()
