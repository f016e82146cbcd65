"""Topics, for tools: UPDATE_AND_CREATE_TOPIC (17; many: 18), DELETE_TOPIC_IN_BROKER (215), GET_ALL_TOPIC_CONFIG (21),
GET_TOPIC_CONFIG (351), GET_TOPIC_STATS_INFO (202), GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305).

Source: AdminBrokerProcessor, Java 4.9.8; attributes and 351, Java 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from sparrowmq.broker.handlers.handler import Handler, SharedParts, system_error
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.slices import Steps, empty_in_steps, run_to_end
from sparrowmq.protocol import attributes, names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetAllTopicConfig,
    GetAllTopicConfigReply,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    GetTopicStats,
    UpdateAndCreateTopic,
    UpdateAndCreateTopicList,
)
from sparrowmq.protocol.requests.bodies import MOST_QUEUES, TopicConfig, TopicConfigList, TopicList
from sparrowmq.protocol.requests.offset_bodies import TopicOffset, TopicStats
from sparrowmq.protocol.wire import json
from sparrowmq.remoting.handler import Reply, encode_in_steps, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)

# INHERIT, WRITE and READ; clients know no bits from 8 on.
MAX_PERM: Final = 7
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class TopicHandler(Handler):
    def __init__(self, shared: SharedParts, announced: Callable[[], Awaitable[None]]) -> None:
        super().__init__(shared)
        self._announced = announced

    @handles(UpdateAndCreateTopic)
    async def update(self, header: UpdateAndCreateTopic, body: bytes, peer: Peer) -> None:
        topic = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type or FILTER_TYPES[0],
            order=header.order,
            topic_sys_flag=header.topic_sys_flag or 0,
        )
        await self._set_topics([self._checked_topic(topic, header.attributes)], peer)

    @handles(UpdateAndCreateTopicList)
    async def update_all(self, header: UpdateAndCreateTopicList, body: bytes, peer: Peer) -> None:
        configs = TopicConfigList.of_request(body).topic_config_list
        if self._quotas.is_on:
            for _ in configs:
                self._quotas.create_topic(peer)
        await self._set_topics([self._checked_topic(topic, topic.attributes) for topic in configs], peer)

    async def _set_topics(self, topics: Sequence[TopicConfig], peer: Peer) -> None:
        for topic in topics:
            log.info("topic %s is set by %s: %s", topic.topic_name, peer.address, shown(topic))
            self._topics.put(topic)
        subject = f"topic {topics[0].topic_name}" if len(topics) == 1 else f"each of {len(topics)} topics"
        await self._topics.file.confirm(f"{subject} is set")
        await self._announced()

    def _checked_topic(self, topic: TopicConfig, modification: str | Mapping[str, str] | None) -> TopicConfig:
        self._check_not_system(names.check_topic(topic.topic_name))
        _check_queues("readQueueNums", topic.read_queue_nums)
        _check_queues("writeQueueNums", topic.write_queue_nums)
        _check_perm(topic.perm)
        if topic.topic_filter_type not in FILTER_TYPES:
            raise system_error(
                f"topicFilterType = [{shown(topic.topic_filter_type)}] value invalid; it is {' or '.join(FILTER_TYPES)}"
            )
        attribute_table = _changed_attributes(self._topics.get(topic.topic_name), modification)
        return msgspec.structs.replace(topic, attributes=attribute_table)

    @handles(GetTopicConfig)
    def one(self, header: GetTopicConfig, body: bytes, peer: Peer) -> Reply:
        """Return the settings of one topic. `attributes` is always there, as some clients expect."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RemoteError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {shown(header.topic)}")
        return Reply(body=msgspec.structs.replace(topic, attributes=topic.attributes or {}))

    @handles(DeleteTopic)
    async def delete(self, header: DeleteTopic, body: bytes, peer: Peer) -> None:
        """Delete a topic, its queues and its groups' offsets, if it exists, in one step. The files follow in slices."""
        self._check_not_system(names.check_topic(header.topic))
        log.info("topic %s is deleted by %s", header.topic, peer.address)
        self._topics.delete(header.topic)
        files = self._store.deletion.begin(header.topic)
        # Unlike Java 4.9, and like 5.x: old offsets could be past the end of a new topic with the same name.
        offsets = self._offsets.delete_topic(header.topic)
        await run_to_end(files)
        await run_to_end(empty_in_steps(offsets))
        await self._topics.file.confirm(f"topic {header.topic} is deleted")
        await self._offsets.file.confirm(f"topic {header.topic} is deleted")

    @handles(GetTopicStats)
    def stats(self, header: GetTopicStats, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        topic = self._known_topic(header.topic)
        queue_count = max(topic.write_queue_nums, topic.read_queue_nums)
        return self._large.make(peer, partial(self._stats_reply, header.topic, queue_count))

    def _stats_reply(self, topic: str, queue_count: int) -> Steps[Reply]:
        broker = self._topics.broker_name
        rows = (
            (MessageQueue(topic, broker, queue_id), self._queue_offsets(topic, queue_id))
            for queue_id in range(queue_count)
        )
        return (yield from encode_in_steps(TopicStats(cast(Any, json.Pairs(rows)))))

    @handles(GetAllTopicConfig)
    def all(self, header: GetAllTopicConfig, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, self._all_reply)

    def _all_reply(self) -> Steps[Reply]:
        table = self._topics.content()
        return (yield from encode_in_steps(table, GetAllTopicConfigReply(len(table.topic_config_table))))

    @handles(GetSystemTopicListFromBroker)
    def system(self, header: GetSystemTopicListFromBroker, body: bytes, peer: Peer) -> Reply:
        return Reply(body=TopicList(self._topics.system_names()))

    def _queue_offsets(self, topic: str, queue_id: int) -> TopicOffset:
        queue = self._store.queues.get(topic, queue_id)
        if queue is None:
            return TopicOffset(0, 0, 0)
        last_ms = self._store.store_time(topic, queue_id, queue.max_offset - 1)
        return TopicOffset(queue.min_offset, queue.max_offset, last_ms or 0)

    def _check_not_system(self, name: str) -> None:
        if self._topics.is_system(name):
            raise system_error(f"The topic[{name}] is conflict with system topic.")


def _changed_attributes(
    former: TopicConfig | None, modification: str | Mapping[str, str] | None
) -> dict[str, str] | None:
    """Return the attributes after a request. A request without any, as of 4.x tools, leaves them as they are."""
    current = former.attributes if former is not None else None
    try:
        changes = (
            attributes.parse(modification)
            if isinstance(modification, str)
            else attributes.of_signed(modification or {})
        )
        return attributes.changed(attributes.TOPIC_ATTRIBUTES, current, changes, is_new=former is None)
    except ConfigError as error:
        raise system_error(str(error)) from None


def _check_queues(field: str, count: int) -> None:
    if not 1 <= count <= MOST_QUEUES:
        raise system_error(
            f"{field} is {count}; a topic has 1 to {MOST_QUEUES} queues (to stop writes, set its perm to 4)"
        )


def _check_perm(perm: int) -> None:
    # Unlike Java 4.9, which accepts any number, and then refuses every request to the topic.
    if not 0 <= perm <= MAX_PERM:
        raise system_error(f"invalid perm {perm}; 2 is write, 4 is read, 6 is both, 0 is neither")
