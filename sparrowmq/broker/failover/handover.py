"""The master hands the lead over on purpose: to whom, and when that member has everything.

sends refused         as by a slave, so our clients wait and try again
drained               all members in sync have the log up to its end, so all sends before are answered
one change in etcd    there is no leader, and the state names the successor, which other members let go first

A master without room for messages hands the lead over by itself, once it has refused messages for a lease time.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.message_store import MessageStore

HAND_OVER_S: Final = 3.0  # the limit of each step
FORGETS_S: Final = 5.0  # without a refused message: the store tries again every second
PAUSE_S: Final = 30.0  # between two attempts
_LOOK_S: Final = 0.01


def next_master(in_sync: InSync, me: int, wanted: int) -> int:
    """Return the member to hand the lead over to: the wanted one, or for 0 the one with most. Raises: RemoteError."""
    others = sorted(in_sync.members - {me}, key=lambda member: (-in_sync.end_of(member), member))
    if not in_sync.is_settled or not others:
        raise refused("no other member is in sync")
    if wanted and wanted not in others:
        raise refused(f"member {wanted} is not in sync; the other members in sync: {_listed(others)}")
    return wanted or others[0]


async def drained(store: MessageStore, in_sync: InSync, clock: Clock) -> None:
    """Return when all members in sync have the log up to its end. Raises: RemoteError, they have not in time."""
    begun = clock.monotonic()
    store.dispatch()
    store.flusher.kick()
    while in_sync.replicated.value < store.end:
        if clock.age(begun) > HAND_OVER_S:
            raise refused(f"the other members do not have the whole log after {HAND_OVER_S:g} s")
        await clock.sleep(_LOOK_S)


class RoomWatch:
    """Notices that the disk of a master has had no room for messages for a while.

    Args:
        patience_s: the time for which it must have refused messages.
    """

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._first = 0.0
        self._last = clock.monotonic() - FORGETS_S - 1

    def is_short(self, store: MessageStore) -> bool:
        """Look at the store; call it about twice a second. After True it waits for a while."""
        if store.intake.full is None:
            return False
        now = self._clock.monotonic()
        if now - self._last > FORGETS_S:
            self._first = now
        self._last = now
        if now - self._first < self._patience_s:
            return False
        self._first = now + PAUSE_S
        return True


def refused(why: str) -> RemoteError:
    """Return the answer to an operator whose order cannot be carried out."""
    return RemoteError(ResponseCode.SYSTEM_ERROR, why)


def _listed(members: list[int]) -> str:
    return ", ".join(map(str, sorted(members)))
