"""The clients that are online: consumers and producers, each with its group, its program and its connections.

A client announces itself by heartbeats. Each client of SparrowMQ is a producer in CLIENT_INNER_PRODUCER, also one that
only sends; a Java program that only reads has no producer group. Admins are not listed: they send no heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Literal

from sparrowmq.client.admin import groups
from sparrowmq.client.admin.operations.broker_operations import producers
from sparrowmq.client.admin.operations.group_operations import group_table
from sparrowmq.client.admin.servers import Servers
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.names import is_system_group

_AT_ONCE: Final = 32

Role = Literal["consumer", "producer"]


@dataclass(frozen=True, slots=True)
class OnlineClient:
    """A client in one group.

    Attributes:
        language: as it says, such as JAVA or PYTHON.
        version: the number of its protocol.
        addresses: the end of its connection at each broker, by the broker's name.
    """

    role: Role
    group: str
    client_id: str
    language: str
    version: int
    addresses: Mapping[str, str]


# A client at one broker: its role, group, id, language, version and address.
_Row = tuple[Role, str, str, str, int, str]


async def online_clients(servers: Servers, cluster: str | None) -> tuple[list[OnlineClient], dict[str, SparrowError]]:
    """Return the clients by group and id, and the errors of brokers that are missing.

    Raises: ConfigError, there is no such cluster.
    """
    masters = {place.name: place.master for place in await servers.brokers(cluster)}
    rows, failures = await servers.ask_masters(masters, lambda _, address: _online_at(servers, address))
    found: dict[tuple[str, str, Role], OnlineClient] = {}
    for broker, some in rows.items():
        for role, group, client_id, language, version, address in some:
            client = OnlineClient(role, group, client_id, language, version, {})
            known = found.setdefault((group, client_id, role), client)
            found[group, client_id, role] = replace(known, addresses={**known.addresses, broker: address})
    return [found[key] for key in sorted(found)], failures


async def _online_at(servers: Servers, address: str) -> list[_Row]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def consumers(group: str) -> list[_Row]:
        async with gate:
            members = await groups.members_at(servers, group, address)
        name = servers.network.plain_name(group)
        return [("consumer", name, each.client_id, each.language, each.version, each.client_addr) for each in members]

    network = servers.network
    known = network.inside(name for name in await group_table(servers, address) if not is_system_group(name))
    consuming = await asyncio.gather(*(consumers(network.full_name(name)) for name in known))
    table = await producers(servers, address)
    producing: list[_Row] = [
        ("producer", group, each.client_id, each.language, each.version, each.remote_ip)
        for group in network.inside(table)
        if not (network.namespace and is_system_group(group))
        for each in table[network.full_name(group)]
    ]
    return [*chain.from_iterable(consuming), *producing]
