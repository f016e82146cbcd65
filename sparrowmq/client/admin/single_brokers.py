"""Single brokers: rates of traffic, lag of groups, and whether producers find a broker.

Source: the classes of org.apache.rocketmq.tools.command.broker and .namesrv, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from sparrowmq.client.admin.operations.broker_operations import (
    broker_statistic,
    change_broker_settings,
    progress_of_all_groups,
)
from sparrowmq.client.admin.operations.namesrv_operations import (
    delete_value,
    hide_from_producers,
    show_to_producers,
)
from sparrowmq.client.admin.operations.topic_operations import (
    system_topics_of_broker,
    topic_offsets,
    topic_table,
)
from sparrowmq.client.admin.servers import BrokerPlace, Servers
from sparrowmq.client.arguments import check_text
from sparrowmq.errors import (
    AlreadyThere,
    BrokerUnreachable,
    NetworkError,
    NoBroker,
    RemoteError,
)
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import LOST_BROKERS, group_of, is_system_topic
from sparrowmq.protocol.requests.bodies import BrokerStats, TopicConfig

TAKEN: Final = ("putTps",)
GIVEN: Final = ("getTransferredTps", "getTransferedTps")  # brokers before 4.9.5 spell it with one r


def per_second(figures: Mapping[str, str], *names: str) -> float | None:
    """Return the rate of about the last ten seconds, under the first of its names; None without a number."""
    words = next((figures[name].split() for name in names if figures.get(name)), [])
    try:
        return float(words[0])
    except (ValueError, IndexError):
        return None


async def traffic(servers: Servers, address: str, name: str, key: str) -> BrokerStats:
    """Return a figure over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

    A broker that has counted nothing answers with an error, which is 0 here.
    """
    try:
        return await broker_statistic(servers, address, name, key)
    except RemoteError as error:
        if "not exist" not in error.remark:
            raise
        return BrokerStats()


async def address_of(servers: Servers, broker: str) -> str:
    """Return the address of a broker: the master of a name; an address stays as it is.

    Raises:
        NoBroker: there is no broker of this name.
        BrokerUnreachable: it has no master now.
    """
    check_text("broker", broker)
    if ":" in broker:
        return broker
    master = (await place_of(servers, broker)).master
    if master is None:
        raise BrokerUnreachable(broker, "it has no master now")
    return master


async def place_of(servers: Servers, broker: str) -> BrokerPlace:
    """Return the addresses of the brokers of one name. Raises: NoBroker, there is no broker of this name."""
    check_text("broker", broker)
    places = {each.name: each for each in await servers.brokers()}
    if broker not in places:
        raise NoBroker(servers.namesrv, "broker", broker, list(places))
    return places[broker]


async def user_topics(servers: Servers, address: str) -> dict[str, TopicConfig]:
    """Return the topics of a broker to which clients send: without those of groups and RocketMQ's own."""
    own = set(await system_topics_of_broker(servers, address))
    return {
        name: topic
        for name, topic in (await topic_table(servers, address)).items()
        if not is_system_topic(name) and group_of(name) is None and name not in own
    }


async def behind(servers: Servers, address: str) -> dict[str, int]:
    """Return, by group, the messages at a broker that it has still to consume. Those that expired are left out."""
    stats = await progress_of_all_groups(servers, address)
    progress = {
        group: [row for each in topics for row in each.offset_table.items()]
        for groups in stats.consume_stats_list
        for group, topics in groups.items()
    }
    begins: dict[MessageQueue, int] = {}
    for topic in {queue.topic for rows in progress.values() for queue, row in rows if row.left(0)}:
        ranges = await topic_offsets(servers, address, topic)
        begins |= {queue: each.min_offset for queue, each in ranges.items()}
    return {group: sum(row.left(begins.get(queue, 0)) for queue, row in rows) for group, rows in progress.items()}


async def drain(servers: Servers, broker: str) -> int:
    await _keep_drained(servers, broker, "true")
    return await _at_name_servers(servers, broker, hide_from_producers)


async def undrain(servers: Servers, broker: str) -> int:
    await _keep_drained(servers, broker, "false")
    return await _at_name_servers(servers, broker, show_to_producers)


async def _keep_drained(servers: Servers, broker: str, drained: str) -> None:
    """Let the broker itself know, so that restarts do not forget it; Apache's ignores the setting.

    One that does not answer is only hidden at the name servers.
    """
    master = (await place_of(servers, broker)).master
    if master is not None:
        with suppress(NetworkError):
            await change_broker_settings(servers, master, {"drained": drained})


async def forget(servers: Servers, broker: str) -> None:
    check_text("broker", broker)
    known = {place.name for place in await servers.brokers()}
    if broker in known:
        raise AlreadyThere(f"broker {broker} is registered, so there is nothing to forget; stop it first")
    lost = await servers.lost()
    if broker not in lost:
        raise NoBroker(servers.namesrv, "lost broker", broker, [*lost, *known])
    await servers.change_namesrvs(
        f"forgetting broker {broker}", lambda address: delete_value(servers, address, LOST_BROKERS, broker)
    )


async def _at_name_servers(
    servers: Servers, broker: str, change: Callable[[Servers, str, str], Coroutine[Any, Any, int]]
) -> int:
    """Change all name servers, as each has routes of its own; returns the greatest count of topics."""
    counts = await servers.change_namesrvs(
        f"changing who finds broker {broker}", lambda address: change(servers, address, broker)
    )
    return max(counts.values())
