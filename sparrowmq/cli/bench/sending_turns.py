"""Turns in a run of many messages: until a count, a time limit or Ctrl-C, and at a rate."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Final

from sparrowmq.loop.clock import Clock

EARLY_S: Final = 0.001  # an event loop wakes no more exactly, so shorter waits are skipped


class Turns:
    """Hands out turns, one for each message, to any number of takers; it begins when it is made.

    At a rate the turn of message n is due n / rate after the begin, whenever those before it were: what a stall of
    the cluster held up is caught up.

    Args:
        count: turns in all; None is any number.
        seconds: when it ends; None is never.
        rate: turns a second; None is as fast as they are taken.
    """

    def __init__(
        self, clock: Clock, count: int | None = None, seconds: float | None = None, rate: float | None = None
    ) -> None:
        self._clock = clock
        self._left = sys.maxsize if count is None else count
        self._begun_s = clock.monotonic()
        self._end_s = self._begun_s + (inf if seconds is None else seconds)
        self._rate = rate
        self._taken = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Hand out no more."""
        self._stopped.set()

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set() or self._clock.monotonic() >= self._end_s

    async def take(self, wanted: int = 1) -> int:
        """Wait for the next turn, and take up to `wanted` of them at once; 0 when all is over."""
        count = min(wanted, self._left)
        if count <= 0 or self.is_over:
            return 0
        due_s = self._begun_s + self._taken / self._rate if self._rate else 0.0
        self._left -= count
        self._taken += count
        if due_s >= self._end_s or not await self._is_due(due_s):
            return 0
        return count

    async def _is_due(self, due_s: float) -> bool:
        """Wait until then; whether it is not over meanwhile."""
        wait_s = due_s - self._clock.monotonic()
        if wait_s > EARLY_S:
            with suppress(TimeoutError):
                await self._clock.wait_for(self._stopped.wait(), wait_s)
        return not self._stopped.is_set()


@contextmanager
def interrupting(stop: Callable[[], None]) -> Iterator[None]:
    """Inside the `with`, the first Ctrl-C calls `stop`, and the second ends the program.

    Where an event loop cannot handle signals (Windows, other threads), the first one ends the program.
    """
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupted)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
