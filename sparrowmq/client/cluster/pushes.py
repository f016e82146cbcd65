"""Requests that brokers send to their clients, on the connections that the clients opened."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparrowmq.client.cluster.membership import Member, Membership
from sparrowmq.core.process import stacks_now
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import to_end
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.client_bodies import ConsumerStatus
from sparrowmq.protocol.requests.headers import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunning,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    PushReply,
    ResetConsumerClientOffset,
)
from sparrowmq.protocol.requests.offset_bodies import ResetOffsets
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)


class Pushes:
    """Answers for all consumers and producers of one client.

    Attributes:
        answered: called with answers to this client's requests: `answered(push, body, address)`.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.answered: Callable[[PushReply, bytes, str], object] = _dropped

    @handles(PushReply)
    def answer(self, header: PushReply, body: bytes, peer: Peer) -> None:
        """Take the answer to a request. It is accepted even if no request waits, as in Java."""
        self.answered(header, body, peer.address)

    @handles(NotifyConsumerIdsChanged)
    def _members_changed(self, header: NotifyConsumerIdsChanged, body: bytes, peer: Peer) -> None:
        """Rebalance, because a member joined or left a group."""
        member = self._membership.consumers.get(header.consumer_group)
        if member is not None:
            member._members_changed()

    @handles(ResetConsumerClientOffset)
    async def _reset(self, header: ResetConsumerClientOffset, body: bytes, peer: Peer) -> None:
        """Move a group to an operator's offsets."""
        member = self._membership.consumers.get(header.group or "")
        if member is not None:
            await member._reset(ResetOffsets.decode(body).offset_table)

    @handles(GetConsumerRunning)
    async def _running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Reply:
        """Report the state of a consumer to an operator."""
        running = self._member(header.consumer_group)._running()
        if header.jstack_enable:
            running.jstack = await to_end(stacks_now())
        return Reply(body=running)

    @handles(GetConsumerStatus)
    def status(self, header: GetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        """Report this member's offsets to an operator; none if it does not consume."""
        member = self._membership.consumers.get(header.group)
        positions = member._positions_in(header.topic) if member is not None else {}
        return Reply(body=ConsumerStatus(positions))

    @handles(ConsumeMessageDirectly)
    async def consume(self, header: ConsumeMessageDirectly, body: bytes, peer: Peer) -> Reply:
        """Handle one message for an operator."""
        member = self._member(header.consumer_group)
        outcome = await member._handle_directly(record.decode(body), header.broker_name or "")
        return Reply(body=outcome)

    @handles(CheckTransactionState)
    def check(self, header: CheckTransactionState, body: bytes, peer: Peer) -> None:
        """Check a transaction, whose end the broker did not get."""
        self._membership.on_check(header, record.decode(body), peer)

    def _member(self, group: str) -> Member:
        member = self._membership.consumers.get(group)
        if member is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"this client does not consume in group {group}")
        return member


def _dropped(push: PushReply, body: bytes, address: str) -> None:
    """No answer is expected."""
