"""Pauses of the event loop.

    every second   a timer: its delay is the time that a request would have waited
    gc.callbacks   the duration of each garbage collection, during which nothing else runs

They are measured only for a server with metrics.
"""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter
from typing import Final

from sparrowmq.core.stats import Histogram
from sparrowmq.metrics.figures import Figures

_PERIOD_S: Final = 1.0


class Pauses:
    """Measures while `run` runs."""

    def __init__(self, figures: Figures) -> None:
        self._late = Histogram()
        self._collections = Histogram()
        self._collecting_since = 0.0
        figures.times(
            "sparrowmq_loop_lag_seconds", "delay of a timer; requests wait as long", lambda: self._late
        )
        figures.times(
            "sparrowmq_gc_pause_seconds", "pauses for garbage collection", lambda: self._collections
        )

    async def run(self) -> None:
        gc.callbacks.append(self._collecting)
        loop = asyncio.get_running_loop()
        try:
            while True:
                due = loop.time() + _PERIOD_S
                await asyncio.sleep(_PERIOD_S)
                self._late.record(int((loop.time() - due) * 1e6))
        finally:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = perf_counter()
        else:
            self._collections.record(int((perf_counter() - self._collecting_since) * 1e6))
