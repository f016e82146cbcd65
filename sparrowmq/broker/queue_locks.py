"""Queue locks: only the client of a group that holds the lock of a queue may consume it in order.

An orderly consumer locks a queue before it consumes it, and repeats the lock every 20 s. A lock that is not repeated
for 60 s expires, so a consumer that vanished blocks its queues for a minute at most.
Source: RebalanceLockManager, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparrowmq.broker.part import Chore, Part
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import MessageQueue

LOCK_LIFE_S = 60.0


@dataclass(slots=True)
class _Lock:
    client_id: str
    taken: float


class QueueLocks:
    """The locks of all groups. They are only in memory, because consumers repeat them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def part(self) -> Part:
        """A part that drops expired locks once a minute."""
        return Part(chores=(Chore("forget expired locks", 60, self.forget_expired),))

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock the queues that are free, or locked by this client already. Returns the queues that it holds now."""
        now, age = self._clock.monotonic(), self._clock.age
        locks = self._groups.setdefault(group, {})
        mine = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.client_id == client_id or age(held.taken) >= LOCK_LIFE_S:
                locks[queue] = _Lock(client_id, now)
                mine.append(queue)
        return mine

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the queues that this client holds. The locks of other clients stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds the queue, if any."""
        held = self._groups.get(group, {}).get(queue)
        return held.client_id if held is not None and self._clock.age(held.taken) < LOCK_LIFE_S else None

    def forget_expired(self) -> None:
        """Drop expired locks, so that groups that no longer exist take no memory."""
        age = self._clock.age
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if age(held.taken) >= LOCK_LIFE_S]:
                del locks[queue]
            if not locks:
                del self._groups[group]
