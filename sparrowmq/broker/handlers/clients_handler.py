"""Heartbeats of clients: HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38),
CHECK_CLIENT_CONFIG (46).

A group's first heartbeat creates the group and its retry topic. Its answer waits until the name servers know the retry
topic, because consumers ask for its route as soon as they start. Later heartbeats do not wait and cost no task.
Source: ClientManageProcessor, ConsumerManageProcessor and AdminBrokerProcessor, Java 4.9.8 and 5.3 (fingerprints).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from sparrowmq.broker.handlers.handler import Handler, SharedParts
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps, in_slices
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck, ConsumerBeat, Heartbeat
from sparrowmq.protocol.requests.headers import (
    CheckClientConfig,
    GetConsumerListByGroup,
    HeartBeat,
    HeartBeatReply,
    UnregisterClient,
)
from sparrowmq.protocol.selector import Selector
from sparrowmq.protocol.subscription import TAG
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer


class ClientHandler(Handler):
    """Track clients.

    Args:
        announced: returns when name servers know every topic of this broker.
        filters: checks SQL92 subscriptions.
        offers: the answer to heartbeats, except `is_sub_change`.
    """

    def __init__(
        self,
        shared: SharedParts,
        announced: Callable[[], Awaitable[None]],
        filters: Filters,
        offers: HeartBeatReply | None = None,
    ) -> None:
        super().__init__(shared)
        self._announced = announced
        self._filters = filters
        self._offers = offers or HeartBeatReply()

    @handles(HeartBeat)
    def heart_beat(self, header: HeartBeat, body: bytes, peer: Peer) -> HeartBeatReply | Awaitable[HeartBeatReply]:
        beat = Heartbeat.of_request(body)
        if not beat.client_id:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
        produced = [names.check_group(each.group_name) for each in beat.producer_data_set]
        consumed = [each.group_name for each in beat.consumer_data_set]
        self._clients.admit(peer, beat.client_id, consumed, produced)
        before = self._topics.version
        changed = [self._consumer(each, beat, peer) for each in beat.consumer_data_set]
        for group in produced:
            self._clients.produce(peer, beat.client_id, group)
        differences = [self._clients.difference(group, peer) for group in consumed]
        reply = msgspec.structs.replace(
            self._offers,
            is_sub_change=any(changed) or not beat.heartbeat_fingerprint,
            difference="\n".join(filter(None, differences)) or None,
        )
        return reply if self._topics.version is before else self._when_announced(reply)

    @handles(UnregisterClient)
    def unregister(self, header: UnregisterClient, body: bytes, peer: Peer) -> None:
        """Remove the client's groups on this connection."""
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
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return Reply(body=group.encoded_ids())

    @handles(CheckClientConfig)
    def check(self, header: CheckClientConfig, body: bytes, peer: Peer) -> Awaitable[None] | None:
        """Check that the broker can serve a subscription; consumers with SQL92 filters ask when they start."""
        subscription = ClientConfigCheck.of_request(body).subscription_data
        if subscription is None or subscription.kind == TAG:
            return None
        found = self._filters.selector(subscription.kind, subscription.expression)
        return None if isinstance(found, Selector) else in_slices(_checked(found))

    def _consumer(self, consumer: ConsumerBeat, beat: Heartbeat, peer: Peer) -> bool:
        """Record one group of a heartbeat; return whether the client should send all subscriptions next time."""
        group = self._groups.ensure(consumer.group_name)
        self._topics.ensure_retry(group.group_name, max(group.retry_queue_nums, 1))
        without, fingerprint = bool(beat.without_sub), beat.heartbeat_fingerprint
        incomplete = self._clients.must_send_all(group.group_name, fingerprint or 0, without)
        self._clients.consume(
            peer,
            beat.client_id,
            consumer,
            keep_subscriptions=without,
            notify=group.notify_consumer_ids_changed_enable,
        )
        self._clients.keep_fingerprint(group.group_name, fingerprint)
        return incomplete

    async def _when_announced(self, reply: HeartBeatReply) -> HeartBeatReply:
        await self._announced()
        return reply


def _checked(compiling: Steps[Selector]) -> Steps[None]:
    yield from compiling
