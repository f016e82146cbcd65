"""The roles of the brokers of a cluster: the master, the members in sync, the lag of each slave.

The lag is the difference between the slave's and the master's figures, asked at the same moment: the bytes between the
ends of their logs, and the time between their newest messages. Messages arrive between the two answers, so a slave
that keeps up has a little lag, too. Figures that only our brokers have (epochs, the newest message) are None for
Java's, except the time where messages are counted (lacking.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.client.admin import single_brokers
from sparrowmq.client.admin.findings import told_conditions
from sparrowmq.client.admin.operations.broker_operations import broker_figures, version_of
from sparrowmq.client.admin.operations.topic_operations import topic_offsets, topic_table
from sparrowmq.client.admin.servers import BrokerPlace, Servers
from sparrowmq.client.cluster.route import MASTER
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import PROTOCOL_RELEASE
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

_NO_MASTER: Final = "no broker of this name is the master"


@dataclass(frozen=True, slots=True)
class Standing:
    """One broker, at one address.

    Attributes:
        broker_id: 0 is the master.
        member: its id where the master is elected, also of the master.
        epoch: of the master that it is, or follows.
        log_epoch: the last epoch that its log was part of, at a member.
        in_sync: at a master: the members that have all acknowledged messages; None while a new one does not know yet
            which members follow.
        inherited: the members in sync with the former master, while a new one does not know which of them follow.
        end: the end of its log.
        behind_bytes, behind_s: the lag of a slave; None where one of the two does not answer.
        behind_messages: likewise, where it was asked for.
        in_tps, out_tps: recent messages per second, in and out.
        version: its own; protocol: the release of RocketMQ whose protocol it speaks.
        problem: why it does not answer, then all of these are None; or why it neither leads nor follows.
        is_silent: whether it does not answer.
        conditions: the names of its conditions (docs/operate/conditions.md), sorted.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    member: int | None = None
    epoch: int | None = None
    in_sync: tuple[int, ...] | None = None
    end: int | None = None
    behind_bytes: int | None = None
    behind_s: float | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    version: str | None = None
    problem: str | None = None
    behind_messages: int | None = None
    conditions: tuple[str, ...] = ()
    is_silent: bool = False
    log_epoch: int | None = None
    inherited: tuple[int, ...] | None = None
    protocol: str | None = None

    @property
    def role(self) -> str:
        return "master" if self.broker_id == MASTER else "slave"


async def standings(servers: Servers, cluster: str | None, count: bool = False) -> list[Standing]:
    """Return all brokers, by cluster, name and id.

    Args:
        count: whether to count the messages that slaves lack.
    Raises:
        NoBroker: there is no such cluster.
        NetworkError: no name server answers.
    """
    places = await servers.brokers(cluster)
    addresses = sorted({address for place in places for address in place.addresses.values()})
    answers = await asyncio.gather(*(_figures(servers, address) for address in addresses))
    figures = dict(zip(addresses, answers, strict=True))
    found = [(place, _standing(place, broker_id, figures)) for place in places for broker_id in sorted(place.addresses)]
    if not count:
        return [standing for _, standing in found]
    return list(await asyncio.gather(*(_counted(servers, place, standing) for place, standing in found)))


async def _figures(servers: Servers, address: str) -> Mapping[str, str] | SparrowError:
    try:
        return await broker_figures(servers, address)
    except SparrowError as error:
        return error


