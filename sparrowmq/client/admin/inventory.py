"""What an operator finds at brokers: topics with their settings, who consumes and who sends.

Source: the classes of org.apache.rocketmq.tools.command.topic and .producer, and MQAdminImpl, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    GetAllProducers,
    GetAllTopicConfig,
    QueryTopicConsumeByWho,
)
from sparrowmq.protocol.requests.bodies import (
    ConsumeOutcome,
    GroupList,
    ProducerEntry,
    ProducerTable,
    TopicConfig,
    TopicConfigTable,
)
from sparrowmq.protocol.requests.headers import ConsumeMessageDirectly
from sparrowmq.protocol.requests.namesrv_headers import GetNamesrvConfig


async def topic_table(servers: Servers, address: str) -> dict[str, TopicConfig]:
    """All topics of a broker, by name."""
    found: dict[str, TopicConfig] = {}
    while True:
        # Brokers of 5.x give so many at a time and tell how many there are; those of 4.9 give all, and no number.
        answer = await servers.ask(address, GetAllTopicConfig(topic_seq=len(found) or None))
        page = TopicConfigTable.decode(answer.body).topic_config_table
        found |= page
        total = answer.header.total_topic_num
        if not page or total is None or len(found) >= total:
            return found


async def consumers_of(servers: Servers, topic: str) -> list[str]:
    """The groups that consume a topic, or have. Raises: NoRoute."""
    masters = await servers.masters_of(topic)

    async def at(_: str, address: str) -> list[str]:
        answer = await servers.ask(address, QueryTopicConsumeByWho(topic=topic))
        return GroupList.decode(answer.body).group_list

    found = await servers.all(masters, at)
    return sorted({group for groups in found.values() for group in groups})


async def producers(servers: Servers, address: str) -> dict[str, list[ProducerEntry]]:
    """Who is on line in each producer group, as one broker sees it."""
    return ProducerTable.decode((await servers.ask(address, GetAllProducers())).body).data


async def namesrv_settings(servers: Servers, address: str) -> dict[str, str]:
    """A name server's settings, by key."""
    return dict(
        settings_text.parse(
            (
                await servers.network.name_servers.ask(
                    address, GetNamesrvConfig(), timeout_s=servers.timeout_s
                )
            ).body
        )
    )


async def consume_directly(
    servers: Servers, message: ReceivedMessage, group: str, client_id: str
) -> ConsumeOutcome:
    """Have one member of a group handle a message now, whatever its offsets say; tells what came of it."""
    stored = message.stored
    request = ConsumeMessageDirectly(
        consumer_group=group,
        client_id=client_id,
        msg_id=stored.offset_id,
        broker_name=message.queue.broker_name,
    )
    return ConsumeOutcome.decode((await servers.ask(stored.store_host, request)).body)
