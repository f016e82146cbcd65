"""The time in which an event loop ran: pauses of the process do not count.

    loop      ran ─────────┬─ stopped for 125 s: a paused VM, a long stall ─┬─ ran
    a peer    sent bytes   │   sent bytes, which wait in its socket         │   is read a moment later

After such a pause every peer looks silent, because the timers run before the sockets are read. So what judges silence
asks for the `age` of the last sign of life, in which each pause counts as one tick. Leases and locks that others may
have taken meanwhile are judged by the real clock.

Each loop has one ticker, which notices pauses: a tick that comes too late ends one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

TICK_S: Final = 0.5
PAUSE_S: Final = 1.0  # a longer time between two ticks is a pause
MOST_PAUSES: Final = 1024  # that are remembered: silence of two minutes is judged, and each pause is over PAUSE_S


class Pauses:
    def __init__(self) -> None:
        self._ends: list[float] = []
        self._totals = [0.0]  # the length of all pauses before each, and at last of all

    def add(self, end: float, length_s: float) -> None:
        self._ends.append(end)
        self._totals.append(self._totals[-1] + length_s)
        if len(self._ends) > MOST_PAUSES:
            del self._ends[0], self._totals[0]

    def since(self, moment: float) -> float:
        """Return the length of the pauses that ended after a moment."""
        return self._totals[-1] - self._totals[bisect_right(self._ends, moment)]


class RunningTime:
    """Notices the pauses of the running loop.

    Args:
        monotonic: the loop's time.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.pauses = Pauses()
        self._monotonic = monotonic
        self._ticked = monotonic()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tick for as long as the loop exists."""
        self._look(self._monotonic())
        loop.call_later(TICK_S, self.start, loop)

    def age(self, moment: float) -> float:
        """Return the seconds since a moment in which the loop ran."""
        now = self._monotonic()
        if now - self._ticked > PAUSE_S:
            self._look(now)
        return max(0.0, now - moment - self.pauses.since(moment))

    def _look(self, now: float) -> None:
        if now - self._ticked > PAUSE_S:
            self.pauses.add(now, now - self._ticked - TICK_S)
        self._ticked = now


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, RunningTime] = WeakKeyDictionary()


def of_loop(monotonic: Callable[[], float]) -> RunningTime:
    """Return the running time of the running loop. The first call starts to notice pauses."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOPS.get(loop)
    if found is None:
        found = _OF_LOOPS[loop] = RunningTime(monotonic)
        found.start(loop)
    return found
