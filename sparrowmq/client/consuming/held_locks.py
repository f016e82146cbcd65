"""The broker's locks on queues. Only the member with the lock of a queue consumes it, so that order is kept.

A lock lasts 60 s at the broker. The client renews it every 20 s, and trusts it for 30 s: a consumer without a
connection stops before the broker gives the queue to another member. Source: RebalanceImpl.lockAll and ProcessQueue,
Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import groupby
from typing import Final

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues
from sparrowmq.protocol.requests.headers import LockBatchMq, UnlockBatchMq

log = logging.getLogger(__name__)

RENEW_S: Final = 20.0
TRUSTED_S: Final = 30.0
RENEW_AGAIN_S: Final = 1.0  # after a renewal that failed
ANSWER_S: Final = 1.0


class HeldLocks:
    """The locks of one consumer, at all brokers."""

    def __init__(self, group: str, client_id: str, brokers: Brokers) -> None:
        self._group = group
        self._client_id = client_id
        self._brokers = brokers
        self._owed: set[MessageQueue] = set()  # perhaps locked for us at their broker, but not in use here
        self._failing: set[str] = set()  # brokers whose failure is logged already

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Lock queues, or renew their locks. Return the locked ones."""
        answers = await self.ask(queues)
        return {queue for queue, is_locked in answers.items() if is_locked}

    async def ask(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues, or renew their locks. Return for each queue whether it is ours, or another member's.

        The queues of a broker without an answer are left out, and owed: the broker may have locked them.
        """
        answers: dict[MessageQueue, bool] = {}
        self._owed.difference_update(queues)
        for broker_name, portion in _by_broker(queues):
            try:
                session = await self._brokers.of(broker_name)
                answer = await session.call(LockBatchMq(), self._body(portion), timeout_s=ANSWER_S)
                locked = set(LockedQueues.decode(answer.body).locked)
                answers |= {queue: queue in locked for queue in portion}
                self._failing.discard(broker_name)
            except SparrowError as error:
                self._owed.update(portion)
                self._report(broker_name, error)
        return answers

    def owe(self, queues: Collection[MessageQueue]) -> None:
        """Note queues that were given up while a broker was asked to lock them: `unlock_owed` unlocks them."""
        self._owed.update(queues)

    async def unlock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, SparrowError]:
        """Unlock queues at once. Return the errors of failed queues, which `unlock_owed` tries again.

        The locks at a broker that does not answer end after 60 s.
        """
        failed: dict[MessageQueue, SparrowError] = {}
        for broker_name, portion in _by_broker(queues):
            self._owed.difference_update(portion)
            try:
                session = await self._brokers.of(broker_name)
                await session.call(UnlockBatchMq(), self._body(portion), timeout_s=ANSWER_S)
            except SparrowError as error:
                self._owed.update(portion)
                failed |= dict.fromkeys(portion, error)
                log.debug("cannot unlock queues of %s: %s", broker_name, error)
        return failed

    async def unlock_owed(self, exclude: Collection[MessageQueue] = ()) -> None:
        """Unlock the owed queues except `exclude`: a broker keeps their locks even over a restart."""
        if owed := self._owed.difference(exclude):
            await self.unlock(owed)

    def _report(self, broker_name: str, error: SparrowError) -> None:
        level = logging.DEBUG if broker_name in self._failing else logging.WARNING
        self._failing.add(broker_name)
        log.log(level, "cannot lock queues of %s for group %s: %s", broker_name, self._group, error)

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        return LockQueues(self._group, self._client_id, list(queues)).encode()


def _by_broker(queues: Collection[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
    ordered = sorted(sorted(queues), key=lambda queue: queue.broker_name)
    return [(name, list(portion)) for name, portion in groupby(ordered, key=lambda queue: queue.broker_name)]
