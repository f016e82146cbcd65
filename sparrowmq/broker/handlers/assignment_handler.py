"""Which member of a group consumes a queue: assignment by the broker, and locks of queues.

    QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402)
    LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)      for consumers that handle messages in order

Java's push consumer with `clientRebalance=false` asks each broker for its own queues every 20 seconds, and pops them if
the operator says so: several members then share a queue.
Source: QueryAssignmentProcessor, Java 5.4.0; AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.groups import RequestModes
from sparrowmq.broker.handlers.handler import Handler, SharedParts, system_error
from sparrowmq.broker.journal import Journal
from sparrowmq.broker.part import Part
from sparrowmq.broker.queue_locks import Queue, QueueLocks
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol import allocation, names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.requests.bodies import TopicRoute
from sparrowmq.protocol.requests.client_bodies import (
    MODES,
    POP,
    Assignment,
    AssignmentQuery,
    Assignments,
    LockedQueues,
    LockQueues,
    RequestMode,
)
from sparrowmq.protocol.requests.headers import LockBatchMq, UnlockBatchMq
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.protocol.requests.pop_headers import GetAllRequestModes, QueryAssignment, SetRequestMode
from sparrowmq.remoting.handler import Reply, encode_in_steps, handles
from sparrowmq.remoting.peer import Peer, may_act_for
from sparrowmq.remoting.pool import Pool

log = logging.getLogger(__name__)
# The names that Java's strategies have on the wire.
_STRATEGIES: Final = {"AVG": allocation.averagely, "AVG_BY_CIRCLE": allocation.by_circle}
CACHE_S: Final = 5.0
TIMEOUT_S: Final = 3.0
_MAX_CLIENT_ID_BYTES: Final = 255  # bytes: a record of the journal has the ids of 200 holders


def assignment_part(shared: SharedParts, modes: RequestModes, namesrv: Sequence[str], pool: Pool) -> Part:
    return Part((AssignmentHandler(shared, modes, ClusterQueues(namesrv, pool, shared.clock)),))


class AssignmentHandler(Handler):
    def __init__(self, shared: SharedParts, modes: RequestModes, queues: ClusterQueues) -> None:
        super().__init__(shared)
        self._modes = modes
        self._queues = queues

    @handles(QueryAssignment)
    async def assign(self, header: QueryAssignment, body: bytes, peer: Peer) -> Reply:
        """Return the queues of one member. A topic, group or strategy that is unknown gets none."""
        query = AssignmentQuery.of_request(body)
        queues = await self._queues.readable(names.check_topic(query.topic))
        mode = self._modes.get(query.topic, query.consumer_group)
        if queues is not None and query.message_model != "BROADCASTING":
            strategy = _STRATEGIES.get(query.strategy_name)
            members = {member.client_id for member in self._clients.members(query.consumer_group)}
            if strategy is None or not members:
                return Reply(body=Assignments())
            assign_share = allocation.for_pop(strategy, mode.pop_share_queue_num) if mode.mode == POP else strategy
            queues = assign_share(queues, members, query.client_id)
        if queues is None:
            return Reply(body=Assignments())
        return Reply(body=Assignments([Assignment(queue, mode.mode) for queue in queues]))

    @handles(SetRequestMode)
    async def set(self, header: SetRequestMode, body: bytes, peer: Peer) -> None:
        mode = RequestMode.of_request(body)
        self._check_mode(mode)
        log.info("the request mode of group %s is set by %s: %s", mode.consumer_group, peer.address, shown(mode))
        self._modes.put(mode)
        await self._modes.file.confirm(f"the mode of group {mode.consumer_group} is set")

    @handles(GetAllRequestModes)
    def all(self, header: GetAllRequestModes, body: bytes, peer: Peer) -> Reply:
        return Reply(body=self._modes.content())

    def _check_mode(self, mode: RequestMode) -> None:
        if mode.topic.startswith(names.RETRY):
            raise RemoteError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(mode.topic) is None:
            raise RemoteError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{shown(mode.topic)}] not exist")
        if self._groups.get(mode.consumer_group) is None:
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group {shown(mode.consumer_group)} does not exist; create it first",
            )
        if mode.mode not in MODES:
            raise system_error(f"mode {shown(mode.mode)} is unknown; it is {' or '.join(MODES)}")


class ClusterQueues:
    """The readable queues of a topic in the cluster. While no name server answers, the last answer stays in use."""

    def __init__(self, namesrv: Sequence[str], pool: Pool, clock: Clock) -> None:
        self._namesrv = namesrv
        self._pool = pool
        self._clock = clock
        self._cached: dict[str, tuple[float, list[MessageQueue]]] = {}  # of topics that a name server knew

    async def readable(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic in order; None if no name server knows it, or none has ever answered."""
        now_s = self._clock.monotonic()
        cached = self._cached.get(topic)
        if cached is not None and now_s - cached[0] < CACHE_S:
            return cached[1]
        for address in self._namesrv:
            try:
                session = await self._pool.session(address)
                answer = await session.call(GetRoute(topic, accept_standard_json_only=True), timeout_s=TIMEOUT_S)
            except RemoteError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._cached.pop(topic, None)
                    return None
            except SparrowError:
                continue
            else:
                queues = queues_of(topic, TopicRoute.decode(answer.body))
                self._cached[topic] = now_s, queues
                return queues
        return cached[1] if cached is not None else None


