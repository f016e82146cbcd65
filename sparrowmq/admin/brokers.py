"""The brokers of a cluster: their roles and lag, rates of traffic, whether producers find them, and which one leads.

The lag of a slave is the difference between its figures and the master's: the bytes between the ends of their logs, and
the time between their newest messages. Messages arrive between the two answers, so a slave that keeps up has a little
lag, too. The lag in messages compares the queues topic by topic. That takes one request for each topic at both, so it
is asked for explicitly, and only of a slave whose log is shorter. Figures that only our brokers have are None for
Java's. Source: the classes of org.apache.rocketmq.tools.command.broker and .namesrv, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sparrowmq.admin import catalogue
from sparrowmq.admin.findings import reported_conditions
from sparrowmq.admin.servers import BrokerPlace, Servers
from sparrowmq.client.arguments import check_count, check_kind, check_text
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
_TOPICS_AT_ONCE: Final = 32  # topics
LEADING_LIMIT_S: Final = 20.0  # a member restarts its broker within its process
_POLL_S: Final = 0.2
_LOG_FIGURES: Final = ("logEpoch", "commitLogMaxOffset", "memberId")
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


async def standings(servers: Servers, cluster: str | None = None, *, count: bool = False) -> list[Standing]:
    """Return the role of brokers and the lag of slaves; `count`: also in messages, by a request for each topic."""
    places = await servers.brokers(cluster)
    addresses = sorted({address for place in places for address in place.addresses.values()})
    answers = await asyncio.gather(*(_figures(servers, address) for address in addresses))
    figures = dict(zip(addresses, answers, strict=True))
    places_and_standings = [
        (place, _standing(place, broker_id, figures)) for place in places for broker_id in sorted(place.addresses)
    ]
    if not count:
        return [standing for _, standing in places_and_standings]
    return list(
        await asyncio.gather(*(_with_message_lag(servers, place, standing) for place, standing in places_and_standings))
    )


async def _figures(servers: Servers, address: str) -> Mapping[str, str] | SparrowError:
    try:
        return await catalogue.broker_figures(servers, address)
    except SparrowError as error:
        return error


def _standing(place: BrokerPlace, broker_id: int, figures: Mapping[str, Mapping[str, str] | SparrowError]) -> Standing:
    address = place.addresses[broker_id]
    figures_or_error, master_figures = figures[address], figures.get(place.master or "")
    if isinstance(figures_or_error, SparrowError):
        return Standing(place.cluster, place.name, broker_id, address, problem=str(figures_or_error), is_silent=True)
    lag: tuple[int | None, float | None] = (None, None)
    if broker_id != MASTER and master_figures is not None and not isinstance(master_figures, SparrowError):
        lag = _slave_lag(figures_or_error, master_figures)
    members, is_settled = (
        _members(figures_or_error.get("inSyncMembers")),
        figures_or_error.get("epochSettled") != "false",
    )
    return Standing(
        place.cluster,
        place.name,
        broker_id,
        address,
        member=whole_number(figures_or_error.get("memberId")),
        epoch=whole_number(figures_or_error.get("masterEpoch")),
        in_sync=members if is_settled else None,
        end=whole_number(figures_or_error.get("commitLogMaxOffset")),
        behind_bytes=lag[0],
        behind_s=lag[1],
        in_tps=_rate(figures_or_error, IN_RATES),
        out_tps=_rate(figures_or_error, OUT_RATES),
        version=catalogue.version_of(figures_or_error),
        problem=figures_or_error.get("replicationProblem") or (_NO_MASTER if place.master is None else None),
        conditions=tuple(sorted(reported_conditions(figures_or_error))),
        log_epoch=whole_number(figures_or_error.get("logEpoch")),
        inherited=None if is_settled else members,
        protocol=figures_or_error.get(PROTOCOL_RELEASE),
    )


async def _with_message_lag(servers: Servers, place: BrokerPlace, standing: Standing) -> Standing:
    """Add the lag in messages, if it is a slave whose master answers."""
    if standing.behind_bytes is None or place.master is None:
        return standing
    if standing.behind_bytes == 0:
        return replace(standing, behind_messages=0)
    try:
        lag_messages, lag_s = await slave_lag(servers, place.master, standing.address)
    except SparrowError as error:
        return replace(standing, problem=str(error))
    behind_s = lag_s if standing.behind_s is None else standing.behind_s
    return replace(standing, behind_messages=lag_messages, behind_s=behind_s)


def _slave_lag(slave: Mapping[str, str], master: Mapping[str, str]) -> tuple[int | None, float | None]:
    ends = whole_number(slave.get("commitLogMaxOffset")), whole_number(master.get("commitLogMaxOffset"))
    if ends[0] is None or ends[1] is None:
        return None, None
    lag_bytes = max(ends[1] - ends[0], 0)
    times = whole_number(slave.get("newestMessageTimeStamp")), whole_number(master.get("newestMessageTimeStamp"))
    if lag_bytes == 0:
        return 0, 0.0
    if times[0] is None or times[1] is None or not times[0]:
        return lag_bytes, None
    return lag_bytes, max(times[1] - times[0], 0) / 1000


def _members(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(member for text_part in text.split(",") if (member := whole_number(text_part)) is not None)


def _rate(table: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    rate = per_second(table, *names)
    return None if rate is None else round(rate, 1)


async def slave_lag(servers: Servers, master: str, slave: str) -> tuple[int, float | None]:
    """Return the lag of a slave in messages, and in seconds between the newest messages; None if it has none. Half
    messages, and those that wait for their time, count too. Raises: NetworkError, RemoteError.
    """
    limit = asyncio.Semaphore(_TOPICS_AT_ONCE)

    async def ends_of(topic: str) -> tuple[Ends, Ends]:
        async with limit:
            master_ends, slave_ends = await asyncio.gather(_ends(servers, master, topic), _ends(servers, slave, topic))
            return master_ends, slave_ends

    pairs = await asyncio.gather(*map(ends_of, await catalogue.topic_table(servers, master)))
    return sum(_missing_count(*pair) for pair in pairs), _newest_message_lag_s(pairs)


async def _ends(servers: Servers, address: str, topic: str) -> Ends:
    try:
        return await catalogue.topic_offsets(servers, address, topic)
    except RemoteError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}  # The slave takes topics every ten seconds.


def _missing_count(master_ends: Ends, slave_ends: Ends) -> int:
    total = 0
    for queue, end in master_ends.items():
        slave_end = slave_ends.get(queue)
        total += max(end.max_offset - (slave_end.max_offset if slave_end is not None else end.min_offset), 0)
    return total


def _newest_message_lag_s(pairs: list[tuple[Ends, Ends]]) -> float | None:
    newest = [
        max((end.last_update_timestamp for pair in pairs for end in pair[side].values()), default=0) for side in (0, 1)
    ]
    return max(newest[0] - newest[1], 0) / 1000 if newest[1] else None


def per_second(figures: Mapping[str, str], *names: str) -> float | None:
    """Return the rate of about the last ten seconds, under the first of its names; None without a number."""
    parts = next((figures[name].split() for name in names if figures.get(name)), [])
    try:
        return float(parts[0])
    except (ValueError, IndexError):
        return None


async def traffic(servers: Servers, address: str, name: str, key: str) -> BrokerStats:
    """Return a figure over the last minute, hour and day; 0 where the broker has counted nothing, which is an error."""
    try:
        return await catalogue.broker_statistic(servers, address, name, key)
    except RemoteError as error:
        if "not exist" not in error.remark:
            raise
        return BrokerStats()


async def address_of(servers: Servers, broker: str) -> str:
    """Return an address as it is, or the master's address of a broker's name. Raises: NoBroker, BrokerUnreachable."""
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
    places = {place.name: place for place in await servers.brokers()}
    if broker not in places:
        raise NoBroker(servers.namesrv, "broker", broker, list(places))
    return places[broker]


async def user_topics(servers: Servers, address: str) -> dict[str, TopicConfig]:
    """Return the topics of a broker to which clients send: without those of groups and RocketMQ's own."""
    system_topics = set(await catalogue.system_topics_of_broker(servers, address))
    return {
        name: topic
        for name, topic in (await catalogue.topic_table(servers, address)).items()
        if not is_system_topic(name) and group_of(name) is None and name not in system_topics
    }


