"""Checks of a cluster by requests to its servers: findings, each with its check and its solution.

    each name server    answers; knows the same brokers as the others
    each broker         clients reach its address, old ones too; its disk, permission, clock and sends; none died
    a topic             has a route, at every name server; can be written and read
    a group             its members want the same; a member is online where messages wait; dead letters; whether its
                        offsets are in the queues, and where it begins without one

Users search for these problems by other words, so findings also have Java's words: "No route info of this topic",
"connect to <172.17.0.1:10911> failed", "CODE: 14 DESC: service not available now. It may be caused by one of the
following reasons: the broker's disk is full". More of them are "the consumer's subscription not latest", "subscription
not exist", "[REJECTREQUEST]system busy", "[TIMEOUT_CLEAN_QUEUE] broker busy", CONSUME_FROM_LAST_OFFSET, and the port
that is 2 below the broker's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from sparrowmq.client.admin import groups, topics
from sparrowmq.client.admin.findings import (
    DIED,
    ELECTION,
    HEADLESS,
    NO_ANSWER,
    Finding,
    Sign,
    Verdict,
    causes_first,
    condition_findings,
    elects_master,
)
from sparrowmq.client.admin.operations import (
    broker_figures,
    broker_settings,
    cluster_table,
    conditions_of_namesrv,
    group_connections,
    topic_route,
)
from sparrowmq.client.admin.servers import BrokerPlace, Servers, masters_in, utc
from sparrowmq.errors import AccessDenied, NetworkError, NoGroup, SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY, dlq_topic
from sparrowmq.protocol.requests.bodies import CONDITION

DISK_WARNING: Final = 0.75
DISK_FULL: Final = 0.90
CLOCK_LIMIT_S: Final = 5
CLOCK_WRONG_S: Final = 60
# Java's defaults of waitTimeMillsInSendQueue and osPageCacheBusyTimeOutMills.
_SEND_WAIT_MS: Final = 200
_LOCK_MS: Final = 1000
_VIP_BELOW: Final = 2
_FROM_END: Final = "CONSUME_FROM_LAST_OFFSET"
_READ_AND_WRITE: Final = 6
_ACCOUNT: Final = (
    "give an administrator's account: --access-key and --secret-key, or ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY; "
    "`sparrowmq acl list` with another account shows those of the broker"
)
_UNITS: Final = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


async def examine(
    servers: Servers, topic: str | None, group: str | None, now_ms: Callable[[], int], expected: Collection[str] = ()
) -> list[Finding]:
    """Return the findings of the cluster, and of a topic and a group if they are named; causes come first.

    Args:
        expected: names of brokers that have to be registered.
    """
    found, answers = await _name_servers(servers)
    if not answers:
        return causes_first(found)
    # Of a topic and a group it says what the brokers that answer know.
    servers = Servers(servers.network, servers.timeout_s)
    servers.missing = {}
    places = await servers.brokers()
    if not places:
        found.append(
            Finding(
                Verdict.WRONG,
                f"no broker is registered at {servers.namesrv}",
                "asked the name servers for all brokers (106)",
                f"start one with `mqbroker -n {servers.namesrv}`; if one runs, its log says why it is not registered",
            )
        )
    for each in await asyncio.gather(*(_broker(servers, place, now_ms) for place in places)):
        found += each
    found += await _unregistered(servers, {place.name for place in places}, expected, topic)
    if topic is not None:
        found += await _topic(servers, topic, list(answers))
    if group is not None:
        found += await _group(servers, group)
    return causes_first(found)


# Name servers -------------------------------------------------------------------------------------------------------


async def _name_servers(servers: Servers) -> tuple[list[Finding], dict[str, frozenset[str]]]:
    """Return the findings, and the brokers that each name server knows that answers."""
    tables, failures = await servers.ask_namesrvs(lambda address: cluster_table(servers, address))
    found = [await _no_name_server(address, error) for address, error in failures.items()]
    known = {
        address: frozenset(
            f"{each.broker_name} {number} {told}"
            for each in table.broker_addr_table.values()
            for number, told in each.broker_addrs.items()
        )
        for address, table in tables.items()
    }
    for address, table in tables.items():
        with suppress(SparrowError):  # Not every account may ask.
            found += condition_findings(
                f"name server {address}", await conditions_of_namesrv(servers, address), address=address
            )
        what = f"name server {address} knows {len(table.broker_addr_table)} brokers"
        found.append(Finding(Verdict.OK, what, f"asked {address} for all brokers (106)"))
    if len(set(known.values())) > 1:
        every = frozenset.union(*known.values())
        lacks = [f"{address} lacks {', '.join(sorted(every - has))}" for address, has in known.items() if every - has]
        found.append(
            Finding(
                Verdict.WRONG,
                f"the name servers know different brokers: {'; '.join(lacks)}",
                "compared what each of them said",
                "give every broker all name servers: namesrvAddr=host:port;host:port",
            )
        )
    return found, known


async def _no_name_server(address: str, error: SparrowError) -> Finding:
    check = f"asked {address} for all brokers (106)"
    if isinstance(error, AccessDenied):
        return Finding(Verdict.WRONG, f"name server {address} refuses the account: {error}", check, _ACCOUNT)
    mend = f"correct the address: NAMESRV_ADDR or -n ({error})"
    if isinstance(error, NetworkError):
        found = await remedy(address, error)
        mend = found.text if found.runs else f"start it there with `mqnamesrv`, or {mend}"
    what = f"name server {address} does not answer"
    return Finding(Verdict.WRONG, what, check, mend, sign=Sign(NO_ANSWER, "", address, False, what))


# Brokers ------------------------------------------------------------------------------------------------------------


async def _unregistered(
    servers: Servers, registered: Collection[str], expected: Collection[str], topic: str | None
) -> list[Finding]:
    """Return findings of brokers that are not registered: they died, topics are ordered on them, or are expected."""
    found, lost = [], await servers.lost()
    for name, each in lost.items():
        what = f"broker {name} at {each.address} died (since {utc(each.since_ms)}), with {len(each.topics)} topics"
        if topic is not None and servers.network.full_name(topic) in each.topics:
            what += f"; its queues and messages of {topic} are missing"
        mend = (
            "start it again on its machine, with its store: its messages are there. If it is gone for good: "
            f"`sparrowmq broker forget {name}`"
        )
        check = "asked the name servers which brokers went without a goodbye (219)"
        sign = Sign(DIED, name, each.address, True, what)
        found.append(Finding(Verdict.WRONG, what, check, mend, name, True, sign))
    start = "start it again; or correct {} if it is gone for good"
    wanted = {name: (f"broker {name} is not registered, and it is expected", "--expect") for name in expected}
    for name, ordered in (await topics.ordered_brokers(servers)).items():
        what = f"broker {name} is not registered, and keys of {', '.join(ordered)} belong to its queues"
        wanted.setdefault(name, (what, "the order with `mqadmin updateOrderConf`"))
    for name, (what, where) in sorted(wanted.items()):
        if name not in registered and name not in lost:
            check = "compared the names with all brokers (106)"
            mend = start.format(where)
            found.append(Finding(Verdict.WRONG, what, check, mend, broker=name, stops=True))
    return found


async def _broker(servers: Servers, place: BrokerPlace, now_ms: Callable[[], int]) -> list[Finding]:
    members = sorted(place.addresses.items())
    answers = await asyncio.gather(*(_member(servers, place.name, number, at, now_ms) for number, at in members))
    found = [finding for _, each in answers for finding in each]
    if place.master is not None:
        return found
    what = f"broker {place.name} has no master"
    mend = "its slaves can be read; start its master, or make a slave the master (docs/operate/replication.md)"
    if any(elects_master(status) for status, _ in answers):
        mend = ELECTION
    check = "asked the name servers for all brokers (106)"
    sign = Sign(HEADLESS, place.name, "", True, what)
    return [Finding(Verdict.WRONG, what, check, mend, place.name, True, sign), *found]


async def _member(
    servers: Servers, name: str, number: int, address: str, now_ms: Callable[[], int]
) -> tuple[dict[str, str], list[Finding]]:
    """Return the status of a broker, which is empty if it cannot be known, and the findings."""
    server = f"broker {name} ({'master' if number == 0 else f'slave {number}'}) at {address}"
    check = f"connected to {address}, where the name server sends clients, and asked how it is (28)"
    is_master = number == 0
    try:
        status = await broker_figures(servers, address)
    except NetworkError as error:
        mend, runs, is_hanging = await remedy(address, error)
        what = (
            f"{server} hangs"
            if is_hanging
            else f"{server} {'takes no more connections' if runs else 'cannot be reached'}"
        )
        sign = Sign(NO_ANSWER, name, address, is_master, what)
        return {}, [Finding(Verdict.WRONG, what, check, mend, name, is_master, sign)]
    except AccessDenied as error:
        what = f"{server} refuses the account: {error}"
        return {}, [Finding(Verdict.WRONG, what, check, _ACCOUNT, broker=name)]
    except SparrowError as error:
        mend = "look at its log, which has the request and the reason"
        what = f"{server} does not say how it is: {error}"
        return {}, [Finding(Verdict.WRONG, what, check, mend, broker=name)]
    found = [Finding(Verdict.OK, f"{server} answers", check, broker=name)]
    settings: dict[str, str] = {}
    with suppress(SparrowError):  # Not everybody may see them.
        settings = await broker_settings(servers, address)
    found += condition_findings(server, status, name, address, is_master)
    found += _disk(server, status, _disk_full(settings)) + _permission(server, status, settings)
    more = (("clock", _clock(server, status, now_ms())), ("busy", _busy(server, status, settings)))
    for kind, judged in more:
        found += [replace(each, sign=Sign(kind, name, address, is_master, each.what)) for each in judged]
    if is_master:
        found += await _old_clients(server, address, settings, servers.timeout_s)
    return status, found


def _disk_full(settings: Mapping[str, str]) -> float:
    """Return the share of its disk from which a broker refuses messages. Apache's can only lower it, ours raise it."""
    with suppress(ValueError):
        if "scrubRate" in settings:  # only ours have it
            return max(DISK_FULL, int(settings.get("diskMaxUsedSpaceRatio", "0")) / 100)
        return min(DISK_FULL, float(settings.get("diskSpaceWarningLevelRatio", "90")) / 100)
    return DISK_FULL


