"""Single brokers: rates of traffic, lag of groups, and whether producers find a broker.

Source: the classes of org.apache.rocketmq.tools.command.broker and .namesrv, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from sparrowmq.client.admin.operations.broker_operations import broker_statistic, progress_of_all_groups
from sparrowmq.client.admin.operations.namesrv_operations import hide_from_producers, show_to_producers
from sparrowmq.client.admin.servers import Servers
from sparrowmq.errors import BrokerUnreachable, ChangeFailed, ConfigError, RemoteError
from sparrowmq.protocol.requests.bodies import BrokerStats

TAKEN: Final = ("putTps",)
GIVEN: Final = ("getTransferredTps", "getTransferedTps")  # brokers before 4.9.5 spell it with one r


def per_second(figures: Mapping[str, str], *names: str) -> float | None:
    """The first span of a rate, about ten seconds, by the first of its names that is there; None without a number."""
    words = next((figures[name].split() for name in names if figures.get(name)), [])
    try:
        return float(words[0])
    except (ValueError, IndexError):
        return None


async def traffic(servers: Servers, address: str, name: str, key: str) -> BrokerStats:
    """A figure of a broker over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

    One that a broker has counted nothing for is not there, which it tells as an error; here it is 0.
    """
    try:
        return await broker_statistic(servers, address, name, key)
    except RemoteError as error:
        if "not exist" not in error.remark:
            raise
        return BrokerStats()


async def address_of(servers: Servers, broker: str) -> str:
    """Where a broker is: the master of a name; an address is its own.

    Raises:
        ConfigError: there is no broker of this name.
        BrokerUnreachable: it has no master now.
    """
    if ":" in broker:
        return broker
    places = {each.name: each for each in await servers.brokers()}
    if broker not in places:
        there = ", ".join(places) or "none"
        raise ConfigError(f"there is no broker {broker!r} at name server {servers.namesrv}; there is {there}")
    master = places[broker].master
    if master is None:
        raise BrokerUnreachable(broker, "it has no master now")
    return master


async def behind(servers: Servers, address: str) -> dict[str, int]:
    """How many of a broker's messages each group that has consumed there has still to handle."""
    stats = await progress_of_all_groups(servers, address)
    return {
        group: sum(
            max(0, row.broker_offset - row.consumer_offset)
            for each in topics
            for row in each.offset_table.values()
        )
        for groups in stats.consume_stats_list
        for group, topics in groups.items()
    }


async def drain(servers: Servers, broker: str) -> int:
    """See `Admin.drain`."""
    return await _at_name_servers(servers, broker, hide_from_producers)


async def undrain(servers: Servers, broker: str) -> int:
    """See `Admin.undrain`."""
    return await _at_name_servers(servers, broker, show_to_producers)


async def _at_name_servers(
    servers: Servers, broker: str, change: Callable[[Servers, str, str], Coroutine[Any, Any, int]]
) -> int:
    """Change all name servers, as each has routes of its own; returns the greatest count of topics."""
    if broker not in {each.name for each in await servers.brokers()}:
        raise ConfigError(f"there is no broker {broker!r} at name server {servers.namesrv}")
    counts, failures = await servers.each_namesrv(lambda address: change(servers, address, broker))
    if failures:
        raise ChangeFailed(f"changing who finds broker {broker}", list(counts), failures)
    return max(counts.values())