async def lag_by_group(servers: Servers, broker: str) -> dict[str, int]:
    """Return, by group, the messages at a broker that it has still to consume; those that expired are left out."""
    address = await address_of(servers, broker)
    stats = await catalogue.progress_of_all_groups(servers, address)
    progress = {
        group: [row for each in topics for row in each.offset_table.items()]
        for groups in stats.consume_stats_list
        for group, topics in groups.items()
    }
    begins: dict[MessageQueue, int] = {}
    for topic in {queue.topic for rows in progress.values() for queue, row in rows if row.left(0)}:
        ranges = await catalogue.topic_offsets(servers, address, topic)
        begins |= {queue: each.min_offset for queue, each in ranges.items()}
    return {group: sum(row.left(begins.get(queue, 0)) for queue, row in rows) for group, rows in progress.items()}


async def drain(servers: Servers, broker: str) -> int:
    """Hide a broker from producers, not from consumers; returns the number of its topics.

    The broker keeps this in its settings file, so restarts do not end it; without a file it lasts until the broker
    ends. Apache's brokers do not know it: their name servers forget it at a restart. Raises: NoBroker,
    ChangeFailed.
    """
    return await _set_drained(servers, broker, "true", catalogue.hide_from_producers)


async def undrain(servers: Servers, broker: str) -> int:
    """Show a broker to producers again."""
    return await _set_drained(servers, broker, "false", catalogue.show_to_producers)


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
            await catalogue.change_broker_settings(servers, master, {"drained": drained})
    counts = await servers.change_namesrvs(
        f"changing whether producers find broker {broker}", lambda address: change(servers, address, broker)
    )
    return max(counts.values())


