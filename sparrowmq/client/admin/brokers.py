"""The brokers of a cluster: their roles and lag, rates of traffic, whether producers find them, and which one leads.

The lag of a slave is the difference between its figures and the master's, asked at the same moment: the bytes between
the ends of their logs, and the time between their newest messages. Messages arrive between the two answers, so a slave
that keeps up has a little lag, too. Figures that only our brokers have (epochs, the newest message) are None for
Java's, except the time where messages are counted: the ends of the slave's queues against those of its master, topic by
topic. That takes one request for each topic at both, so it is asked for explicitly, and only of a slave whose log is
shorter.

Which member of a replicated group leads is changed by requests of ours; a broker of Apache RocketMQ refuses them.
Source: the classes of org.apache.rocketmq.tools.command.broker and .namesrv, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sparrowmq.client.admin.findings import reported_conditions
from sparrowmq.client.admin.operations import (
    broker_figures,
    broker_statistic,
    change_broker_settings,
    delete_value,
    hide_from_producers,
    progress_of_all_groups,
    show_to_producers,
    system_topics_of_broker,
    topic_offsets,
    topic_table,
    version_of,
)
from sparrowmq.client.admin.servers import BrokerPlace, Servers
from sparrowmq.client.arguments import check_text
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import (
    AlreadyThere,
    BrokerUnreachable,
    ConfigError,
    NetworkError,
    NoBroker,
    NotElected,
    RemoteError,
    SparrowError,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import LOST_BROKERS, group_of, is_system_topic
from sparrowmq.protocol.requests.admin_headers import ElectMember, HandOverLead
from sparrowmq.protocol.requests.bodies import PROTOCOL_RELEASE, BrokerStats, TopicConfig
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

IN_RATES: Final = ("putTps",)
OUT_RATES: Final = ("getTransferredTps", "getTransferedTps")  # brokers before 4.9.5 spell it with one r

_NO_MASTER: Final = "no broker of this name is the master"
_AT_ONCE: Final = 32  # topics
BEGIN_S: Final = 20.0  # a member restarts its broker within its process
_POLL_S: Final = 0.2
_FIGURES: Final = ("logEpoch", "commitLogMaxOffset", "memberId")

Ends = Mapping[MessageQueue, TopicOffset]


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
        in_tps, out_tps: recent messages per second.
        version: its own; protocol: the release of RocketMQ whose protocol it speaks.
        problem: why it does not answer (then all figures are None), or why it neither leads nor follows.
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
    """Return all brokers, by cluster, name and id; with `count` also how many messages slaves lack.

    Raises: NoBroker, there is no such cluster; NetworkError, no name server answers.
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
        member=whole_number(table.get("memberId")),
        epoch=whole_number(table.get("masterEpoch")),
        in_sync=members if is_settled else None,
        end=whole_number(table.get("commitLogMaxOffset")),
        behind_bytes=behind[0],
        behind_s=behind[1],
        in_tps=_rate(table, IN_RATES),
        out_tps=_rate(table, OUT_RATES),
        version=version_of(table),
        problem=table.get("replicationProblem") or (_NO_MASTER if place.master is None else None),
        conditions=tuple(sorted(reported_conditions(table))),
        log_epoch=whole_number(table.get("logEpoch")),
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
        messages, silence_s = await slave_lag(servers, place.master, standing.address)
    except SparrowError as error:
        return replace(standing, problem=str(error))
    behind_s = silence_s if standing.behind_s is None else standing.behind_s
    return replace(standing, behind_messages=messages, behind_s=behind_s)


def _behind(slave: Mapping[str, str], master: Mapping[str, str]) -> tuple[int | None, float | None]:
    ends = whole_number(slave.get("commitLogMaxOffset")), whole_number(master.get("commitLogMaxOffset"))
    if ends[0] is None or ends[1] is None:
        return None, None
    lacks = max(ends[1] - ends[0], 0)
    times = whole_number(slave.get("newestMessageTimeStamp")), whole_number(master.get("newestMessageTimeStamp"))
    if lacks == 0:
        return 0, 0.0
    if times[0] is None or times[1] is None or not times[0]:
        return lacks, None
    return lacks, max(times[1] - times[0], 0) / 1000


