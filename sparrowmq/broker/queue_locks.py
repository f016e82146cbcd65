"""Queue locks: only the client of a group that holds the lock of a queue may consume it in order.

An orderly consumer locks a queue before it consumes it, and repeats the lock every 20 s. A lock that is not repeated
for 60 s expires, so a consumer that vanished blocks its queues for a minute at most.

Unlike Java: the journal records each change of a holder, and the broker confirms a lock once its record is safe. So
locks survive a restart of the broker and an election. A holder trusts its lock for 30 s, and handles messages even
while the broker is away. At a new master, a lock from the journal lasts for these 30 s; if the holder does not repeat
it, the queue is free then.
Source: RebalanceLockManager, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from sparrowmq.broker.change_log import Holder
from sparrowmq.broker.part import Chore
from sparrowmq.loop.clock import Clock

LOCK_LIFE_S: Final = 60.0
TRUSTED_S: Final = 30.0  # how long a client trusts its lock without another answer
_HOLDERS_IN_RECORD: Final = 200  # holders in one record of the journal

Queue: TypeAlias = tuple[str, str, int]  # the group, the topic and the queue's id
Holders: TypeAlias = dict[Queue, str]  # client ids


@dataclass(slots=True)
class _Lock:
    client_id: str
    taken_s: float
    life_s: float = LOCK_LIFE_S


def take_holders(holders: Holders, changes: Iterable[Holder]) -> None:
    for holder in changes:
        if holder.client_id:
            holders[holder.group, holder.topic, holder.queue_id] = holder.client_id
        else:
            holders.pop((holder.group, holder.topic, holder.queue_id), None)


class QueueLocks:
    """The locks of all groups, first those of the journal. `is_logged`: a journal records the changes."""

    def __init__(self, clock: Clock, holders: Holders | None = None) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._locks = {queue: _Lock(client_id, now, TRUSTED_S) for queue, client_id in (holders or {}).items()}
        self._changed: dict[Queue, None] = {}
        self.is_logged = False

    def chores(self) -> tuple[Chore]:
        return (Chore("forget expired locks", 60, self.forget_expired),)

    def lock(self, queue: Queue, client_id: str) -> bool:
        """Lock a queue, or renew the client's lock. Returns False if another client holds the queue."""
        holder = self.holder(queue)
        if holder not in (None, client_id):
            return False
        if queue not in self._locks or self._locks[queue].client_id != client_id:
            self._note(queue)
        self._locks[queue] = _Lock(client_id, self._clock.monotonic())
        return True

    def unlock(self, queue: Queue, client_id: str) -> None:
        lock = self._locks.get(queue)
        if lock is not None and lock.client_id == client_id:
            self._free(queue)

    def holder(self, queue: Queue) -> str | None:
        lock = self._locks.get(queue)
        return None if lock is None or self._is_over(lock) else lock.client_id

    def forget_expired(self) -> None:
        """Drop expired locks, so that groups that no longer exist take no memory."""
        for queue in [queue for queue, lock in self._locks.items() if self._is_over(lock)]:
            self._free(queue)

    def take_changes(self) -> Iterator[list[Holder]]:
        changed, self._changed = self._changed, {}
        yield from self._pieces(changed)

    def snapshot(self) -> Iterator[list[Holder]]:
        yield from self._pieces(list(self._locks))

    def _pieces(self, queues: Iterable[Queue]) -> Iterator[list[Holder]]:
        remaining_queues = iter(queues)
        while piece := [
            Holder(*queue, self.holder(queue) or "") for queue in islice(remaining_queues, _HOLDERS_IN_RECORD)
        ]:
            yield piece

    def _free(self, queue: Queue) -> None:
        del self._locks[queue]
        self._note(queue)

    def _note(self, queue: Queue) -> None:
        if self.is_logged:
            self._changed[queue] = None

    def _is_over(self, lock: _Lock) -> bool:
        return self._clock.age(lock.taken_s) >= lock.life_s
