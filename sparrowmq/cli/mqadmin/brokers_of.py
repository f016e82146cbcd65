"""The brokers that a command goes to. Source: CommandUtil, DefaultMQAdminExtImpl and BrokerData, Java 4.9.8."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.client.admin.operations import cluster_table
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.protocol.requests.bodies import BrokerRoute, ClusterTable, TopicRoute

NO_CLUSTER: Final = "Make sure the specified clusterName exists or the name server connected to is correct."


def one_of(addresses: Mapping[int, str]) -> str | None:
    """Return the master's address; without a master any slave's."""
    if MASTER in addresses:
        return addresses[MASTER]
    return random.choice(list(addresses.values())) if addresses else None


def asked(route: TopicRoute) -> Iterator[tuple[BrokerRoute, str]]:
    """Yield the brokers of a route, each with the address to ask."""
    for broker in route.broker_datas:
        address = one_of(broker.broker_addrs)
        if address is not None:
            yield broker, address


def addresses(route: TopicRoute) -> list[str]:
    """Return the address to ask of each broker of a route."""
    return [address for _, address in asked(route)]


async def masters(call: Call, cluster: str) -> list[str]:
    """Return the addresses of a cluster's masters; an unknown cluster is reported and has none."""
    rows = await _brokers(call, cluster)
    return java.names({row.broker_addrs[MASTER] for row in rows if MASTER in row.broker_addrs})


async def all_addresses(call: Call, cluster: str) -> list[str]:
    """Return the addresses of a cluster's masters and slaves; an unknown cluster is reported and has none."""
    rows = await _brokers(call, cluster)
    return java.names({address for row in rows for address in row.broker_addrs.values()})


async def chosen(call: Call, of_cluster: Callable[[Call, str], Awaitable[list[str]]] = masters) -> list[str]:
    """Return the broker of -b; without it those of -c, by default its masters."""
    return [call.text("b")] if call.has("b") else await of_cluster(call, call.text("c"))


async def masters_with_slaves(call: Call, cluster: str) -> list[tuple[str, list[str]]]:
    """Return each master of a cluster with its slaves; an unknown cluster is reported and has none."""
    found = {
        row.broker_addrs[MASTER]: [row.broker_addrs[key] for key in sorted(row.broker_addrs) if key != MASTER]
        for row in await _brokers(call, cluster)
        if MASTER in row.broker_addrs
    }
    return java.table(found)


async def change_each(call: Call, change: Callable[[str], Awaitable[None]], pause_s: float = 0.0) -> bool:
    """Change the broker of -b, or each master of -c; without both, print the usage.

    A master that fails is reported, and the next one follows after a pause. Returns whether there was a place.
    """
    if call.has("b"):
        await change(call.text("b"))
    elif call.has("c"):
        for address in await masters(call, call.text("c")):
            try:
                await change(address)
            except Failure as failure:
                call.complain(failure)
                await call.pause(pause_s)
    else:
        call.show_usage()
        return False
    return True


async def name_at(call: Call, address: str) -> str:
    """Return the name of the broker at an address. Raises: Failure."""
    for name, row in java.table((await cluster_table(call)).broker_addr_table):
        if address in row.broker_addrs.values():
            return name
    raise Failure("java.lang.Exception", NO_CLUSTER)


def cluster_of(table: ClusterTable, broker: str) -> str | None:
    clusters = java.table(table.cluster_addr_table)
    return next((name for name, brokers in clusters if broker in brokers), None)


async def _brokers(call: Call, cluster: str) -> list[BrokerRoute]:
    table = await cluster_table(call)
    brokers = table.cluster_addr_table.get(cluster)
    if brokers is None:
        call.failed = True  # Unlike Java, for which this is a success.
        call.write(f"[error] {NO_CLUSTER}")
        return []
    return [table.broker_addr_table[name] for name in java.names(brokers) if name in table.broker_addr_table]
