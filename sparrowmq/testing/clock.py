"""A clock whose time passes only when a test advances it (the idea of trio's MockClock)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sparrowmq.client.arguments import check_callable, check_count
from sparrowmq.loop.clock import TICK_S, Pauses

T = TypeVar("T")

# After each timer the loop gets this many turns, so that the work of the timer can set its own timers.
TURNS_AFTER_TIMER = 20


class ManualTimer:
    """A callback that waits for its time."""

    __slots__ = ("args", "callback", "cancelled", "due")

    def __init__(self, due: float, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.due = due
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A `Clock` that moves only by `advance`; its wall clock begins at `now_ms`, by default 2026-01-01.

    `settle` is awaited after each timer, so that its effects end before the next one. By default the loop runs for some
    turns.
    """

    def __init__(self, now_ms: int = 1_767_225_600_000, settle: Callable[[], Awaitable[None]] | None = None) -> None:
        check_count("now_ms", now_ms, at_least=0)
        if settle is not None:
            check_callable("settle", settle, "a coroutine function without arguments")
        self._settle = settle or _turns
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._sequence = itertools.count()
        self._pauses = Pauses()

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    def age(self, moment: float) -> float:
        return max(0.0, self._elapsed_s - moment - self._pauses.total_s_since(moment))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> ManualTimer:
        timer = ManualTimer(self._elapsed_s + max(delay_s, 0.0), callback, args)
        heapq.heappush(self._timers, (timer.due, next(self._sequence), timer))
        return timer

    async def sleep(self, delay_s: float) -> None:
        due = asyncio.Event()
        timer = self.call_later(delay_s, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()

    async def wait_for(self, awaitable: Awaitable[T], timeout_s: float) -> T:
        task = asyncio.ensure_future(awaitable)
        timed_out = False

        def give_up() -> None:
            nonlocal timed_out
            timed_out = task.cancel()

        timer = self.call_later(timeout_s, give_up)
        try:
            return await task
        except asyncio.CancelledError:
            if timed_out:
                raise TimeoutError from None
            task.cancel()
            raise
        finally:
            timer.cancel()

    async def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Let time pass: run due timers in their order, and give the loop turns in between."""
        until = self._elapsed_s + seconds + 60 * minutes + 3600 * hours
        await self._settle()
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._elapsed_s = max(self._elapsed_s, due)
                timer.callback(*timer.args)
                await self._settle()
        self._elapsed_s = until
        await self._settle()

    async def pause(self, seconds: float) -> None:
        """Let time pass in which the loop does not run, as in a stopped process; then run the timers that are due."""
        self._elapsed_s += seconds
        self._pauses.add(self._elapsed_s, max(0.0, seconds - TICK_S))
        await self.advance()


async def _turns() -> None:
    for _ in range(TURNS_AFTER_TIMER):
        await asyncio.sleep(0)
