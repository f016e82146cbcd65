"""The producers and consumers of a client: in its heartbeats, and in the requests that brokers send to it.

Brokers send these requests on the connections that the client opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from sparrowmq.core.process import list_stacks
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.slices import run_to_end
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.requests import client_bodies, headers
from sparrowmq.protocol.requests.offset_bodies import ResetOffsets
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)
_LOG_LIMIT: Final = LogLimit(SystemClock())  # of all clients in this program
OnCheck: TypeAlias = Callable[[headers.CheckTransactionState, StoredMessage, Peer], None]


class Member(Protocol):
    """A consumer, as brokers see it: with its full group, and its tasks, in which handlers and listeners run."""

    full_group: str
    _background: Background

    def _heartbeat_entry(self) -> client_bodies.ConsumerBeat:
        """Its entry in a heartbeat."""

    def _on_members_changed(self) -> None:
        """A member joined or left its group."""

    async def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moved its group to other offsets."""

    async def _on_client_leaving(self) -> None:
        """Commit what is handled, because its client is left before the consumer."""

    def _on_client_left(self) -> None:
        """Its client was left before the consumer."""

    def _running_info(self) -> client_bodies.ConsumerRunning:
        """Its state, for an operator."""

    def _positions_in(self, topic: str) -> dict[MessageQueue, int]:
        """Its offsets in the queues of a topic, for an operator."""

    async def _deliver_once(self, message: StoredMessage, broker_name: str) -> client_bodies.ConsumeOutcome:
        """Handle one message now, for an operator. Raises: RemoteError, it cannot."""


class Membership:
    """The producer groups and consumers of one client. `on_check` gets brokers' questions about transactions."""

    def __init__(self, client_id: str) -> None:
        self.producers: dict[str, str] = {}  # each with the group in heartbeats
        self.consumers: dict[str, Member] = {}
        self.on_check: OnCheck = _log_unknown_check
        self.client_id = client_id

    def add_producer(self, group: str, heartbeat_group: str | None = None) -> None:
        """Add a producer of the group; heartbeats may have another group. Raises: ConfigError, this client has one."""
        if group in self.producers:
            raise ConfigError(f"this client has a producer of group {group} already; use that one")
        self.producers[group] = heartbeat_group or group

    def add_consumer(self, member: Member) -> None:
        """Add a consumer. Raises: ConfigError, this client has one of the group."""
        if member.full_group in self.consumers:
            raise ConfigError(
                f"this client consumes in group {member.full_group} already; name all topics of the group in one "
                "call, as all members want the same, or give this consumer a group of its own"
            )
        self.consumers[member.full_group] = member

    def remove_consumer(self, member: Member) -> None:
        if self.consumers.get(member.full_group) is member:
            del self.consumers[member.full_group]

    async def commit_consumers(self) -> None:
        """Let the consumers that are not left yet commit."""
        for member in list(self.consumers.values()):
            await member._on_client_leaving()

    def end_consumers(self) -> None:
        """End the consumers, because the client was left."""
        for member in self.consumers.values():
            member._on_client_left()

    def heartbeat(self) -> bytes | None:
        """The body of a heartbeat; None while there is neither producer nor consumer."""
        if not self.producers and not self.consumers:
            return None
        return client_bodies.Heartbeat(
            client_id=self.client_id,
            producer_data_set=[client_bodies.ProducerBeat(group) for group in sorted(self.producers.values())],
            consumer_data_set=[member._heartbeat_entry() for member in self.consumers.values()],
        ).encode()


def _log_unknown_check(header: headers.CheckTransactionState, half_message: StoredMessage, peer: Peer) -> None:
    text = "%s asks about the transaction of %s, and this client has no producers"
    _LOG_LIMIT.log(log, logging.WARNING, text, peer.address, half_message)


class PushHandler:
    """Answers brokers for all consumers and producers of one client. `on_reply` gets replies to its requests."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.on_reply: Callable[[headers.PushReply, bytes, str], object] = lambda *_: None

    @handles(headers.PushReply)
    def take_reply(self, header: headers.PushReply, body: bytes, peer: Peer) -> None:
        """Take the answer to a request. It is accepted even if no request waits, as in Java."""
        self.on_reply(header, body, peer.address)

    @handles(headers.NotifyConsumerIdsChanged)
    def _on_members_changed(self, header: headers.NotifyConsumerIdsChanged, body: bytes, peer: Peer) -> None:
        member = self._membership.consumers.get(header.consumer_group)
        if member is not None:
            member._on_members_changed()

    @handles(headers.ResetConsumerClientOffset)
    async def _reset_offsets(self, header: headers.ResetConsumerClientOffset, body: bytes, peer: Peer) -> None:
        member = self._membership.consumers.get(header.group or "")
        if member is not None:
            await member._reset_offsets(ResetOffsets.decode(body).offset_table)

    @handles(headers.GetConsumerRunning)
    async def _running_info(self, header: headers.GetConsumerRunning, body: bytes, peer: Peer) -> Reply:
        running = self._member(header.consumer_group)._running_info()
        if header.jstack_enable:
            running.jstack = await run_to_end(list_stacks())
        return Reply(body=running)

    @handles(headers.GetConsumerStatus)
    def report_offsets(self, header: headers.GetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        """Report this member's offsets to an operator; none if it does not consume."""
        member = self._membership.consumers.get(header.group)
        positions = member._positions_in(header.topic) if member is not None else {}
        return Reply(body=client_bodies.ConsumerStatus(positions))

    @handles(headers.ConsumeMessageDirectly)
    async def deliver_once(self, header: headers.ConsumeMessageDirectly, body: bytes, peer: Peer) -> Reply:
        member = self._member(header.consumer_group)
        outcome = await member._deliver_once(record.decode(body), header.broker_name or "")
        return Reply(body=outcome)

    @handles(headers.CheckTransactionState)
    def check(self, header: headers.CheckTransactionState, body: bytes, peer: Peer) -> None:
        self._membership.on_check(header, record.decode(body), peer)

    def _member(self, group: str) -> Member:
        member = self._membership.consumers.get(group)
        if member is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"this client does not consume in group {group}")
        return member
