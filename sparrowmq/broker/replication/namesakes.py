"""The other brokers of a broker's name, as the name servers know them. With fixed roles they should have the same log.

A master of a fixed role does not know the addresses of its slaves otherwise: slaves connect to it.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.bodies import ClusterTable
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster
from sparrowmq.remoting.pool import Pool

TIMEOUT_S: Final = 3.0


async def namesakes(settings: BrokerSettings, own: str, pool: Pool) -> list[str]:
    """Return the addresses of the others, the master's first; none if no name server answers.

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
        if others := [addresses[number] for number in sorted(addresses) if addresses[number] != own]:
            return others
    return []