def _disk(server: str, status: dict[str, str], full: float = DISK_FULL) -> list[Finding]:
    used, check = float(status.get("commitLogDiskRatio", 0)), "commitLogDiskRatio of its brokerStatus"
    mend = "free some space there, or lower fileReservedTime; writes go on by themselves"
    is_told = f"{CONDITION}disk_full" in status or f"{CONDITION}disk_nearly_full" in status
    if used >= full and not is_told:
        what = f"{server} takes no messages: {used:.0%} of its disk is used (CODE 14, SERVICE_NOT_AVAILABLE)"
        return [Finding(Verdict.WRONG, what, check, mend)]
    if used >= DISK_WARNING and not is_told:
        what = f"{server} has {used:.0%} of its disk used; from {full:.0%} on it takes no message"
        return [Finding(Verdict.WARNING, what, check, mend)]
    return [Finding(Verdict.OK, f"{server} has {used:.0%} of its disk used", check)]


def _busy(server: str, status: Mapping[str, str], settings: Mapping[str, str]) -> list[Finding]:
    """Check whether the broker refuses sends because they wait, or its log is locked, too long."""
    if "sendThreadPoolQueueHeadWaitTimeMills" not in status:
        return []
    wait_ms, size, capacity, lock_ms = (
        _number(status, key)
        for key in (
            "sendThreadPoolQueueHeadWaitTimeMills",
            "sendThreadPoolQueueSize",
            "sendThreadPoolQueueCapacity",
            "pageCacheLockTimeMills",
        )
    )
    check = "sendThreadPoolQueue... and pageCacheLockTimeMills of its brokerStatus"
    is_waiting = wait_ms >= _number(settings, "waitTimeMillsInSendQueue", _SEND_WAIT_MS)
    is_locked = lock_ms >= _number(settings, "osPageCacheBusyTimeOutMills", _LOCK_MS)
    if not (is_waiting or is_locked or 0 < capacity <= size):
        return [Finding(Verdict.OK, f"{server} lets no send wait long", check)]
    what = (
        f"{server} refuses sends as it is busy (CODE 2, SYSTEM_BUSY: system busy, start flow control for a while): "
        f"{size} of {capacity} wait, the first for {wait_ms} ms, and its log has been locked for {lock_ms} ms"
    )
    mend = "look at its disk first (iostat -x); then more sendMessageThreadPoolNums, or more brokers for the topics"
    return [Finding(Verdict.WARNING, what, check, mend)]


