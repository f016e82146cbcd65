"""An operator's orders to a replicated group: which member leads.

Requests of ours; a broker of Apache RocketMQ refuses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from sparrowmq.client.admin.operations.broker_operations import broker_figures
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.admin.single_brokers import address_of, place_of
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BrokerUnreachable, ConfigError, NetworkError, NotElected, SparrowError
from sparrowmq.protocol.requests.admin_headers import ElectMember, HandOverLead


async def hand_over(servers: Servers, broker: str, member: int) -> int:
    """Let another member lead, 0: any one in sync; return that member. Raises: RemoteError, it cannot lead now."""
    address = await address_of(servers, broker)
    return (await servers.ask(address, HandOverLead(member))).header.member


async def elect(servers: Servers, broker: str, member: int | None, force: bool) -> int:
    """Let a member begin with its log where there is no master; return that member once it leads.

    Args:
        member: None chooses the one that has most.
    Raises:
        BrokerUnreachable: there is no such member, or none that is elected.
        RemoteError: there is a master, or other members may have more.
        ConfigError: it is not certain which member has most.
        NotElected: the member does not answer, or does not lead in time; or one is to be chosen without `force`, and
            any of them does not answer.
    """
    place = await place_of(servers, broker)
    addresses = sorted(set(place.addresses.values()))
    answers = await asyncio.gather(*(_log_at(servers, address) for address in addresses))
    found = {each.member: each for each in answers if isinstance(each, _Log)}
    silent = "; ".join(str(answer) for answer in answers if isinstance(answer, SparrowError))
    if member is None:
        if silent and not force:
            raise NotElected(
                f"which member of {broker} has most is not known: {silent}. Nothing has changed. Start all members, "
                "also one that hangs, after you ended it; or name the member that begins with --member N"
            )
        member = _most(broker, found, force)
    if member not in found:
        if silent:
            raise NotElected(
                f"no member of {broker} that answers has the brokerId {member}: {silent}. Nothing has changed. Look at "
                f"the log of member {member}, start it again if it has ended or hangs, or let another member begin"
            )
        raise BrokerUnreachable(f"member {member} of {broker}", "no broker that answers has this brokerId")
    address = found[member].address
    with suppress(NetworkError):  # it may have the order: it leads soon, or `_begun` says why it does not
        await servers.ask(address, ElectMember(member, force))
    await _wait_until_leading(servers, broker, member, address)
    return member


async def _wait_until_leading(servers: Servers, broker: str, member: int, address: str) -> None:
    """Wait until a member leads. Its connections end meanwhile. Raises: NotElected."""
    clock = servers.network.clock
    begun, why = clock.monotonic(), ""
    while clock.age(begun) < BEGIN_S:
        try:
            table = await broker_figures(servers, address)
        except SparrowError as error:
            why = (
                f"{error}. Its log says why. If it has ended, start it and give the order again, or let another member "
                "begin with --member N. If it hangs, it may begin when it goes on: end it before another one begins"
            )
        else:
            if table.get("memberId") == str(member) and "inSyncMembers" in table:
                return
            problem = table.get("replicationProblem") or "it gives no reason"
            why = f"{problem}. It begins once that is over; `sparrowmq cluster` shows the master"
        await clock.sleep(_LOOK_S)
    raise NotElected(f"member {member} of {broker} does not lead after {BEGIN_S:g} s: {why}")


BEGIN_S: Final = 20.0  # a member restarts its broker within its process
_LOOK_S: Final = 0.2
_FIGURES: Final = ("logEpoch", "commitLogMaxOffset", "memberId")


class _Log(NamedTuple):
    """The log of a member, as far as it goes."""

    epoch: int
    end: int
    member: int
    address: str


def _most(broker: str, logs: Mapping[int, _Log], force: bool) -> int:
    """Return the member whose log has most: that of the last epoch, and of these the longest.

    Each log of the last epoch is a beginning of its master's, which has all that was acknowledged before. A longer log
    of an earlier epoch ends with messages that were given up; or, if that master is lost, the others were copying.
    """
    if not logs:
        raise BrokerUnreachable(broker, "no broker of this name has an elected master")
    best, longest = max(logs.values()), max(logs.values(), key=lambda each: each.end)
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
    if whole_number(table.get("memberId")) is None:
        return None
    epoch, end, member = (whole_number(table.get(name)) or 0 for name in _FIGURES)
    return _Log(epoch, end, member, address)