async def forget_broker(servers: Servers, broker: str) -> None:
    """Let name servers forget a broker that died and does not come back. Raises: AlreadyThere, it is registered."""
    check_text("broker", broker)
    registered_names = {place.name for place in await servers.brokers()}
    if broker in registered_names:
        raise AlreadyThere(f"broker {broker} is registered, so there is nothing to forget; stop it first")
    lost = await servers.lost()
    if broker not in lost:
        raise NoBroker(servers.namesrv, "lost broker", broker, [*lost, *registered_names])
    await servers.change_namesrvs(
        f"forgetting broker {broker}", lambda address: catalogue.delete_value(servers, address, LOST_BROKERS, broker)
    )


async def hand_over(servers: Servers, broker: str, member: int | None = None) -> int:
    """Let another member of a replicated group lead, by default the one that has most; return its brokerId.
    Raises: RemoteError, no other member, or not this one, is in sync.
    """
    address = await address_of(servers, broker)
    return (await servers.ask(address, HandOverLead(member or 0))).header.member


async def elect(servers: Servers, broker: str, member: int | None = None, *, force: bool = False) -> int:
    """Let a member of a replicated group lead with its log where no member can be elected. Return that member once
    it leads.

    Without `member` it chooses the one that has most. `force` gives up messages that only lost members have.

    Raises:
        RemoteError: there is a master, members in sync may come back, or another member has more.
        BrokerUnreachable: there is no such member, or none that is elected.
        ConfigError: `force` without a member, and the longest log is not that of the last epoch.
        NotElected: the member does not answer, or does not lead within 20 s; or one is to be chosen without
            `force`, and any of them does not answer.
    """
    if member is not None:
        check_count("member", member, at_least=0)
    check_kind("force", force, bool, "True or False")
    place = await place_of(servers, broker)
    addresses = sorted(set(place.addresses.values()))
    answers = await asyncio.gather(*(_member_log_at(servers, address) for address in addresses))
    logs = {log.member: log for log in answers if isinstance(log, _MemberLog)}
    errors = "; ".join(str(answer) for answer in answers if isinstance(answer, SparrowError))
    if member is None:
        if errors and not force:
            raise NotElected(
                f"which member of {broker} has most is not known: {errors}. Nothing has changed. Start all members, "
                "also one that hangs, after you ended it; or name the member that begins with --member N"
            )
        member = _member_with_most(broker, logs, force)
    if member not in logs:
        if errors:
            raise NotElected(
                f"no member of {broker} that answers has the brokerId {member}: {errors}. Nothing has changed. Look at "
                f"the log of member {member}, start it again if it has ended or hangs, or let another member begin"
            )
        raise BrokerUnreachable(f"member {member} of {broker}", "no broker that answers has this brokerId")
    address = logs[member].address
    with suppress(NetworkError):  # it may have the order: it leads soon, or `_begun` says why it does not
        await servers.ask(address, ElectMember(member, force))
    await _wait_until_leading(servers, broker, member, address)
    return member


