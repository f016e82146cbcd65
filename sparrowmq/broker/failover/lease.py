"""A master's lease in etcd, and the time until which the master may rely on it.

    request     ├── masterLeaseTime ──────────────────────┤     etcd's time, from the arrival of the request
    deadline    ├───────────────────────────┤ margin            the master's, from before the request, by a steady clock

So the lease ends first at the master: no other broker is elected while this one still acts as the master. The margin
covers clocks of different speed, and work that is under way during the check. Acknowledgements that wait for the
members in sync need no clock, because only one of those members can be the next master (in_sync.py).

A live lease does not prove that its key still exists. An operator may have deleted the key. Another process may own it:
a copy of our store can mistake us for an earlier process of its own. So each renewal also checks the key.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

_MARGIN: Final = 0.125  # of the lease time
_RENEWALS: Final = 4  # per lease time
_RETRY_S: Final = 0.25


class Granting(Protocol):
    """The lease requests of an etcd; they raise EtcdFailed."""

    async def grant(self, ttl_s: int) -> int:
        """Return a new lease."""

    async def keep_alive(self, lease: int) -> int:
        """Extend a lease; return its time from now in seconds, 0 if it has ended."""

    async def revoke(self, lease: int) -> None:
        """End a lease."""


async def _stands() -> bool:
    return True


class Lease:
    """One lease: `begin` it, then `renew` it while it is needed.

    Attributes:
        number: the lease id of etcd.
        deadline: the end of the time that the master relies on it, by the clock's `monotonic`.
    """

    def __init__(self, etcd: Granting, clock: Clock, ttl_s: int) -> None:
        self.number = 0
        self.deadline = 0.0
        self._etcd = etcd
        self._clock = clock
        self._ttl_s = ttl_s
        self._is_over = False

    @property
    def is_valid(self) -> bool:
        """Whether no other broker can own the lease's key."""
        return self._clock.monotonic() < self.deadline

    async def begin(self) -> None:
        """Get a new lease from etcd. Raises: EtcdFailed."""
        asked = self._clock.monotonic()
        self.number = await self._etcd.grant(self._ttl_s)
        self._lives_from(asked, self._ttl_s)

    async def renew(self, stands: Callable[[], Awaitable[bool]] = _stands) -> None:
        """Renew the lease until it has ended, at etcd or here, or until its key is no longer ours.

        Args:
            stands: whether the key is still ours; called at each renewal. Raises: EtcdFailed.
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
                what = "its key belongs to another member" if ttl_s else "etcd does not know it"
                log.error("the lease has ended: %s", what)
                self.deadline = 0.0
                return
            self._lives_from(asked, ttl_s)
            await self._pause(self._ttl_s / _RENEWALS)
        if self.deadline:  # otherwise this member has given the lead up
            log.error("the lease was not renewed in time")

    async def end(self) -> None:
        """End the lease, at once if etcd answers. The answer to a renewal that comes later does not change that."""
        self._is_over = True
        self.deadline = 0.0
        if self.number:
            try:
                await self._etcd.revoke(self.number)
            except EtcdFailed as error:
                log.warning("the lease ends by its time: %s", error)

    def _lives_from(self, requested_s: float, ttl_s: float) -> None:
        self.deadline = 0.0 if self._is_over else requested_s + ttl_s * (1 - _MARGIN)

    async def _pause(self, pause_s: float) -> None:
        """Sleep, but not past the deadline."""
        await self._clock.sleep(max(0.0, min(pause_s, self.deadline - self._clock.monotonic())))
