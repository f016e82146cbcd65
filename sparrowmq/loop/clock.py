"""The source of time: every timestamp, pause and time limit of the product uses a `Clock`.

A test uses a `sparrowmq.testing.ManualClock` instead and advances it by hand, so that half an hour of retries takes no
time (the idea of trio's MockClock). Messages get wall-clock time (`now_ms`); durations use `monotonic`, which never
jumps. `age` is the time in which the event loop ran: pauses of the process do not count.

    loop      ran ─────────┬─ stopped for 125 s: a paused VM, a long stall ─┬─ ran
    a peer    sent bytes   │   sent bytes, which wait in its socket         │   is read a moment later

After such a pause every peer looks silent, because the timers run before the sockets are read. So code that judges
silence asks for the `age` of the last sign of life, in which each pause counts as one tick. Leases and locks that
others may have taken are judged by the real clock.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


@runtime_checkable
class Clock(Protocol):
    """Time of day, elapsed time, and callbacks at a later time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as messages carry them."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def age(self, moment: float) -> float:
        """Seconds since a moment of `monotonic` in which the running loop ran: its pauses do not count."""

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` on the running loop after `delay_s` seconds."""

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""

    async def wait_for(self, awaitable: Awaitable[T], timeout_s: float) -> T:
        """The awaitable's result; it is cancelled and TimeoutError raised after `timeout_s` seconds."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    def age(self, moment: float) -> float:
        return running_time(self.monotonic).age(moment)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    async def wait_for(self, awaitable: Awaitable[T], timeout_s: float) -> T:
        # Not asyncio.wait_for: in 3.11 it swallows a cancellation that comes in the same turn as the result.
        async with asyncio.timeout(timeout_s):
            return await awaitable


TICK_S: Final = 0.5
MIN_PAUSE_S: Final = 1.0  # a longer time between two ticks is a pause
MAX_PAUSES: Final = 1024  # that are remembered: silence of two minutes is judged, and each pause is over PAUSE_S


class Pauses:
    def __init__(self) -> None:
        self._ends: list[float] = []
        self._totals = [0.0]  # the length of all pauses before each, and at last of all

    def add(self, end: float, length_s: float) -> None:
        self._ends.append(end)
        self._totals.append(self._totals[-1] + length_s)
        if len(self._ends) > MAX_PAUSES:
            del self._ends[0], self._totals[0]

    def total_s_since(self, moment: float) -> float:
        """Return the length of the pauses that ended after a moment."""
        return self._totals[-1] - self._totals[bisect_right(self._ends, moment)]


class RunningTime:
    """Notices the pauses of the running loop. `monotonic`: the loop's time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.pauses = Pauses()
        self._monotonic = monotonic
        self._last_tick = monotonic()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._note_pause(self._monotonic())
        loop.call_later(TICK_S, self.start, loop)

    def age(self, moment: float) -> float:
        now = self._monotonic()
        if now - self._last_tick > MIN_PAUSE_S:
            self._note_pause(now)
        return max(0.0, now - moment - self.pauses.total_s_since(moment))

    def _note_pause(self, now: float) -> None:
        if now - self._last_tick > MIN_PAUSE_S:
            self.pauses.add(now, now - self._last_tick - TICK_S)
        self._last_tick = now


_RUNNING_TIME_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, RunningTime] = WeakKeyDictionary()


def running_time(monotonic: Callable[[], float]) -> RunningTime:
    """Return the running time of the running loop. The first call starts to notice pauses."""
    loop = asyncio.get_running_loop()
    running = _RUNNING_TIME_BY_LOOP.get(loop)
    if running is None:
        running = _RUNNING_TIME_BY_LOOP[loop] = RunningTime(monotonic)
        running.start(loop)
    return running