def _standing(place: BrokerPlace, broker_id: int, figures: Mapping[str, Mapping[str, str] | SparrowError]) -> Standing:
    address = place.addresses[broker_id]
    table, master = figures[address], figures.get(place.master or "")
    if isinstance(table, SparrowError):
        return Standing(place.cluster, place.name, broker_id, address, problem=str(table), is_silent=True)
    behind: tuple[int | None, float | None] = (None, None)
    if broker_id != MASTER and master is not None and not isinstance(master, SparrowError):
        behind = _behind(table, master)
    members, is_settled = _members(table.get("inSyncMembers")), table.get("epochSettled") != "false"
    return Standing(
        place.cluster,
        place.name,
        broker_id,
        address,
        member=_number(table, "memberId"),
        epoch=_number(table, "masterEpoch"),
        in_sync=members if is_settled else None,
        end=_number(table, "commitLogMaxOffset"),
        behind_bytes=behind[0],
        behind_s=behind[1],
        in_tps=_rate(table, single_brokers.TAKEN),
        out_tps=_rate(table, single_brokers.GIVEN),
        version=version_of(table),
        problem=table.get("replicationProblem") or (_NO_MASTER if place.master is None else None),
        conditions=tuple(sorted(told_conditions(table))),
        log_epoch=_number(table, "logEpoch"),
        inherited=None if is_settled else members,
        protocol=table.get(PROTOCOL_RELEASE),
    )


async def _counted(servers: Servers, place: BrokerPlace, standing: Standing) -> Standing:
    """Add the lag in messages, if it is a slave whose master answers."""
    if standing.behind_bytes is None or place.master is None:
        return standing
    if standing.behind_bytes == 0:
        return replace(standing, behind_messages=0)
    try:
        messages, silence_s = await lacking(servers, place.master, standing.address)
    except SparrowError as error:
        return replace(standing, problem=str(error))
    behind_s = silence_s if standing.behind_s is None else standing.behind_s
    return replace(standing, behind_messages=messages, behind_s=behind_s)


def _behind(slave: Mapping[str, str], master: Mapping[str, str]) -> tuple[int | None, float | None]:
    ends = _number(slave, "commitLogMaxOffset"), _number(master, "commitLogMaxOffset")
    if ends[0] is None or ends[1] is None:
        return None, None
    lacks = max(ends[1] - ends[0], 0)
    times = _number(slave, "newestMessageTimeStamp"), _number(master, "newestMessageTimeStamp")
    if lacks == 0:
        return 0, 0.0
    if times[0] is None or times[1] is None or not times[0]:
        return lacks, None
    return lacks, max(times[1] - times[0], 0) / 1000


def _number(table: Mapping[str, str], name: str) -> int | None:
    return whole_number(table.get(name))


def _members(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(member for each in text.split(",") if (member := whole_number(each)) is not None)


def _rate(table: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    rate = single_brokers.per_second(table, *names)
    return None if rate is None else round(rate, 1)


# The lag of a slave in messages: the ends of its queues against those of its master, topic by topic.
#
# Java's brokers report messages and times in no other way. It takes one request for each topic at both, so it is asked
# for explicitly, and only of a slave whose log is shorter.


_AT_ONCE: Final = 32  # topics

Ends = Mapping[MessageQueue, TopicOffset]


async def lacking(servers: Servers, master: str, slave: str) -> tuple[int, float | None]:
    """Return the lag of a slave in messages, and in seconds between the newest messages; None if it has none.

    Half messages, and those that wait for their time, count too. Raises: NetworkError, RemoteError.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(topic: str) -> tuple[Ends, Ends]:
        async with gate:
            theirs, its = await asyncio.gather(_ends(servers, master, topic), _ends(servers, slave, topic))
            return theirs, its

    pairs = await asyncio.gather(*map(one, await topic_table(servers, master)))
    return sum(_missing(*pair) for pair in pairs), _silence_s(pairs)


async def _ends(servers: Servers, address: str, topic: str) -> Ends:
    try:
        return await topic_offsets(servers, address, topic)
    except RemoteError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}  # The slave takes topics every ten seconds.


def _missing(theirs: Ends, its: Ends) -> int:
    """Return the number of messages of one topic that the slave does not have."""
    total = 0
    for queue, end in theirs.items():
        here = its.get(queue)
        total += max(end.max_offset - (here.max_offset if here is not None else end.min_offset), 0)
    return total


def _silence_s(pairs: list[tuple[Ends, Ends]]) -> float | None:
    """Return the time between the newest message of the master and that of the slave."""
    newest = [
        max((end.last_update_timestamp for pair in pairs for end in pair[at].values()), default=0) for at in (0, 1)
    ]
    return max(newest[0] - newest[1], 0) / 1000 if newest[1] else None