def _number(table: Mapping[str, str], key: str, otherwise: int = 0) -> int:
    try:
        return int(table.get(key, otherwise))
    except ValueError:
        return otherwise


async def _old_clients(server: str, address: str, settings: Mapping[str, str], timeout_s: float) -> list[Finding]:
    """Check whether Java's clients before 4.5 can send: they connect to the port 2 below the registered one."""
    host, _, port = address.rpartition(":")
    below = f"{host}:{int(port) - _VIP_BELOW}"
    # Who has set it off, or takes any port, has none of them.
    if settings.get("fastListenPort") == "off" or settings.get("listenPort") == "0" or int(port) <= _VIP_BELOW:
        return []
    check = f"connected to {below}, where Java's clients before 4.5 and those with vipChannelEnabled=true send"
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port) - _VIP_BELOW)
    except OSError as error:  # a TimeoutError is one
        what = f"old clients cannot send to {server}: connect to <{below}> failed ({error or 'no answer in time'})"
        mend = (
            "let firewalls and containers pass listenPort - 2 as well, or set com.rocketmq.sendMessageWithVIPChannel="
            "false in those clients; fastListenPort=off if there are none"
        )
        return [Finding(Verdict.WARNING, what, check, mend)]
    writer.close()
    return [Finding(Verdict.OK, f"old clients can send to {server}", check)]


