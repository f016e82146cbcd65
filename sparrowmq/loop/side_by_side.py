"""Coroutines that run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def results_of(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all coroutines, in their order, as `asyncio.gather` does.

    One alone runs in the caller's task: a task of its own would cost ten microseconds.
    """
    if len(work) == 1:
        return [await work[0]]
    return await asyncio.gather(*work)
