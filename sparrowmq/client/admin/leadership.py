"""An operator's orders to a replicated group: which member leads.

Requests of ours; a broker of Apache RocketMQ refuses them.
"""

from __future__ import annotations

import asyncio

from sparrowmq.client.admin.operations.broker_operations import broker_figures
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.admin.single_brokers import address_of, place_of
from sparrowmq.errors import BrokerUnreachable, SparrowError
from sparrowmq.protocol.requests.admin_headers import ElectMember, HandOverLead


async def hand_over(servers: Servers, broker: str, member: int) -> int:
    """Let another member lead, 0: any one in sync; return that member. Raises: RemoteError, it cannot lead now."""
    address = await address_of(servers, broker)
    return (await servers.ask(address, HandOverLead(member))).header.member


async def elect(servers: Servers, broker: str, member: int, force: bool) -> None:
    """Let a member begin with its log where there is no master.

    Raises:
        BrokerUnreachable: no name server knows an address of this member.
        RemoteError: there is a master, or other members may have more.
    """
    place = await place_of(servers, broker)
    addresses = sorted(set(place.addresses.values()))
    answers = await asyncio.gather(*(_member_at(servers, address) for address in addresses))
    for address, number in zip(addresses, answers, strict=True):
        if number == str(member):
            await servers.ask(address, ElectMember(member, force))
            return
    raise BrokerUnreachable(f"member {member} of {broker}", "no broker that answers has this brokerId")


async def _member_at(servers: Servers, address: str) -> str:
    try:
        return (await broker_figures(servers, address)).get("memberId", "")
    except SparrowError:
        return ""
