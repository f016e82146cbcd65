"""The activity of a cluster: the rates of its brokers and topics, the lag of its groups, and the clients online.

A look costs a broker three requests, which include all groups, and one more for each of its topics. A few dozen of
these are in flight at a time, so that a look at a thousand topics delays no client.

A client announces itself by heartbeats. Each client of SparrowMQ is a producer in CLIENT_INNER_PRODUCER, also one that
only sends; a Java program that only reads has no producer group. Admins are not listed: they send no heartbeats.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Literal

from sparrowmq.admin import groups, topics
from sparrowmq.admin.brokers import Standing, standings, traffic
from sparrowmq.admin.catalogue import group_table, producers, progress_of_all_groups, topic_table
from sparrowmq.admin.groups import GroupLag
from sparrowmq.admin.servers import Masters, Servers
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.names import is_system_group
from sparrowmq.protocol.requests.offset_bodies import BrokerConsumeStats

_REQUESTS_AT_ONCE: Final = 32
Role = Literal["consumer", "producer"]


@dataclass(frozen=True, slots=True)
class TopicRate:
    """The messages that producers sent to a topic, at all brokers that answered. `per_second` is the mean of about the
    last minute. `within_a_day` counts those of the last 24 hours, at most since each broker's start.
    """

    topic: str
    per_second: float
    within_a_day: int


@dataclass(frozen=True, slots=True)
class Activity:
    """One look at a cluster: the busiest topics first, the groups with the greatest lag first, and missing brokers."""

    brokers: tuple[Standing, ...]
    topics: tuple[TopicRate, ...]
    groups: tuple[GroupLag, ...]
    missing: Mapping[str, str]


async def activity(servers: Servers, cluster: str | None) -> Activity:
    """Return what a cluster does now, or what all do. Raises: ConfigError, no such cluster; NetworkError."""
    found_standings = await standings(servers, cluster)
    masters: Masters = {
        each.broker: each.address for each in found_standings if each.broker_id == MASTER and not each.is_silent
    }
    rates, rate_failures = await _topic_rates(servers, cluster, masters)
    progress, failures = await servers.ask_masters(masters, lambda _, at: progress_of_all_groups(servers, at))
    missing = {
        each.broker: each.problem or "" for each in found_standings if each.is_silent and each.broker_id == MASTER
    }
    missing |= {broker: str(error) for broker, error in (rate_failures | failures).items()}
    return Activity(
        tuple(found_standings),
        tuple(sorted(rates, key=lambda each: (-each.per_second, -each.within_a_day, each.topic))),
        tuple(sorted(_lags(servers, progress.values()), key=lambda each: (-each.lag, -each.per_second, each.group))),
        missing,
    )


async def _topic_rates(
    servers: Servers, cluster: str | None, masters: Masters
) -> tuple[list[TopicRate], dict[str, SparrowError]]:
    """Return the rate of each topic, and the errors of brokers that failed. RocketMQ's own topics are left out."""
    tables, failures = await servers.ask_masters(masters, lambda _, address: topic_table(servers, address))
    user_topics = set(await topics.names(servers, cluster, hidden=False))
    limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)
    rates: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)

    async def add(broker: str, topic: str) -> None:
        address = masters[broker]
        assert address is not None, "it has just answered"
        async with limit:
            if broker in failures:
                return
            try:
                statistic = await traffic(servers, address, "TOPIC_PUT_NUMS", topic)
            except SparrowError as error:
                failures[broker] = error
                return
        plain_name = servers.network.plain_name(topic)
        rates[plain_name] += statistic.stats_minute.tps
        counts[plain_name] += statistic.sum_of_day

    places = [(broker, name) for broker, table in tables.items() for name in table]
    await asyncio.gather(
        *(
            add(*broker_and_topic)
            for broker_and_topic in places
            if servers.network.plain_name(broker_and_topic[1]) in user_topics
        )
    )
    return [TopicRate(name, rates[name], counts[name]) for name in rates], failures


def _lags(servers: Servers, brokers: Iterable[BrokerConsumeStats]) -> list[GroupLag]:
    lag_by_group = groups.lags_in(servers.network, brokers)
    return [
        group_lag
        for name, group_lag in lag_by_group.items()
        if not is_system_group(name) and servers.network.full_name(name) == name
    ]


@dataclass(frozen=True, slots=True)
class OnlineClient:
    """A client in one group, with the language and protocol version that it says, and its address at each broker."""

    role: Role
    group: str
    client_id: str
    language: str
    version: int
    addresses: Mapping[str, str]


# A client at one broker: its role, group, id, language, version and address.
_Row = tuple[Role, str, str, str, int, str]


async def online_clients(servers: Servers, cluster: str | None) -> tuple[list[OnlineClient], dict[str, SparrowError]]:
    """Return the clients by group and id, and the errors of missing brokers. Raises: ConfigError, no such cluster."""
    masters = {place.name: place.master for place in await servers.brokers(cluster)}
    rows, failures = await servers.ask_masters(masters, lambda _, address: _online_at(servers, address))
    clients: dict[tuple[str, str, Role], OnlineClient] = {}
    for broker, rows_of_broker in rows.items():
        for role, group, client_id, language, version, address in rows_of_broker:
            client = OnlineClient(role, group, client_id, language, version, {})
            known_client = clients.setdefault((group, client_id, role), client)
            clients[group, client_id, role] = replace(
                known_client, addresses={**known_client.addresses, broker: address}
            )
    return [clients[key] for key in sorted(clients)], failures


async def _online_at(servers: Servers, address: str) -> list[_Row]:
    limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def consumers(group: str) -> list[_Row]:
        async with limit:
            members = await groups.members_at(servers, group, address)
        name = servers.network.plain_name(group)
        return [
            ("consumer", name, member.client_id, member.language, member.version, member.client_addr)
            for member in members
        ]

    network = servers.network
    names = network.names_inside(name for name in await group_table(servers, address) if not is_system_group(name))
    consumer_rows = await asyncio.gather(*(consumers(network.full_name(name)) for name in names))
    table = await producers(servers, address)
    producer_rows: list[_Row] = [
        ("producer", group, each.client_id, each.language, each.version, each.remote_ip)
        for group in network.names_inside(table)
        if not (network.namespace and is_system_group(group))
        for each in table[network.full_name(group)]
    ]
    return [*chain.from_iterable(consumer_rows), *producer_rows]
