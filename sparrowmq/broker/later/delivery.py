"""Delivers what is due, and sleeps until the next of it is, or until it is woken because there is more.

    run ── deliver_due ── deliver_some, a turn's worth at a time; between two of them the sockets have theirs
        └─ sleep: until the next is due, at most a minute, or `wake`

Delay levels (delay.py) and timers (timer.py) are delivered so, each by one coroutine; there is no other polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sparrowmq.errors import BadStore, DiskFull, StoreError
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 1.0  # after a full disk, or a queue that cannot be read
# A wait is cut into pieces so that a clock that was set forward is noticed.
LONGEST_WAIT_S: Final = 60.0


class Alarms:
    """Tells what waits because something is damaged: once, though it is tried again every minute."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def tell(self, what: str, why: StoreError) -> None:
        """Say it, unless it was the last thing said of that."""
        if self._told.get(what) != str(why):
            self._told[what] = str(why)
            log.error("%s waits, and is tried again each minute: %s", what, why)


class Delivery:
    """The delivery of one kind of messages that wait.

    Args:
        what: they are, for the log.
        deliver_some: delivers some of what is due; returns how many seconds there are until more is. Raises: DiskFull,
            BadStore, then it is asked again; whatever else it raises ends the delivery.
    """

    def __init__(self, what: str, deliver_some: Callable[[], float], clock: Clock) -> None:
        self._what = what
        self._deliver_some = deliver_some
        self._clock = clock
        self._more = asyncio.Event()
        self._failure: BaseException | None = None
        self._closed = False
        self._trouble: type[StoreError] | None = None  # that was told

    async def run(self) -> None:
        """Deliver until `close`.

        Raises:
            StoreFailed: the store takes no more.
        """
        while not self._closed:
            self._more.clear()
            wait_s = await self.deliver_due()
            if self._failure is not None:
                raise self._failure
            with suppress(TimeoutError):
                await self._clock.wait_for(self._more.wait(), wait_s)

    def wake(self, error: BaseException | None = None) -> None:
        """There is more, or, with `error`, never will be: that ends `run`."""
        self._failure = self._failure or error
        self._more.set()

    def close(self) -> None:
        """Deliver nothing more; what comes due now waits for the next start."""
        self._closed = True
        self._more.set()

    async def deliver_due(self) -> float:
        """Deliver all that is due; returns how many seconds there are until more may be."""
        while not self._closed:
            try:
                wait_s = self._deliver_some()
            except (DiskFull, BadStore) as error:
                if self._trouble is not type(error):
                    level = logging.WARNING if isinstance(error, DiskFull) else logging.ERROR
                    log.log(level, "%s wait: %s", self._what, error)
                self._trouble = type(error)
                return RETRY_PAUSE_S
            self._trouble = None
            if wait_s > 0:
                return min(wait_s, LONGEST_WAIT_S)
            await asyncio.sleep(0)
        return 0
