"""An operator's orders to a replicated group: which member leads.

Requests of ours; a broker of Apache RocketMQ refuses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from sparrowmq.client.admin.operations.broker_operations import broker_figures
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.admin.single_brokers import address_of, place_of
from sparrowmq.errors import BrokerUnreachable, ConfigError, SparrowError
from sparrowmq.protocol.requests.admin_headers import ElectMember, HandOverLead


async def hand_over(servers: Servers, broker: str, member: int) -> int:
    """Let another member lead, 0: any one in sync; return that member. Raises: RemoteError, it cannot lead now."""
    address = await address_of(servers, broker)
    return (await servers.ask(address, HandOverLead(member))).header.member


async def elect(servers: Servers, broker: str, member: int | None, force: bool) -> int:
    """Let a member begin with its log where there is no master; return that member.

    Args:
        member: None chooses the one that has most.
    Raises:
        BrokerUnreachable: this member does not answer; without `force` any of them, if one is to be chosen.
        RemoteError: there is a master, or other members may have more.
        ConfigError: it is not certain which member has most.
    """
    place = await place_of(servers, broker)
    addresses = sorted(set(place.addresses.values()))
    answers = await asyncio.gather(*(_log_at(servers, address) for address in addresses))
    found = {each.member: each for each in answers if isinstance(each, _Log)}
    if member is None:
        silent = [answer for answer in answers if isinstance(answer, SparrowError)]
        if silent and not force:
            raise silent[0]
        member = _most(broker, found, force)
    if member not in found:
        raise BrokerUnreachable(f"member {member} of {broker}", "no broker that answers has this brokerId")
    await servers.ask(found[member].address, ElectMember(member, force))
    return member


_FIGURES: Final = ("logEpoch", "commitLogMaxOffset", "memberId")


class _Log(NamedTuple):
    """The log of a member, as far as it goes."""

    epoch: int
    end: int
    member: int
    address: str


def _most(broker: str, found: Mapping[int, _Log], force: bool) -> int:
    """Return the member whose log has most: that of the last epoch, and of these the longest.

    Each log of the last epoch is a beginning of its master's, which has all that was acknowledged before. A longer log
    of an earlier epoch ends with messages that were given up; or, if that master is lost, the others were copying.
    """
    if not found:
        raise BrokerUnreachable(broker, "no broker of this name has an elected master")
    best, longest = max(found.values()), max(found.values(), key=lambda each: each.end)
    if force and longest.end > best.end:
        raise ConfigError(
            f"which member has most is not certain: the log of member {best.member} is of epoch {best.epoch} and ends "
            f"at {best.end}, that of member {longest.member} is of epoch {longest.epoch} and ends at {longest.end}. "
            "Name the member that begins, with --member"
        )
    return best.member


async def _log_at(servers: Servers, address: str) -> _Log | SparrowError | None:
    """Return how far the log at a broker goes; None if its master is not elected."""
    try:
        table = await broker_figures(servers, address)
    except SparrowError as error:
        return error
    if not table.get("memberId", "").isdigit():
        return None
    epoch, end, member = (int(table.get(name) or 0) for name in _FIGURES)
    return _Log(epoch, end, member, address)