async def _wait_until_leading(servers: Servers, broker: str, member: int, address: str) -> None:
    """Wait until a member leads. Its connections end meanwhile. Raises: NotElected."""
    clock = servers.network.clock
    began_at, reason = clock.monotonic(), ""
    while clock.age(began_at) < LEADING_LIMIT_S:
        try:
            table = await catalogue.broker_figures(servers, address)
        except SparrowError as error:
            reason = (
                f"{error}. Its log says why. If it has ended, start it and give the order again, or let another member "
                "begin with --member N. If it hangs, it may begin when it goes on: end it before another one begins"
            )
        else:
            if table.get("memberId") == str(member) and "inSyncMembers" in table:
                return
            problem = table.get("replicationProblem") or "it gives no reason"
            reason = f"{problem}. It begins once that is over; `sparrowmq cluster` shows the master"
        await clock.sleep(_POLL_S)
    raise NotElected(f"member {member} of {broker} does not lead after {LEADING_LIMIT_S:g} s: {reason}")


class _MemberLog(NamedTuple):
    epoch: int
    end: int
    member: int
    address: str


def _member_with_most(broker: str, logs: Mapping[int, _MemberLog], force: bool) -> int:
    """Return the member whose log has most: that of the last epoch, and of these the longest.

    Each log of the last epoch is a beginning of its master's, which has all that was acknowledged before. A longer log
    of an earlier epoch ends with messages that were given up; or, if that master is lost, the others were copying.
    """
    if not logs:
        raise BrokerUnreachable(broker, "no broker of this name has an elected master")
    best, longest = max(logs.values()), max(logs.values(), key=lambda member_log: member_log.end)
    if force and longest.end > best.end:
        raise ConfigError(
            f"which member has most is not certain: the log of member {best.member} is of epoch {best.epoch} and ends "
            f"at {best.end}, that of member {longest.member} is of epoch {longest.epoch} and ends at {longest.end}. "
            "Name the member that begins, with --member"
        )
    return best.member


async def _member_log_at(servers: Servers, address: str) -> _MemberLog | SparrowError | None:
    """Return how far the log at a broker goes; None if its master is not elected."""
    try:
        table = await catalogue.broker_figures(servers, address)
    except SparrowError as error:
        return error
    if whole_number(table.get("memberId")) is None:
        return None
    epoch, end, member = (whole_number(table.get(name)) or 0 for name in _LOG_FIGURES)
    return _MemberLog(epoch, end, member, address)