def _clock(server: str, status: dict[str, str], now_ms: int) -> list[Finding]:
    """Compare a broker's clock with ours: by its start time and its uptime, to a second."""
    parts = re.findall(r"(-?[0-9]{1,9}) (days|hours|minutes|seconds)", status.get("runtime", ""))
    if not parts or "bootTimestamp" not in status:
        return []
    runs_s = sum(int(number) * _UNITS[unit] for number, unit in parts)
    off_s = int(status["bootTimestamp"]) / 1000 + runs_s - now_ms / 1000
    check = "bootTimestamp and runtime of its brokerStatus, against the clock here"
    if abs(off_s) <= CLOCK_LIMIT_S:
        return [Finding(Verdict.OK, f"{server} has the same time as this machine", check)]
    what = f"the clock of {server} is {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'behind'}"
    mend = "set both clocks by NTP: delays, retention and searches by time go by them"
    verdict = Verdict.WRONG if abs(off_s) > CLOCK_WRONG_S else Verdict.WARNING
    return [Finding(verdict, what, check, mend)]


def _permission(server: str, status: Mapping[str, str], settings: Mapping[str, str]) -> list[Finding]:
    """Check whether the broker takes and gives messages. Ours say it by a condition, Apache's do not."""
    check = "brokerPermission of its settings (26)"
    told = _number(settings, "brokerPermission", _READ_AND_WRITE)
    if told == _READ_AND_WRITE or f"{CONDITION}drained" in status:
        return []
    may = {4: "it takes no messages", 2: "it gives no messages"}.get(told, "it neither takes nor gives any")
    address = server.rpartition(" at ")[2]
    mend = f"once it shall: `sparrowmq broker set {address} brokerPermission=6`"
    return [Finding(Verdict.WARNING, f"{server} is set so that {may}", check, mend)]


