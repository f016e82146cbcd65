"""Queues shared by the broker: QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and
GET_ALL_MESSAGE_REQUEST_MODE (402).

Java's push consumer with `clientRebalance=false` asks each broker's answer for its own queues every 20 seconds, and
pops them if the operator says so: several members then share a queue.
Source: QueryAssignmentProcessor, Java 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sparrowmq.broker.cluster_queues import ClusterQueues
from sparrowmq.broker.handlers.handler import Handler, SharedParts
from sparrowmq.broker.part import Part
from sparrowmq.broker.request_modes import RequestModes
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteError
from sparrowmq.protocol import allocation, names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.client_bodies import (
    MODES,
    POP,
    Assignment,
    AssignmentQuery,
    Assignments,
    RequestMode,
)
from sparrowmq.protocol.requests.pop_headers import GetAllRequestModes, QueryAssignment, SetRequestMode
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.pool import Pool

log = logging.getLogger(__name__)

# The names that Java's strategies have on the wire.
_STRATEGIES: Final = {"AVG": allocation.averagely, "AVG_BY_CIRCLE": allocation.by_circle}


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
        asked = AssignmentQuery.of_request(body)
        queues = await self._queues.of(names.check_topic(asked.topic))
        mode = self._modes.get(asked.topic, asked.consumer_group)
        if queues is not None and asked.message_model != "BROADCASTING":
            strategy = _STRATEGIES.get(asked.strategy_name)
            members = {member.client_id for member in self._clients.members(asked.consumer_group)}
            if strategy is None or not members:
                return Reply(body=Assignments())
            share = allocation.for_pop(strategy, mode.pop_share_queue_num) if mode.mode == POP else strategy
            queues = share(queues, members, asked.client_id)
        if queues is None:
            return Reply(body=Assignments())
        return Reply(body=Assignments([Assignment(queue, mode.mode) for queue in queues]))

    @handles(SetRequestMode)
    async def set(self, header: SetRequestMode, body: bytes, peer: Peer) -> None:
        """Let a group pull or pop a topic; answer when that is on disk."""
        mode = RequestMode.of_request(body)
        self._check(mode)
        log.info("how group %s consumes is set by %s: %s", mode.consumer_group, peer.address, shown(mode))
        self._modes.put(mode)
        await self._modes.file.confirm(f"the mode of group {mode.consumer_group} is set")

    @handles(GetAllRequestModes)
    def all(self, header: GetAllRequestModes, body: bytes, peer: Peer) -> Reply:
        """Return the current content of messageRequestMode.json."""
        return Reply(body=self._modes.content())

    def _check(self, mode: RequestMode) -> None:
        """Raises: RemoteError."""
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
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"mode {shown(mode.mode)} is unknown; it is {' or '.join(MODES)}"
            )
