"""The memory that a piece of work keeps."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def kept_bytes() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes that were allocated in the block and are still in use at its end."""
    kept = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: kept
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