def _members(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(member for each in text.split(",") if (member := whole_number(each)) is not None)


def _rate(table: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    rate = per_second(table, *names)
    return None if rate is None else round(rate, 1)


async def slave_lag(servers: Servers, master: str, slave: str) -> tuple[int, float | None]:
    """Return the lag of a slave in messages, and in seconds between the newest messages; None if it has none.

    Half messages, and those that wait for their time, count too. Raises: NetworkError, RemoteError.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(topic: str) -> tuple[Ends, Ends]:
        async with gate:
            theirs, its = await asyncio.gather(_ends(servers, master, topic), _ends(servers, slave, topic))
            return theirs, its

    pairs = await asyncio.gather(*map(one, await topic_table(servers, master)))
    return sum(_count_missing(*pair) for pair in pairs), _silence_s(pairs)


async def _ends(servers: Servers, address: str, topic: str) -> Ends:
    try:
        return await topic_offsets(servers, address, topic)
    except RemoteError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}  # The slave takes topics every ten seconds.


def _count_missing(theirs: Ends, its: Ends) -> int:
    total = 0
    for queue, end in theirs.items():
        here = its.get(queue)
        total += max(end.max_offset - (here.max_offset if here is not None else end.min_offset), 0)
    return total


def _silence_s(pairs: list[tuple[Ends, Ends]]) -> float | None:
    newest = [
        max((end.last_update_timestamp for pair in pairs for end in pair[at].values()), default=0) for at in (0, 1)
    ]
    return max(newest[0] - newest[1], 0) / 1000 if newest[1] else None


def per_second(figures: Mapping[str, str], *names: str) -> float | None:
    """Return the rate of about the last ten seconds, under the first of its names; None without a number."""
    words = next((figures[name].split() for name in names if figures.get(name)), [])
    try:
        return float(words[0])
    except (ValueError, IndexError):
        return None


async def traffic(servers: Servers, address: str, name: str, key: str) -> BrokerStats:
    """Return a figure over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

    A broker that has counted nothing answers with an error, which is 0 here.
    """
    try:
        return await broker_statistic(servers, address, name, key)
    except RemoteError as error:
        if "not exist" not in error.remark:
            raise
        return BrokerStats()


async def address_of(servers: Servers, broker: str) -> str:
    """Return the address of a broker: the master of a name; an address stays as it is.

    Raises: NoBroker, there is no broker of this name; BrokerUnreachable, it has no master now.
    """
    check_text("broker", broker)
    if ":" in broker:
        return broker
    master = (await place_of(servers, broker)).master
    if master is None:
        raise BrokerUnreachable(broker, "it has no master now")
    return master


async def place_of(servers: Servers, broker: str) -> BrokerPlace:
    """Return the addresses of the brokers of one name. Raises: NoBroker, there is no broker of this name."""
    check_text("broker", broker)
    places = {each.name: each for each in await servers.brokers()}
    if broker not in places:
        raise NoBroker(servers.namesrv, "broker", broker, list(places))
    return places[broker]


async def user_topics(servers: Servers, address: str) -> dict[str, TopicConfig]:
    """Return the topics of a broker to which clients send: without those of groups and RocketMQ's own."""
    own = set(await system_topics_of_broker(servers, address))
    return {
        name: topic
        for name, topic in (await topic_table(servers, address)).items()
        if not is_system_topic(name) and group_of(name) is None and name not in own
    }


async def lag_by_group(servers: Servers, address: str) -> dict[str, int]:
    """Return, by group, the messages at a broker that it has still to consume. Those that expired are left out."""
    stats = await progress_of_all_groups(servers, address)
    progress = {
        group: [row for each in topics for row in each.offset_table.items()]
        for groups in stats.consume_stats_list
        for group, topics in groups.items()
    }
    begins: dict[MessageQueue, int] = {}
    for topic in {queue.topic for rows in progress.values() for queue, row in rows if row.left(0)}:
        ranges = await topic_offsets(servers, address, topic)
        begins |= {queue: each.min_offset for queue, each in ranges.items()}
    return {group: sum(row.left(begins.get(queue, 0)) for queue, row in rows) for group, rows in progress.items()}


async def drain(servers: Servers, broker: str) -> int:
    return await _set_drained(servers, broker, "true", hide_from_producers)


async def undrain(servers: Servers, broker: str) -> int:
    return await _set_drained(servers, broker, "false", show_to_producers)


async def _set_drained(
    servers: Servers, broker: str, drained: str, change: Callable[[Servers, str, str], Coroutine[Any, Any, int]]
) -> int:
    """Change a broker and all name servers; returns the greatest count of topics.

    The broker keeps the setting over restarts, unlike Apache's. One that does not answer is only hidden at the name
    servers. Each of these has routes of its own.
    """
    master = (await place_of(servers, broker)).master
    if master is not None:
        with suppress(NetworkError):
            await change_broker_settings(servers, master, {"drained": drained})
    counts = await servers.change_namesrvs(
        f"changing whether producers find broker {broker}", lambda address: change(servers, address, broker)
    )
    return max(counts.values())


async def forget(servers: Servers, broker: str) -> None:
    check_text("broker", broker)
    known = {place.name for place in await servers.brokers()}
    if broker in known:
        raise AlreadyThere(f"broker {broker} is registered, so there is nothing to forget; stop it first")
    lost = await servers.lost()
    if broker not in lost:
        raise NoBroker(servers.namesrv, "lost broker", broker, [*lost, *known])
    await servers.change_namesrvs(
        f"forgetting broker {broker}", lambda address: delete_value(servers, address, LOST_BROKERS, broker)
    )


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
        member = _member_with_most(broker, found, force)
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
        await clock.sleep(_POLL_S)
    raise NotElected(f"member {member} of {broker} does not lead after {BEGIN_S:g} s: {why}")


class _Log(NamedTuple):
    """The log of a member, as far as it goes."""

    epoch: int
    end: int
    member: int
    address: str


def _member_with_most(broker: str, logs: Mapping[int, _Log], force: bool) -> int:
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