# A topic ------------------------------------------------------------------------------------------------------------


async def _topic(servers: Servers, topic: str, name_servers: list[str]) -> list[Finding]:
    full, found = servers.network.full_name(topic), []
    lacks, route = [], None
    for address in name_servers:
        found_there = await topic_route(servers, full, address)
        if found_there is None:
            lacks.append(address)
        route = found_there or route
    check = f"asked each name server for the route of {topic} (105)"
    if route is None:
        mend = (
            f"create it with `sparrowmq topic create {topic}`. The first message creates it only where brokers have "
            "autoCreateTopicEnable=true, and where all of them can be reached"
        )
        return [Finding(Verdict.WRONG, f"no broker has topic {topic} (No route info of this topic)", check, mend)]
    if lacks:
        mend = "give every broker all name servers: namesrvAddr=host:port;host:port"
        found.append(Finding(Verdict.WRONG, f"{topic} is unknown at {', '.join(lacks)}", check, mend))
    for queues in route.queue_datas:
        what = f"{topic} has {queues.write_queue_nums} queues to write and {queues.read_queue_nums} to read"
        what += f" at {queues.broker_name}"
        if queues.perm & _READ_AND_WRITE == _READ_AND_WRITE and queues.write_queue_nums == queues.read_queue_nums:
            found.append(Finding(Verdict.OK, what, check))
        else:
            mend = f"if that is not meant: `sparrowmq topic change {topic}`, with as many of both and perm rw"
            found.append(Finding(Verdict.WARNING, f"{what}, perm {queues.perm}", check, mend))
    return found


# A group ------------------------------------------------------------------------------------------------------------


async def _group(servers: Servers, group: str) -> list[Finding]:
    try:
        members = await groups.members(servers, group)
        lag = await groups.lag(servers, group, None)
    except NoGroup:
        check = "asked every broker for its groups (201)"
        mend = "its first consumer makes it, or `sparrowmq group create`; see that its name is spelled so everywhere"
        return [Finding(Verdict.WRONG, f"no broker knows consumer group {group}", check, mend)]
    except NetworkError as error:
        check = "asked every broker for its members and offsets"
        what = f"nothing can be said of group {group}: {error}"
        return [Finding(Verdict.WARNING, what, check, "first fix what keeps you from the broker")]
    found = [*_subscriptions(group, members), *_waiting(group, members, lag)]
    found += await _offset_findings(servers, group, members, lag)
    return found + await _dead_letter_findings(servers, group)


def _subscriptions(group: str, members: list[groups.Member]) -> list[Finding]:
    """Check for "the consumer's subscription not latest", the error of Java's brokers for members that differ."""
    check = "asked each member what it subscribes (307), and the brokers for its heartbeats (203)"
    wanted: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for member in members:
        if member.wanted is not None:
            topics = {topic: text for topic, text in member.wanted.items() if not topic.startswith(RETRY)}
            wanted.setdefault(tuple(sorted(topics.items())), []).append(member.client_id)
    if len(wanted) > 1:
        says = [f"{', '.join(client_ids)}: {dict(topics)}" for topics, client_ids in wanted.items()]
        what = f"the members of {group} want different things (the consumer's subscription not latest)"
        return [
            Finding(
                Verdict.WRONG,
                f"{what}: {'; '.join(says)}",
                check,
                "all members of a group subscribe the same topics with the same filters; give the others a group "
                "of their own",
            )
        ]
    count = sum(map(len, wanted.values()))
    if count < len(members):
        what = f"nothing says what {len(members) - count} of the {len(members)} members of {group} subscribe"
        mend = "look at the log of their programs; all members subscribe the same topics with the same filters"
        return [Finding(Verdict.WARNING, what, check, mend)]
    return [Finding(Verdict.OK, f"the {count} members of {group} want the same", check)] if members else []


