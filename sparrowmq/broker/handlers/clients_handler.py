"""Heartbeats of clients, and questions of tools that the broker passes on to them.

    HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), CHECK_CLIENT_CONFIG (46)
    GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309)
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offsets of a group's members, each of which is asked with 221

A group's first heartbeat creates the group and its retry topic. Its answer waits until the name servers know the retry
topic, because consumers ask for its route as soon as they start. Later heartbeats do not wait and cost no task.
Source: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor and Broker2Client, Java 4.9.8 and 5.3
(fingerprints).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from sparrowmq.broker.handlers.handler import Handler, SharedParts, physical_offset_of, system_error
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import NetworkError, RemoteError, RemoteProtocolError, RequestTimeout
from sparrowmq.loop.slices import Steps, in_slices
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import InvokeGetConsumerStatus
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck, ConsumerBeat, ConsumerStatus, Heartbeat
from sparrowmq.protocol.requests.headers import (
    CheckClientConfig,
    ConsumeMessageDirectly,
    GetConsumerListByGroup,
    GetConsumerRunning,
    GetConsumerStatus,
    HeartBeat,
    HeartBeatReply,
    UnregisterClient,
)
from sparrowmq.protocol.selector import Selector
from sparrowmq.protocol.subscription import TAG
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)
# The time limit for a client's answer (Java: Broker2Client.callClient and getConsumeStatus).
CLIENT_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 5.0


class ClientHandler(Handler):
    """Track clients. `announced` returns when name servers know every topic; `answer_template` answers heartbeats."""

    def __init__(
        self,
        shared: SharedParts,
        announced: Callable[[], Awaitable[None]],
        filters: Filters,
        answer_template: HeartBeatReply | None = None,
    ) -> None:
        super().__init__(shared)
        self._announced = announced
        self._filters = filters
        self._answer_template = answer_template or HeartBeatReply()

    @handles(HeartBeat)
    def heart_beat(self, header: HeartBeat, body: bytes, peer: Peer) -> HeartBeatReply | Awaitable[HeartBeatReply]:
        beat = Heartbeat.of_request(body)
        if not beat.client_id:
            raise system_error("the heartbeat has no clientID")
        produced = [names.check_group(group_beat.group_name) for group_beat in beat.producer_data_set]
        consumed = [group_beat.group_name for group_beat in beat.consumer_data_set]
        self._clients.check_groups(peer, beat.client_id, consumed, produced)
        version_before = self._topics.version
        changed = [self._consumer(group_beat, beat, peer) for group_beat in beat.consumer_data_set]
        for group in produced:
            self._clients.produce(peer, beat.client_id, group)
        differences = [self._clients.difference(group, peer) for group in consumed]
        reply = msgspec.structs.replace(
            self._answer_template,
            is_sub_change=any(changed) or not beat.heartbeat_fingerprint,
            difference="\n".join(filter(None, differences)) or None,
        )
        return reply if self._topics.version is version_before else self._when_announced(reply)

    @handles(UnregisterClient)
    def unregister(self, header: UnregisterClient, body: bytes, peer: Peer) -> None:
        group = self._groups.get(header.consumer_group) if header.consumer_group else None
        self._clients.leave(
            peer,
            header.consumer_group,
            header.producer_group,
            notify=group is None or group.notify_consumer_ids_changed_enable,
        )

    @handles(GetConsumerListByGroup)
    def list_members(self, header: GetConsumerListByGroup, body: bytes, peer: Peer) -> Reply:
        """Return the client ids of a group. An empty group is an error: clients then keep the queues they have."""
        group = self._clients.group_view(header.consumer_group)
        if group is None:
            raise system_error(f"no consumer for this group, {header.consumer_group}")
        return Reply(body=group.encoded_ids())

    @handles(CheckClientConfig)
    def check(self, header: CheckClientConfig, body: bytes, peer: Peer) -> Awaitable[None] | None:
        """Check that the broker can serve a subscription; consumers with SQL92 filters ask when they start."""
        subscription = ClientConfigCheck.of_request(body).subscription_data
        if subscription is None or subscription.kind == TAG:
            return None
        selector = self._filters.selector(subscription.kind, subscription.expression)
        return None if isinstance(selector, Selector) else in_slices(_compile(selector))

    def _consumer(self, consumer: ConsumerBeat, beat: Heartbeat, peer: Peer) -> bool:
        """Record one group of a heartbeat; return whether the client should send all subscriptions next time."""
        group = self._groups.ensure(consumer.group_name)
        self._topics.ensure_retry(group.group_name, max(group.retry_queue_nums, 1))
        without, fingerprint = bool(beat.without_sub), beat.heartbeat_fingerprint
        incomplete = self._clients.must_send_all(group.group_name, fingerprint or 0, without)
        self._clients.consume(
            peer, beat.client_id, consumer, keep_subscriptions=without, notify=group.notify_consumer_ids_changed_enable
        )
        self._clients.keep_fingerprint(group.group_name, fingerprint)
        return incomplete

    async def _when_announced(self, reply: HeartBeatReply) -> HeartBeatReply:
        await self._announced()
        return reply


def _compile(compiling: Steps[Selector]) -> Steps[None]:
    yield from compiling


class RelayHandler(Handler):
    """Pass questions of tools on to consumers, on their own connections, and the answers back unchanged."""

    @handles(GetConsumerRunning)
    async def running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Reply:
        return await self._call(header.consumer_group, header.client_id, header)

    @handles(ConsumeMessageDirectly)
    async def consume(self, header: ConsumeMessageDirectly, body: bytes, peer: Peer) -> Reply:
        log.info(
            "%s has consumer %s of group %s handle message %s",
            peer.address,
            shown(header.client_id or ""),
            shown(header.consumer_group),
            shown(header.msg_id or ""),
        )
        request = msgspec.structs.replace(header, broker_name=self._topics.broker_name)
        record = bytes(self._record_at(physical_offset_of(header.msg_id or "")))
        return await self._call(header.consumer_group, header.client_id or "", request, record)

    @handles(InvokeGetConsumerStatus)
    async def statuses(self, header: InvokeGetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        """Return the offsets of a group's members, or of one member, in a topic. Members that fail are left out."""
        members = self._clients.members(header.group)
        if not members:
            raise system_error(f"No Any Consumer online in the consumer group: [{header.group}]")
        ids = {member.client_id for member in members if header.client_addr in (None, "", member.client_id)}
        selected = [member for client_id in sorted(ids) if (member := self._clients.member(header.group, client_id))]
        request = GetConsumerStatus(header.topic, header.group)
        answers = [member.peer.call(request, timeout_s=STATUS_TIMEOUT_S) for member in selected]
        table: dict[str, dict[MessageQueue, int]] = {}
        for member, answer in zip(selected, answers, strict=True):
            try:
                status = ConsumerStatus.decode((await answer).body)
            except (NetworkError, RemoteError, RemoteProtocolError) as error:
                log.warning("consumer %s does not report its offsets: %s", shown(member.client_id), shown(error))
            else:
                table[member.client_id] = status.message_queue_table
        return Reply(body=ConsumerStatus(consumer_table=table))

    async def _call(self, group: str, client_id: str, request: Request[Any], body: bytes = b"") -> Reply:
        member = self._clients.member(group, client_id)
        consumer = f"<{group}> <{client_id}>"
        if member is None:
            raise system_error(f"The Consumer {consumer} not online")
        try:
            response = await member.peer.call(request, body, timeout_s=CLIENT_TIMEOUT_S)
        except RequestTimeout as error:
            raise RemoteError(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {consumer} Timeout: {error}") from error
        except NetworkError as error:
            raise system_error(f"invoke consumer {consumer} Exception: {error}") from error
        return Reply(response.code, None, response.remark, response.body)
