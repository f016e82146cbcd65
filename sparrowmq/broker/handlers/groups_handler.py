"""Groups, for tools: their settings (200, 201, 207, 225, 352), their consumers (203, 300) and producers (204, 328), and
resets of their offsets (222). Their progress is in offsets_handler.py.

Source: AdminBrokerProcessor and Broker2Client, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from sparrowmq.broker.clients import Member
from sparrowmq.broker.handlers.handler import Handler, SharedParts, system_error
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.slices import Steps, empty_in_steps, run_to_end
from sparrowmq.protocol import attributes, names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import (
    DeleteSubscriptionGroup,
    GetAllProducers,
    GetAllSubscriptionGroup,
    GetAllSubscriptionGroupReply,
    GetConsumerConnectionList,
    GetGroupConfig,
    GetProducerConnectionList,
    QuerySubscriptionByConsumer,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
    ResetOffset,
    UpdateAndCreateGroupList,
    UpdateAndCreateSubscriptionGroup,
)
from sparrowmq.protocol.requests.bodies import (
    GroupConfig,
    GroupConfigList,
    GroupList,
    GroupTopicSubscription,
    TopicList,
)
from sparrowmq.protocol.requests.client_bodies import (
    Connection,
    ConsumerConnections,
    ProducerConnections,
    ProducerEntry,
    ProducerTable,
)
from sparrowmq.protocol.requests.group_settings import CLASSIC
from sparrowmq.protocol.requests.headers import ResetConsumerClientOffset
from sparrowmq.protocol.requests.offset_bodies import ResetOffsets
from sparrowmq.remoting.handler import Reply, encode_in_steps, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)

_FIELDS_OF_5X: Final = (
    "consume_message_orderly",
    "consume_timeout_minute",
    "group_sys_flag",
    "group_retry_policy",
    "subscription_data_set",
)
TIMESTAMP_OF_END: Final = -1
MAX_RETRY_QUEUES: Final = 1024
_TIMEOUT_MINUTES: Final = 15  # as in Java
_MAX_LOGGED_QUEUES: Final = 64  # queues in a log line


class GroupHandler(Handler):
    def __init__(self, shared: SharedParts, pops: PopState) -> None:
        super().__init__(shared)
        self._pops = pops

    @handles(UpdateAndCreateSubscriptionGroup)
    async def update(self, header: UpdateAndCreateSubscriptionGroup, body: bytes, peer: Peer) -> None:
        await self._set_groups([self._checked_group(GroupConfig.of_request(body))], peer)

    @handles(UpdateAndCreateGroupList)
    async def update_all(self, header: UpdateAndCreateGroupList, body: bytes, peer: Peer) -> None:
        configs = GroupConfigList.of_request(body).group_config_list
        await self._set_groups([self._checked_group(group) for group in configs], peer)

    async def _set_groups(self, groups: Sequence[GroupConfig], peer: Peer) -> None:
        for group in groups:
            log.info("group %s is set by %s: %s", group.group_name, peer.address, shown(group))
            self._groups.put(group)
        subject = f"group {groups[0].group_name}" if len(groups) == 1 else f"each of {len(groups)} groups"
        await self._groups.file.confirm(f"{subject} is set")

    def _checked_group(self, group: GroupConfig) -> GroupConfig:
        names.check_group(group.group_name)
        if not 0 <= group.retry_queue_nums <= MAX_RETRY_QUEUES:
            raise system_error(
                f"retryQueueNums is {group.retry_queue_nums}; it must be 0 (no retries) to {MAX_RETRY_QUEUES}"
            )
        return _with_former_settings(group, self._groups.get(group.group_name))

    @handles(DeleteSubscriptionGroup)
    async def delete(self, header: DeleteSubscriptionGroup, body: bytes, peer: Peer) -> None:
        log.info("group %s is deleted by %s", shown(header.group_name), peer.address)
        self._groups.delete(header.group_name)
        await self._groups.file.confirm(f"group {header.group_name} is deleted")
        if header.remove_offset or header.clean_offset:
            await run_to_end(empty_in_steps(self._offsets.delete_group(header.group_name)))
            await self._offsets.file.confirm(f"what group {header.group_name} has consumed is deleted")

    @handles(GetAllSubscriptionGroup)
    def all(self, header: GetAllSubscriptionGroup, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, self._all_reply)

    def _all_reply(self) -> Steps[Reply]:
        table = self._groups.content()
        return (yield from encode_in_steps(table, GetAllSubscriptionGroupReply(len(table.subscription_group_table))))

    @handles(GetGroupConfig)
    def one(self, header: GetGroupConfig, body: bytes, peer: Peer) -> Reply:
        return Reply(body=with_defaults(self._groups.get(header.group) or self._groups.new(header.group)))

    @handles(QueryTopicConsumeByWho)
    def consumers(self, header: QueryTopicConsumeByWho, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, partial(self._consumers_reply, header.topic))

    def _consumers_reply(self, topic: str) -> Steps[Reply]:
        subscribed = yield from self._clients.groups_subscribed_to(topic)
        consumed = yield from self._offsets.groups_of(topic)
        return (yield from encode_in_steps(GroupList(list(dict.fromkeys([*subscribed, *consumed])))))

    @handles(QueryTopicsByConsumer)
    def topics(self, header: QueryTopicsByConsumer, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, partial(self._topics_reply, header.group))

    def _topics_reply(self, group: str) -> Steps[Reply]:
        return (yield from encode_in_steps(TopicList(self._offsets.topics_of(group))))

    @handles(QuerySubscriptionByConsumer)
    def subscription(self, header: QuerySubscriptionByConsumer, body: bytes, peer: Peer) -> Reply:
        subscription_data = self._clients.subscription(header.group, header.topic)
        return Reply(body=GroupTopicSubscription(header.group, header.topic, subscription_data))

    @handles(GetConsumerConnectionList)
    def connections(self, header: GetConsumerConnectionList, body: bytes, peer: Peer) -> Reply:
        group = self._clients.group_view(header.consumer_group)
        if group is None:
            raise RemoteError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{header.consumer_group}] not online"
            )
        members = list(group.members.values())
        reply = ConsumerConnections(
            [
                msgspec.structs.replace(connection, wanted=member.filters or None)
                for connection, member in zip(_connections(members), members, strict=True)
            ],
            dict(group.subscriptions),
            # Java's tools of 4.x do not know CONSUME_POP, and Apache's proxy does not say it.
            group.consume_type.replace("POP", "PASSIVELY"),
            group.message_model,
            group.consume_from_where,
        )
        return Reply(body=reply)

    @handles(GetProducerConnectionList)
    def producers(self, header: GetProducerConnectionList, body: bytes, peer: Peer) -> Reply:
        members = self._clients.producers(header.producer_group)
        if not members:
            raise system_error(f"the producer group[{header.producer_group}] not exist")
        return Reply(body=ProducerConnections(_connections(members)))

    @handles(GetAllProducers)
    def all_producers(self, header: GetAllProducers, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, self._producers_reply)

    def _producers_reply(self) -> Steps[Reply]:
        table: dict[str, list[ProducerEntry]] = {}
        for group, members in list(self._clients.producer_groups()):
            table[group] = [self._producer_entry(member) for member in members]
            yield
        return (yield from encode_in_steps(ProducerTable(table)))

    @handles(ResetOffset)
    async def reset(self, header: ResetOffset, body: bytes, peer: Peer) -> Reply:
        """Tell a group's members to consume from a given time on; they commit the new offsets themselves.

        Members that pop have no offsets: their queues begin again here, and the answer waits until that is safe.
        """
        topic = self._topics.get(header.topic)
        if topic is None:
            raise system_error(f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}")
        members = self._clients.members(header.group)
        if not members:
            self._check_group_exists(header.group, header.topic)
            raise RemoteError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        queue_ids = range(topic.write_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        answer, is_popped = await run_to_end(self._reset_queues(header, queue_ids, peer))
        if is_popped:
            await self._offsets.file.confirm(f"group {header.group} is reset")
        return answer

    def _check_group_exists(self, group: str, topic: str) -> None:
        """Check that the group exists or has consumed the topic: otherwise tools commit offsets for a mistyped name."""
        if self._groups.get(group) is None and not self._offsets.of_group(group, topic):
            raise system_error(f"THe consumer group <{group}> not exist")

    def _reset_queues(self, header: ResetOffset, queue_ids: Iterable[int], peer: Peer) -> Steps[tuple[Reply, bool]]:
        offsets: dict[MessageQueue, int] = {}
        is_popped = False
        for queue_id in queue_ids:
            queue = MessageQueue(header.topic, self._topics.broker_name, queue_id)
            offsets[queue] = offset = self._reset_offset(header, queue_id)
            is_popped |= self._pops.reset(header.group, header.topic, queue_id, offset)
            yield
        table = ResetOffsets(offsets)
        # Java always sends isForce=false here, even if the tool asked for force. Otherwise C++ clients exit silently.
        push = ResetConsumerClientOffset(header.topic, header.group, header.timestamp, is_force=False)
        body = b"".join((yield from table.encoding()))
        yield
        body_for_c = b""
        for member in self._clients.members(header.group):
            # Unlike Java, which sends every member the format of the tool's language.
            if member.language == "CPP":
                body_for_c = body_for_c or b"".join((yield from table.encoding_for_c()))
                member.peer.tell(push, body_for_c)
            else:
                member.peer.tell(push, body)
            yield
        log.info(
            "group %s is reset in %s by %s: %s",
            shown(header.group),
            shown(header.topic),
            peer.address,
            shown(table) if len(offsets) <= _MAX_LOGGED_QUEUES else f"{len(offsets)} queues",
        )
        yield from empty_in_steps(offsets)
        return Reply(body=body), is_popped

    def _producer_entry(self, member: Member) -> ProducerEntry:
        silent_ms = round((self._clock.monotonic() - member.last_seen) * 1000)
        return ProducerEntry(
            member.client_id,
            f"/{member.peer.address}",  # the format of addresses in Java
            member.language,
            member.version,
            self._clock.now_ms() - silent_ms,
        )

    def _reset_offset(self, header: ResetOffset, queue_id: int) -> int:
        """Return the offset for one queue: that of the time, or the current one if it is lower and force is off.

        Unlike Java, which refuses the whole reset if one queue has no committed offset: such a queue goes to the time.
        """
        queue = self._store.queues.get(header.topic, queue_id)
        if queue is None:
            return 0
        if header.offset is not None and header.queue_id >= 0:
            target = min(max(header.offset, queue.min_offset), queue.max_offset)
        elif header.timestamp == TIMESTAMP_OF_END:
            target = queue.max_offset
        else:
            target = self._store.offset_by_time(header.topic, queue_id, header.timestamp)
        current = self._offsets.query(header.group, header.topic, queue_id)
        return target if current is None or header.is_force else min(target, current)


def with_defaults(group: GroupConfig) -> GroupConfig:
    timeout_minutes = group.consume_timeout_minute
    return msgspec.structs.replace(
        group,
        consume_message_orderly=bool(group.consume_message_orderly),
        consume_timeout_minute=_TIMEOUT_MINUTES if timeout_minutes is None else timeout_minutes,
        group_sys_flag=group.group_sys_flag or 0,
        group_retry_policy=group.group_retry_policy or CLASSIC,
        attributes=group.attributes or {},
    )


def _with_former_settings(requested: GroupConfig, former: GroupConfig | None) -> GroupConfig:
    """Return the settings after a request, with those of 5.x that it lacks as they were. Raises: RemoteError.

    Unlike Java, where a change by a tool of 4.x resets them.
    """
    current = former.attributes if former is not None else None
    try:
        changes = attributes.of_signed(requested.attributes or {})
        group_attributes = attributes.changed(attributes.GROUP_ATTRIBUTES, current, changes, is_new=former is None)
        (requested.group_retry_policy or CLASSIC).check()
    except ConfigError as error:
        raise system_error(str(error)) from None
    absent = [name for name in _FIELDS_OF_5X if former is not None and getattr(requested, name) is None]
    return msgspec.structs.replace(
        requested, attributes=group_attributes, **{name: getattr(former, name) for name in absent}
    )


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [Connection(member.client_id, member.peer.address, member.language, member.version) for member in members]
