"""The machine's clock, but what a client does every 15 s or more rarely comes ten times as often.

Routes, queues and heartbeats are renewed every 20 to 30 s, and until then a client may live with a route that lacks a
broker which was just restarted. A run of some seconds would never see the end of that.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

from sparrowmq.loop.clock import SystemClock

T = TypeVar("T")

RARE_S: Final = 15.0
HASTE: Final = 10.0


class HastyClock(SystemClock):
    """Pauses of `RARE_S` and more take a tenth; limits of requests, which are shorter, stay as they are."""

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(_shortened(delay_s))

    async def wait_for(self, awaitable: Awaitable[T], timeout_s: float) -> T:
        return await super().wait_for(awaitable, _shortened(timeout_s))


def _shortened(pause_s: float) -> float:
    return pause_s / HASTE if pause_s >= RARE_S else pause_s
