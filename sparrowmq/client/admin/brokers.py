"""What an operator asks single brokers, and changes in them: figures, settings, and whether producers find them.

Each function but `drain` and `undrain` takes the address of one server; `Servers.brokers` knows the addresses. Source:
the classes of org.apache.rocketmq.tools.command.broker and .namesrv, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparrowmq.client.admin.servers import Servers
from sparrowmq.errors import BrokerUnreachable, ChangeFailed, ConfigError, RemoteError, SparrowError
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    GetBrokerConfig,
    GetBrokerConsumeStats,
    GetBrokerRuntime,
    UpdateBrokerConfig,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import BrokerConsumeStats, BrokerStats, KVTable
from sparrowmq.protocol.requests.namesrv_headers import AddWritePermOfBroker, WipeWritePermOfBroker
from sparrowmq.protocol.wire.header import Request

TAKEN: Final = ("putTps",)
GIVEN: Final = ("getTransferredTps", "getTransferedTps")  # brokers before 4.9.5 spell it with one r


def per_second(figures: Mapping[str, str], *names: str) -> float | None:
    """The first span of a rate, about ten seconds, by the first of its names that is there; None without a number."""
    words = next((figures[name].split() for name in names if figures.get(name)), [])
    try:
        return float(words[0])
    except (ValueError, IndexError):
        return None


async def figures(servers: Servers, address: str) -> dict[str, str]:
    """What the broker counts, by Java's names: `putTps`, `msgPutTotalTodayNow` and so on."""
    return KVTable.decode((await servers.ask(address, GetBrokerRuntime())).body).table


async def traffic(servers: Servers, address: str, name: str, key: str) -> BrokerStats:
    """A figure of a broker over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

    One that a broker has counted nothing for is not there, which it tells as an error; here it is 0.
    """
    try:
        return BrokerStats.decode((await servers.ask(address, ViewBrokerStats(name, key))).body)
    except RemoteError as error:
        if "not exist" not in error.remark:
            raise
        return BrokerStats()


async def settings(servers: Servers, address: str) -> dict[str, str]:
    """The broker's settings, by key."""
    return dict(settings_text.parse((await servers.ask(address, GetBrokerConfig())).body))


async def change_settings(servers: Servers, address: str, changes: Mapping[str, str]) -> None:
    """Change settings while the broker runs. Raises: RemoteError, one of them cannot be changed so."""
    await servers.ask(address, UpdateBrokerConfig(), settings_text.render(changes))


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
    answer = await servers.ask(address, GetBrokerConsumeStats(is_order=False))
    return {
        group: sum(
            max(0, row.broker_offset - row.consumer_offset)
            for each in topics
            for row in each.offset_table.values()
        )
        for groups in BrokerConsumeStats.decode(answer.body).consume_stats_list
        for group, topics in groups.items()
    }


async def drain(servers: Servers, broker: str) -> int:
    """See `Admin.drain`."""
    return await _tell_all(servers, broker, WipeWritePermOfBroker(broker), "wipe_topic_count")


async def undrain(servers: Servers, broker: str) -> int:
    """See `Admin.undrain`."""
    return await _tell_all(servers, broker, AddWritePermOfBroker(broker), "add_topic_count")


async def _tell_all(servers: Servers, broker: str, request: Request[Any], count: str) -> int:
    """Tell all name servers, as each gives its own routes; returns the greatest count of topics."""
    if broker not in {each.name for each in await servers.brokers()}:
        raise ConfigError(f"there is no broker {broker!r} at name server {servers.namesrv}")
    counts: dict[str, int] = {}
    failures: dict[str, SparrowError] = {}
    for address in servers.network.name_servers.addresses:
        try:
            counts[address] = getattr((await servers.ask(address, request)).header, count)
        except SparrowError as error:
            failures[address] = error
    if failures:
        raise ChangeFailed(f"changing who finds broker {broker}", list(counts), failures)
    return max(counts.values())
