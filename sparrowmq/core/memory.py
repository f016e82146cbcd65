"""Have the C library keep freed memory, and Python's collector of garbage leave out what is loaded for good.

Work in batches allocates megabytes, frees them and allocates them again. In between, glibc returns them to the system,
and each page then costs a page fault. Measured, that is 2 % of a busy broker's time, a ninth of that of a consumer that
pops, and a fifth of the time for Spark's columns.

A Python worker of Spark looks for garbage after each task. To look through Arrow's and our modules takes 40 to 80 ms of
a processor, longer than a small task; without them it takes 0.2 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from functools import cache
from typing import Final

# mallopt's: blocks of at least so many bytes come straight from the system; so many at the heap's end are kept.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 8 << 20


@cache
def keep_freed() -> None:
    """Let this process keep up to 8 MB of freed memory for what comes next."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # only glibc has this option
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


@cache
def freeze_loaded() -> None:
    """Let the collector look at none of the objects that this process has now. Call this in workers of Spark alone: a
    cycle of frozen objects stays in memory for as long as the process lives."""
    gc.collect()
    gc.freeze()