def _waiting(group: str, members: list[groups.Member], lag: groups.GroupLag) -> list[Finding]:
    check = "compared its offsets with the ends of the queues"
    if lag.lag and not members:
        mend = "start its consumers, with this group and these name servers"
        what = f"no member of {group} is online, and {lag.lag} messages wait (CODE 206, CONSUMER_NOT_ONLINE)"
        return [Finding(Verdict.WRONG, what, check, mend)]
    if lag.lag and not lag.per_second:
        mend = "look at the log of its consumers: a handler that hangs, or a queue that another client holds"
        what = f"{lag.lag} messages wait for {group}, and it took none within the last minute"
        return [Finding(Verdict.WARNING, what, check, mend)]
    return [Finding(Verdict.OK, f"{lag.lag} messages wait for {group}", check)]


async def _offset_findings(
    servers: Servers, group: str, members: list[groups.Member], lag: groups.GroupLag
) -> list[Finding]:
    """Check whether the group consumes from offsets that exist."""
    subscribed = {topic for member in members for topic in member.wanted or ()}
    ranges_by_topic: dict[str, dict[MessageQueue, range]] = {}
    for topic in sorted(subscribed | {each.queue.topic for each in lag.queues}):
        full = servers.network.full_name(topic)
        if topic.startswith(RETRY):
            continue
        with suppress(SparrowError):  # A topic without a route has a finding of its own.
            ranges = await topics.ranges(servers, full, masters_in(await servers.route(full)))
            ranges_by_topic[topic] = {
                servers.network.plain_queue(queue): range(each.min_offset, each.max_offset)
                for queue, each in ranges.items()
            }
    starts = await _starts(servers, group)
    return _outside(group, lag, ranges_by_topic) + _from_end(group, lag, ranges_by_topic, starts)


async def _starts(servers: Servers, group: str) -> set[str | None]:
    masters = await servers.all_masters()
    answers, _ = await servers.ask_masters(masters, lambda _, address: group_connections(servers, address, group))
    return {each.consume_from_where for each in answers.values()}


def _outside(group: str, lag: groups.GroupLag, ranges: Mapping[str, Mapping[MessageQueue, range]]) -> list[Finding]:
    check, found = "compared its offsets with the beginnings and ends of the queues", []
    ahead: dict[str, int] = {}
    gone: dict[str, int] = {}
    for each in lag.queues:
        offsets = ranges.get(each.queue.topic, {}).get(each.queue)
        if offsets is not None and each.committed > offsets.stop:
            ahead[each.queue.topic] = ahead.get(each.queue.topic, 0) + each.committed - offsets.stop
        elif offsets is not None and each.committed < offsets.start:
            gone[each.queue.topic] = gone.get(each.queue.topic, 0) + offsets.start - each.committed
    for topic, count in ahead.items():
        what = f"{group} is {count} messages ahead of the end of {topic}, so what comes next may never reach it"
        mend = (
            f"`sparrowmq group reset {group} {topic} earliest`, or latest: the topic was created again, or the broker "
            "lost its end"
        )
        found.append(Finding(Verdict.WRONG, what, check, mend))
    for topic, count in gone.items():
        what = f"{count} messages of {topic} were deleted before {group} consumed them: it continues after them"
        mend = "raise fileReservedTime of the brokers, or have more consumers, if none may be lost"
        found.append(Finding(Verdict.WARNING, what, check, mend))
    return found


def _from_end(
    group: str, lag: groups.GroupLag, ranges: Mapping[str, Mapping[MessageQueue, range]], starts: set[str | None]
) -> list[Finding]:
    """Return findings of topics with messages, without an offset, that the group begins at the end."""
    if _FROM_END not in starts:
        return []
    check = "asked its brokers where its members begin (203), and looked for its offsets"
    begun = {each.queue.topic for each in lag.queues}
    found = []
    for topic in sorted(ranges.keys() - begun):
        if count := sum(len(each) for each in ranges[topic].values()):
            what = (
                f"{group} has no offset of {topic} and begins at its end ({_FROM_END}): the {count} messages that are "
                "there do not come"
            )
            mend = f'`sparrowmq group reset {group} {topic} earliest` if they shall, or start="earliest"'
            found.append(Finding(Verdict.WARNING, what, check, mend))
    return found


