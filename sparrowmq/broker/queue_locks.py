"""Queue locks: only the client of a group that holds the lock of a queue may consume it in order.

An orderly consumer locks a queue before it consumes it, and repeats the lock every 20 s. A lock that is not repeated
for 60 s expires, so a consumer that vanished blocks its queues for a minute at most.

    queueLocks.json    {"locks": {"billing": {"client-1": [queue, ...]}}}    written before the answer, not synced

Unlike Java: the holders survive a restart of the broker. A holder trusts its lock for 30 s, so it may be handling
messages all the time that the broker was away. Without the file any other member could lock the queue meanwhile, and
would overtake it. After a restart a holder has as much time as it trusts its lock; then the queue is free. A power cut
can lose the file, and then all queues are free.
Source: RebalanceLockManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.broker.part import Chore, Part
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import MessageQueue

LOCK_LIFE_S: Final = 60.0
TRUSTED_S: Final = (
    30.0  # how long a holder trusts its lock without another answer: `held_locks` of the client
)

log = logging.getLogger(__name__)

Holders = dict[str, dict[str, list[MessageQueue]]]  # the queues by group and client


@dataclass(slots=True)
class _Lock:
    client_id: str
    taken: float
    life_s: float = LOCK_LIFE_S


class _Saved(msgspec.Struct):
    locks: Holders


class QueueLocks:
    """The locks of all groups.

    Args:
        folder: for the file of the holders; None keeps them in memory only.
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        self._clock = clock
        self._path = None if folder is None else folder / "queueLocks.json"
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._is_changed = False
        if self._path is not None:
            self._restore(self._path)

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
            if held is None or held.client_id == client_id or age(held.taken) >= held.life_s:
                self._is_changed |= held is None or held.client_id != client_id
                locks[queue] = _Lock(client_id, now)
                mine.append(queue)
        return mine

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the queues that this client holds. The locks of other clients stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                self._is_changed = True
                del locks[queue]

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        held = self._groups.get(group, {}).get(queue)
        return held.client_id if held is not None and self._clock.age(held.taken) < held.life_s else None

    def save(self) -> None:
        """Write the holders, if they have changed; to be called before an answer. A failure is logged."""
        if self._path is None or not self._is_changed:
            return
        holders: Holders = {}
        for group, locks in self._groups.items():
            for queue, held in locks.items():
                holders.setdefault(group, {}).setdefault(held.client_id, []).append(queue)
        written = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(msgspec.json.encode(_Saved(holders)))
            written.replace(self._path)
        except OSError as error:
            log.warning("the locks of queues cannot be saved, and end with this broker: %s", error)
        self._is_changed = False

    def _restore(self, path: Path) -> None:
        """Read the holders of the process before; an unreadable file is left out."""
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read, so all queues are unlocked: %s", path, error)
            return
        now = self._clock.monotonic()
        for group, holders in saved.locks.items():
            locks = self._groups.setdefault(group, {})
            for client_id, queues in holders.items():
                locks |= {queue: _Lock(client_id, now, TRUSTED_S) for queue in queues}

    def forget_expired(self) -> None:
        """Drop expired locks, so that groups that no longer exist take no memory."""
        age = self._clock.age
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if age(held.taken) >= held.life_s]:
                del locks[queue]
            if not locks:
                del self._groups[group]
