"""Requests to one broker about topics. Source: the classes of org.apache.rocketmq.tools.command.topic, Java 4.9.8."""

from __future__ import annotations

from collections.abc import Mapping

from sparrowmq.client.admin.operations.asker import Asker
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.attributes import text_of
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    GetTopicStats,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import GroupList, TopicConfig, TopicConfigTable, TopicList
from sparrowmq.protocol.requests.offset_bodies import TopicOffset, TopicStats


async def topic_table(asker: Asker, address: str) -> dict[str, TopicConfig]:
    """Return all topics of a broker. Raises: RemoteProtocolError, it gives some again and again, and never the rest."""
    found: dict[str, TopicConfig] = {}
    while True:
        # Brokers of 5.x give some at a time with the total; those of 4.9 give all, without a total.
        answer = await asker.ask(address, GetAllTopicConfig(topic_seq=len(found) or None))
        page = TopicConfigTable.decode(answer.body).topic_config_table
        total = answer.header.total_topic_num
        if total is not None and page and page.keys() <= found.keys():
            raise RemoteProtocolError(f"the broker says that it has {total} topics, and gives {len(found)} of them")
        found |= page
        if not page or total is None or len(found) >= total:
            return found


async def topic_config(asker: Asker, address: str, topic: str) -> TopicConfig:
    """Return one topic. Brokers of 4.9 do not know the request. Raises: RemoteError."""
    return TopicConfig.decode((await asker.ask(address, GetTopicConfig(topic))).body)


async def put_topic(
    asker: Asker,
    address: str,
    topic: TopicConfig,
    attributes: Mapping[str, str] | None = None,
    *,
    modification: str | None = None,
) -> None:
    """Create a topic, or replace its settings.

    Args:
        attributes: those to set. The others stay as they are, those of `topic` too: brokers refuse to set some again.
        modification: the changes in the protocol's form instead, as `+a=b,-c`.
    """
    request = UpdateAndCreateTopic(
        topic=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        default_topic=DEFAULT_TOPIC,
        topic_filter_type=topic.topic_filter_type,
        topic_sys_flag=topic.topic_sys_flag,
        order=topic.order,
        attributes=modification or text_of(attributes),
    )
    await asker.ask(address, request)


async def delete_topic(asker: Asker, address: str, topic: str) -> None:
    """Delete a topic with its messages; an absent topic is no error."""
    await asker.ask(address, DeleteTopic(topic=topic))


async def topic_offsets(asker: Asker, address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
    return TopicStats.decode((await asker.ask(address, GetTopicStats(topic=topic))).body).offset_table


async def groups_of_topic(asker: Asker, address: str, topic: str) -> list[str]:
    """Return the groups that consume a topic, or have."""
    return GroupList.decode((await asker.ask(address, QueryTopicConsumeByWho(topic=topic))).body).group_list


async def system_topics_of_broker(asker: Asker, address: str) -> list[str]:
    return TopicList.decode((await asker.ask(address, GetSystemTopicListFromBroker())).body).topic_list
