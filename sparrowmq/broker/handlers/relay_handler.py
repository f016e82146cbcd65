"""Questions of tools to consumers, through their broker: a consumer's state (307), consume one message now (309), and
the offsets of a group's members (223; the broker asks each member with 221).

    tool ── request ──> broker ── the same on the member's own connection ──> member
    tool <── its answer, unchanged ── broker <── answer ── member

Source: AdminBrokerProcessor.callConsumer and Broker2Client, Java 4.9.8.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from sparrowmq.broker.clients import Member
from sparrowmq.broker.handlers.handler import Handler
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import NetworkError, RemoteError, RemoteProtocolError, RequestTimeout
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.admin_headers import InvokeGetConsumerStatus
from sparrowmq.protocol.requests.client_bodies import ConsumerStatus
from sparrowmq.protocol.requests.headers import (
    ConsumeMessageDirectly,
    GetConsumerRunning,
    GetConsumerStatus,
)
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)

# The time limit for a client's answer (Java: Broker2Client.callClient and getConsumeStatus).
CLIENT_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 5.0


class RelayHandler(Handler):
    @handles(GetConsumerRunning)
    async def running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Reply:
        """Return a consumer's own report of its state."""
        return await self._call(header.consumer_group, header.client_id, header)

    @handles(ConsumeMessageDirectly)
    async def consume(self, header: ConsumeMessageDirectly, body: bytes, peer: Peer) -> Reply:
        """Have a consumer handle one message now; return the consumer's own report of the result."""
        log.info(
            "%s has consumer %s of group %s handle message %s",
            peer.address,
            shown(header.client_id or ""),
            shown(header.consumer_group),
            shown(header.msg_id or ""),
        )
        request = msgspec.structs.replace(header, broker_name=self._topics.broker_name)
        record = self._record(header.msg_id or "")
        return await self._call(header.consumer_group, header.client_id or "", request, record)

    @handles(InvokeGetConsumerStatus)
    async def statuses(self, header: InvokeGetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        """Return the offsets of a group's members, or of one member, in a topic. Members that fail are left out."""
        members = self._clients.members(header.group)
        if not members:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        ids = {member.client_id for member in members if header.client_addr in (None, "", member.client_id)}
        wanted = [member for each in sorted(ids) if (member := self._clients.member(header.group, each))]
        request = GetConsumerStatus(header.topic, header.group)
        answers = [member.peer.call(request, timeout_s=STATUS_TIMEOUT_S) for member in wanted]
        table: dict[str, dict[MessageQueue, int]] = {}
        for member, answer in zip(wanted, answers, strict=True):
            try:
                told = ConsumerStatus.decode((await answer).body)
            except (NetworkError, RemoteError, RemoteProtocolError) as error:
                log.warning("consumer %s does not report its offsets: %s", shown(member.client_id), shown(error))
            else:
                table[member.client_id] = told.message_queue_table
        return Reply(body=ConsumerStatus(consumer_table=table))

    def _record(self, msg_id: str) -> bytes:
        try:
            offset = parse_offset_id(msg_id).physical_offset
        except RemoteProtocolError as error:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"msgId is no offset message id: {error}") from error
        record = self._store.record_at(offset)
        if record is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return bytes(record)

    async def _call(self, group: str, client_id: str, request: Request[Any], body: bytes = b"") -> Reply:
        member = self._clients.member(group, client_id)
        who = f"<{group}> <{client_id}>"
        if member is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"The Consumer {who} not online")
        return await _relay(member, who, request, body)


async def _relay(member: Member, consumer: str, request: Request[Any], body: bytes) -> Reply:
    try:
        response = await member.peer.call(request, body, timeout_s=CLIENT_TIMEOUT_S)
    except RequestTimeout as error:
        raise RemoteError(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {consumer} Timeout: {error}") from error
    except NetworkError as error:
        raise RemoteError(ResponseCode.SYSTEM_ERROR, f"invoke consumer {consumer} Exception: {error}") from error
    return Reply(response.code, None, response.remark, response.body)
