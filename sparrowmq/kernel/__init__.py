"""The kernel: what every message passes, as plain Python that the set-up also compiles. Both forms do the same.

    cursor.py    checked access to bytes; compiled from cursor.pyx, the only file with pointers
    X.py         the rest, for both forms; X.pxd gives its attributes and locals the types of C
    compiled/    what tools/kernel.py built of them for each Python and machine, with the checksum of the sources

The compiled form runs if it was built from these very sources, else they run themselves, a tenth as fast. The variable
SPARROWMQ_KERNEL asks for one: `plain`, or `compiled`, which is an error where it is not there.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final
from zlib import crc32

SOURCES: Final = os.path.dirname(os.path.abspath(__file__))
_SUFFIX: Final = EXTENSION_SUFFIXES[0]  # as .cpython-311-x86_64-linux-gnu.so
COMPILED: Final = os.path.join(SOURCES, "compiled", _SUFFIX.split(".")[1])
CHECKSUM: Final = "sources.sum"  # in COMPILED, written after everything else
VARIABLE: Final = "SPARROWMQ_KERNEL"


def checksum(folder: str = SOURCES) -> str:
    """The checksum of the sources, or of a copy of them."""
    total = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith((".py", ".pyx", ".pxd")):
            with open(os.path.join(folder, name), "rb") as file:
                total = crc32(file.read(), crc32(name.encode(), total))
    return f"{total:08x}"


def is_built() -> bool:
    """Whether the compiled form is there, and of these sources."""
    try:
        with open(os.path.join(COMPILED, CHECKSUM)) as file:
            return file.read() == checksum() and os.path.isfile(os.path.join(COMPILED, f"cursor{_SUFFIX}"))
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
