"""The source of time: every timestamp, pause and time limit of the product uses a `Clock`.

A test uses a `sparrowmq.testing.ManualClock` instead and advances it by hand, so that half an hour of retries takes no
time (the idea of trio's MockClock). Messages get wall-clock time (`now_ms`); durations use `monotonic`, which never
jumps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, runtime_checkable

from sparrowmq.loop.running_time import of_loop

T = TypeVar("T")


class Timer(Protocol):
    """A callback that waits for its time."""

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
        return of_loop(self.monotonic).age(moment)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    async def wait_for(self, awaitable: Awaitable[T], timeout_s: float) -> T:
        # Not asyncio.wait_for: in 3.11 it swallows a cancellation that comes in the same turn as the result.
        async with asyncio.timeout(timeout_s):
            return await awaitable
