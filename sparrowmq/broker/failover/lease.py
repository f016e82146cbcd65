"""A master's lease in etcd, and until when it may believe in it.

    asked       ├── masterLeaseTime ──────────────────────┤     etcd's, which begins when the question gets there
    deadline    ├───────────────────────────┤ margin            ours, from before it was asked, by a steady clock

So it ends here first: nobody else is elected while this one still acts as the master. The margin covers clocks that do
not go at the same rate, and what is under way when it is looked at. What is acknowledged as being at the members in
sync needs no clock: only one of those can be the next (in_sync.py).

A lease that lives does not say that the key is still there which was put with it: somebody may have deleted it, or it
may be another's by now, as where a copy of our store took us for an earlier life of its own. So each renewal looks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

_MARGIN: Final = 0.125  # of its time
_RENEWALS: Final = 4  # in its time
_RETRY_S: Final = 0.25


class Granting(Protocol):
    """What an etcd does for leases; the errors are EtcdFailed."""

    async def grant(self, ttl_s: int) -> int:
        """A new one."""

    async def keep_alive(self, lease: int) -> int:
        """Let it live on; for how many seconds from now, 0 if it has ended."""

    async def revoke(self, lease: int) -> None:
        """Let it end."""


async def _stands() -> bool:
    return True


class Lease:
    """One lease; `begin` it, then `renew` while it is wanted.

    Attributes:
        number: etcd's.
        deadline: until when it is believed in, by the clock's `monotonic`.
    """

    def __init__(self, etcd: Granting, clock: Clock, ttl_s: int) -> None:
        self.number = 0
        self.deadline = 0.0
        self._etcd = etcd
        self._clock = clock
        self._ttl_s = ttl_s

    @property
    def is_valid(self) -> bool:
        """Whether nobody else can have what it stands for."""
        return self._clock.monotonic() < self.deadline

    async def begin(self) -> None:
        """Raises: EtcdFailed."""
        asked = self._clock.monotonic()
        self.number = await self._etcd.grant(self._ttl_s)
        self._lives_from(asked, self._ttl_s)

    async def renew(self, stands: Callable[[], Awaitable[bool]] = _stands) -> None:
        """Until it has ended, here or there, or what it stands for is not ours any more.

        Args:
            stands: whether that is ours; looked at each time. Raises: EtcdFailed.
        """
        while self.is_valid:
            asked = self._clock.monotonic()
            try:
                ttl_s = await self._etcd.keep_alive(self.number)
                is_ours = await stands()
            except EtcdFailed as error:
                log.warning("the lease cannot be renewed now: %s", error)
                await self._pause(_RETRY_S)
                continue
            if not ttl_s or not is_ours:
                what = "what it stands for is not ours any more" if ttl_s else "etcd knows it no more"
                log.error("the lease has ended: %s", what)
                self.deadline = 0.0
                return
            self._lives_from(asked, ttl_s)
            await self._pause(self._ttl_s / _RENEWALS)
        log.error("the lease was not renewed in time")

    async def end(self) -> None:
        """Give back what it stands for, at once if etcd can be asked."""
        self.deadline = 0.0
        if self.number:
            try:
                await self._etcd.revoke(self.number)
            except EtcdFailed as error:
                log.warning("the lease ends by its time: %s", error)

    def _lives_from(self, asked: float, ttl_s: float) -> None:
        self.deadline = asked + ttl_s * (1 - _MARGIN)

    async def _pause(self, pause_s: float) -> None:
        """Not beyond the deadline."""
        await self._clock.sleep(max(0.0, min(pause_s, self.deadline - self._clock.monotonic())))