async def _dead_letter_findings(servers: Servers, group: str) -> list[Finding]:
    topic = dlq_topic(group)
    check = f"looked for its dead letters in {topic}"
    try:
        await servers.route(topic)
    except SparrowError:
        return []  # It has none.
    mend = f"look at them with `sparrowmq dlq list {group}`, and send them again with `sparrowmq dlq redrive {group}`"
    return [Finding(Verdict.WARNING, f"{group} has dead letters: messages that failed every try", check, mend)]


# A server that does not answer ------------------------------------------------------------------------------------


_CONNECT_S: Final = 2.0
_SILENT_S: Final = 1.0  # a server that is full ends a connection sooner; one that runs waits for a request
# Networks of containers by Docker and its kind, which no other machine reaches.
_OF_CONTAINERS: Final = tuple(map(ipaddress.ip_network, ("172.16.0.0/12", "10.88.0.0/16", "10.42.0.0/15")))
_HANGING: Final = (
    "it takes connections, but the process hangs. On its machine `ss -ltnp sport = :{port}` shows its PID, and "
    "`ps -o stat,wchan,args PID` its state. T is stopped: `kill -CONT PID`; D waits for a disk: `dmesg`. Otherwise, or "
    "if that does not help, `kill -KILL PID` and start it again: messages on disk stay"
)
_FULL: Final = (
    "it takes connections and ends them at once: as many are open as may be, or a quota limits those of this address. "
    "Its log says which. `ss -tnp dst {address}`, on the machines of clients, shows which processes have many. Stop "
    "some of them, or start the server with a higher `ulimit -n` (LimitNOFILE of systemd)"
)


class Remedy(NamedTuple):
    """Advice about a server that did not answer.

        refused      no process listens there
        silent       a process takes the connection and does not answer: it hangs, or is stopped
        ended        a process takes the connection and ends it: it has as many connections as it may have
        unreachable  the address is wrong, or a firewall drops what comes

    Attributes:
        runs: whether a process takes connections there.
        is_hanging: whether this process hangs.
    """

    text: str
    runs: bool
    is_hanging: bool


async def remedy(address: str, error: NetworkError) -> Remedy:
    ends = await _ends_connections(address)
    if ends is None:
        return Remedy(f"{reachability_advice(address)} ({error})", runs=False, is_hanging=False)
    if ends:
        return Remedy(_FULL.format(address=address), runs=True, is_hanging=False)
    return Remedy(_HANGING.format(port=address.rpartition(":")[2]), runs=True, is_hanging=True)


def reachability_advice(address: str) -> str:
    """Return what may keep clients from an address; Java's clients say "connect to <address> failed"."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return f"see that {host} can be resolved and reached from here, or set brokerIP1 to an address that can"
    if ip.is_loopback:
        return "see that it runs; a broker at 127.0.0.1 can be used on its own machine only: set its brokerIP1"
    if any(ip in network for network in _OF_CONTAINERS if ip.version == network.version):
        return (
            f"{host} looks like the address inside a container or virtual machine, which only that machine reaches: "
            "set brokerIP1 to the address of the host, and publish the port under the same number"
        )
    return "see that it runs and that no firewall keeps listenPort from you; set brokerIP1 if the address is wrong"


async def _ends_connections(address: str) -> bool | None:
    """Return whether a server ends a new connection before a request comes; None if it takes none."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:  # a TimeoutError is one
        return None
    try:
        async with asyncio.timeout(_SILENT_S):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except OSError:  # as a reset
        return True
    finally:
        writer.close()
