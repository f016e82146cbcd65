"""What brokers ask of their clients, on the connections that the clients made."""

from __future__ import annotations

import logging

from sparrowmq.client.cluster.membership import Member, Membership
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import ResetOffsets
from sparrowmq.protocol.requests.headers import (
    GetConsumerRunning,
    NotifyConsumerIdsChanged,
    ResetConsumerClientOffset,
)
from sparrowmq.remoting.dispatch import Answer, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)


class Pushes:
    """Answers for all consumers of one client."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @handles(NotifyConsumerIdsChanged)
    def members_changed(self, header: NotifyConsumerIdsChanged, body: bytes, peer: Peer) -> None:
        """Somebody joined or left a group."""
        member = self._membership.consumers.get(header.consumer_group)
        if member is not None:
            member.members_changed()

    @handles(ResetConsumerClientOffset)
    async def reset(self, header: ResetConsumerClientOffset, body: bytes, peer: Peer) -> None:
        """An operator moves a group to other offsets."""
        member = self._membership.consumers.get(header.group or "")
        if member is not None:
            await member.reset(ResetOffsets.decode(body).offset_table)

    @handles(GetConsumerRunning)
    def running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Answer:
        """An operator wants to see what a consumer is doing."""
        return Answer(body=self._member(header.consumer_group).running().encode())

    def _member(self, group: str) -> Member:
        member = self._membership.consumers.get(group)
        if member is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"this client does not consume in group {group}")
        return member
