"""Locks of queues for consumers that handle messages in order: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Source: AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.handlers.handler import Handler, SharedParts
from sparrowmq.broker.part import Part
from sparrowmq.broker.queue_locks import Queue, QueueLocks
from sparrowmq.broker.state.journal import Journal
from sparrowmq.broker.state.kept_state import KeptState
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.loop.slices import Steps, to_end
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues
from sparrowmq.protocol.requests.headers import LockBatchMq, UnlockBatchMq
from sparrowmq.remoting.handler import Reply, encoded, handles
from sparrowmq.remoting.ownership import may_act_for
from sparrowmq.remoting.peer import Peer

_LONGEST_ID: Final = 255  # bytes: a record of the journal has the ids of 200 holders


class LockHandler(Handler):
    """Lock queues of topics that this broker has.

    Args:
        journal: has the holders, at a master; None keeps them in memory only.
    """

    def __init__(self, shared: SharedParts, locks: QueueLocks, journal: Journal | None = None) -> None:
        super().__init__(shared)
        self._locks = locks
        self._journal = journal

    @handles(LockBatchMq)
    async def lock(self, header: LockBatchMq, body: bytes, peer: Peer) -> Reply:
        """Lock queues for an orderly consumer. The answer names only the queues that it now holds.

        The answer waits until the journal is safe, so no election gives the queues of a new holder to others.
        """
        wish = LockQueues.of_request(body)
        names.check_group(wish.consumer_group)
        size = len(wish.client_id.encode())
        if not 0 < size <= _LONGEST_ID:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"the client id has {size} bytes; it must have 1 to {_LONGEST_ID}",
            )
        self._check_id(wish, peer)
        answer = await to_end(self._lock(wish))
        if self._journal is not None:
            await self._journal.safe_locks()
        return answer

    @handles(UnlockBatchMq)
    def unlock(self, header: UnlockBatchMq, body: bytes, peer: Peer) -> None:
        wish = LockQueues.of_request(body)
        self._check_id(wish, peer)
        for queue in wish.mq_set:
            self._locks.unlock(_key(wish, queue), wish.client_id)
        if self._journal is not None:
            self._journal.note_locks()

    def _check_id(self, wish: LockQueues, peer: Peer) -> None:
        """Raises: AccessDenied, the client that the request names belongs to another account."""
        member = self._clients.member(wish.consumer_group, wish.client_id)
        if member is not None and not may_act_for(peer, member.owner):
            raise AccessDenied(f"client {shown(wish.client_id)} belongs to another account")

    def _lock(self, wish: LockQueues) -> Steps[Reply]:
        locked: list[MessageQueue] = []
        for queue in wish.mq_set:
            if self._is_here(queue) and self._locks.lock(_key(wish, queue), wish.client_id):
                locked.append(queue)
            yield
        return (yield from encoded(LockedQueues(locked)))

    def _is_here(self, queue: MessageQueue) -> bool:
        topic = self._topics.get(queue.topic)
        return topic is not None and 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)


def lock_part(shared: SharedParts, state: KeptState) -> Part:
    """Return the part that locks queues; the journal has the holders from now on."""
    locks = QueueLocks(shared.clock, state.locks)
    if state.journal is not None:
        state.journal.watch_locks(locks)
    return Part((LockHandler(shared, locks, state.journal),), chores=locks.chores())


def _key(wish: LockQueues, queue: MessageQueue) -> Queue:
    return wish.consumer_group, queue.topic, queue.queue_id
