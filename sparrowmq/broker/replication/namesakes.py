"""The other brokers of a broker's name, as the name servers know them. With fixed roles they should have the same log.

A master of a fixed role does not know the addresses of its slaves otherwise: slaves connect to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.bodies import ClusterTable
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster
from sparrowmq.remoting.pool import Pool

TIMEOUT_S: Final = 3.0


async def namesakes(settings: BrokerSettings, own: str, pool: Pool) -> list[str]:
    """Return the addresses of the others, the master's first; none if no name server answers."""
    return list((await namesakes_by_number(settings, own, pool)).values())


async def namesakes_by_number(settings: BrokerSettings, own: str, pool: Pool) -> dict[int, str]:
    """Return the addresses of the others by their brokerId, the master's first; none if no name server answers.

    Args:
        own: the address of this broker.
    """
    for namesrv in settings.namesrv:
        try:
            session = await pool.session(namesrv)
            answer = await session.call(GetBrokerCluster(), timeout_s=TIMEOUT_S)
            known = ClusterTable.decode(answer.body).broker_addr_table.get(settings.name)
        except SparrowError:
            continue
        addresses = known.broker_addrs if known is not None and known.cluster == settings.cluster else {}
        others = {number: at for number, at in sorted(addresses.items()) if at != own}
        if others:
            return others
    return {}


def slave_of(host: str, member: int | None, slaves: Mapping[int, str]) -> tuple[int, str] | None:
    """Return the number and the address of the slave whose connection comes from a host; None if that is open.

    Args:
        member: its number, if it has introduced itself as a member of a group.
        slaves: the addresses of the slaves, by their numbers.
    """
    if member is not None and member in slaves:
        return member, slaves[member]
    there = [(number, at) for number, at in slaves.items() if at.rpartition(":")[0].strip("[]") == host]
    return there[0] if len(there) == 1 else None