def queues_of(topic: str, route: TopicRoute) -> list[MessageQueue]:
    brokers = {broker.broker_name for broker in route.broker_datas if broker.broker_addrs}
    return [
        MessageQueue(topic, row.broker_name, queue_id)
        for row in sorted(route.queue_datas, key=lambda row: row.broker_name)
        if row.perm & Perm.READ and row.broker_name in brokers
        for queue_id in range(row.read_queue_nums)
    ]


def lock_part(shared: SharedParts, state: BrokerState) -> Part:
    locks = QueueLocks(shared.clock, state.locks)
    if state.journal is not None:
        state.journal.watch_locks(locks)
    return Part((LockHandler(shared, locks, state.journal),), chores=locks.chores())


class LockHandler(Handler):
    """Lock queues of topics that this broker has. Without a journal the holders are in memory only."""

    def __init__(self, shared: SharedParts, locks: QueueLocks, journal: Journal | None = None) -> None:
        super().__init__(shared)
        self._locks = locks
        self._journal = journal

    @handles(LockBatchMq)
    async def lock(self, header: LockBatchMq, body: bytes, peer: Peer) -> Reply:
        """Lock queues for an orderly consumer. The answer names only the queues that it now holds.

        The answer waits until the journal is safe, so no election gives the queues of a new holder to others.
        """
        request = LockQueues.of_request(body)
        names.check_group(request.consumer_group)
        size = len(request.client_id.encode())
        if not 0 < size <= _MAX_CLIENT_ID_BYTES:
            raise system_error(f"the client id has {size} bytes; it must have 1 to {_MAX_CLIENT_ID_BYTES}")
        self._check_client_id(request, peer)
        answer = await run_to_end(self._lock_queues(request))
        if self._journal is not None:
            await self._journal.wait_until_locks_are_safe()
        return answer

    @handles(UnlockBatchMq)
    def unlock(self, header: UnlockBatchMq, body: bytes, peer: Peer) -> None:
        request = LockQueues.of_request(body)
        self._check_client_id(request, peer)
        for queue in request.mq_set:
            self._locks.unlock(_queue_key(request, queue), request.client_id)
        if self._journal is not None:
            self._journal.note_locks()

    def _check_client_id(self, request: LockQueues, peer: Peer) -> None:
        member = self._clients.member(request.consumer_group, request.client_id)
        if member is not None and not may_act_for(peer, member.owner):
            raise AccessDenied(f"client {shown(request.client_id)} belongs to another account")

    def _lock_queues(self, request: LockQueues) -> Steps[Reply]:
        locked: list[MessageQueue] = []
        for queue in request.mq_set:
            topic = self._topics.get(queue.topic)
            count = 0 if topic is None else max(topic.read_queue_nums, topic.write_queue_nums)
            if 0 <= queue.queue_id < count and self._locks.lock(_queue_key(request, queue), request.client_id):
                locked.append(queue)
            yield
        return (yield from encode_in_steps(LockedQueues(locked)))


def _queue_key(request: LockQueues, queue: MessageQueue) -> Queue:
    return request.consumer_group, queue.topic, queue.queue_id
