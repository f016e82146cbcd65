"""Checks of a cluster by requests to its servers: findings, each with its check and its solution.

    each name server    answers; knows the same brokers as the others
    each broker         clients reach its address, old ones too; its disk, permission, clock and sends; none died
    a topic             has a route, at every name server; can be written and read
    a group             its members want the same; a member is online where messages wait; dead letters; whether its
                        offsets are in the queues, and where it begins without one

Users search for these problems by the words of Java's errors, so findings have these, too: "No route info of this
topic", "the consumer's subscription not latest", "[REJECTREQUEST]system busy", "connect to <172.17.0.1:10911> failed".
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from sparrowmq.admin import catalogue, groups, topics
from sparrowmq.admin.findings import (
    DIED,
    ELECTION_ADVICE,
    HEADLESS,
    NO_ANSWER,
    Finding,
    Sign,
    Verdict,
    causes_first,
    condition_findings,
    elects_master,
)
from sparrowmq.admin.servers import BrokerPlace, Servers, masters_in, utc
from sparrowmq.errors import AccessDenied, NetworkError, NoGroup, SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY, dlq_topic
from sparrowmq.protocol.requests.bodies import CONDITION

DISK_WARNING_SHARE: Final = 0.75
DISK_FULL_SHARE: Final = 0.90
CLOCK_LIMIT_S: Final = 5
CLOCK_ERROR_S: Final = 60
# Java's defaults of waitTimeMillsInSendQueue and osPageCacheBusyTimeOutMills.
_MAX_SEND_WAIT_MS: Final = 200
_MAX_LOCK_MS: Final = 1000
_VIP_PORT_DISTANCE: Final = 2
_FROM_END_START: Final = "CONSUME_FROM_LAST_OFFSET"
_READ_AND_WRITE: Final = 6
_ACCOUNT_ADVICE: Final = (
    "give an administrator's account: --access-key and --secret-key, or ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY; "
    "`sparrowmq acl list` with another account shows those of the broker"
)
_SECONDS_PER_UNIT: Final = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


async def examine(
    servers: Servers, topic: str | None, group: str | None, now_ms: Callable[[], int], expected: Collection[str] = ()
) -> list[Finding]:
    """Return the findings, causes first. The brokers named in `expected` have to be registered."""
    findings, answers = await _name_servers(servers)
    if not answers:
        return causes_first(findings)
    # Of a topic and a group it says what the brokers that answer know.
    servers = Servers(servers.network, servers.timeout_s)
    servers.missing = {}
    places = await servers.brokers()
    if not places:
        findings.append(
            Finding(
                Verdict.WRONG,
                f"no broker is registered at {servers.namesrv}",
                "asked the name servers for all brokers (106)",
                f"start one with `mqbroker -n {servers.namesrv}`; if one runs, its log says why it is not registered",
            )
        )
    for findings_of_broker in await asyncio.gather(*(_broker(servers, place, now_ms) for place in places)):
        findings += findings_of_broker
    findings += await _unregistered(servers, {place.name for place in places}, expected, topic)
    if topic is not None:
        findings += await _topic(servers, topic, list(answers))
    if group is not None:
        findings += await _group(servers, group)
    return causes_first(findings)


async def _name_servers(servers: Servers) -> tuple[list[Finding], dict[str, frozenset[str]]]:
    tables, failures = await servers.ask_namesrvs(lambda address: catalogue.cluster_table(servers, address))
    findings = [await _no_name_server(address, error) for address, error in failures.items()]
    brokers_by_address = {
        address: frozenset(
            f"{broker_route.broker_name} {number} {address_of_broker}"
            for broker_route in table.broker_addr_table.values()
            for number, address_of_broker in broker_route.broker_addrs.items()
        )
        for address, table in tables.items()
    }
    for address, table in tables.items():
        with suppress(SparrowError):  # Not every account may ask.
            findings += condition_findings(
                f"name server {address}", await catalogue.conditions_of_namesrv(servers, address), address=address
            )
        result = f"name server {address} knows {len(table.broker_addr_table)} brokers"
        findings.append(Finding(Verdict.OK, result, f"asked {address} for all brokers (106)"))
    if len(set(brokers_by_address.values())) > 1:
        all_brokers = frozenset.union(*brokers_by_address.values())
        missing_texts = [
            f"{address} lacks {', '.join(sorted(all_brokers - known_brokers))}"
            for address, known_brokers in brokers_by_address.items()
            if all_brokers - known_brokers
        ]
        findings.append(
            Finding(
                Verdict.WRONG,
                f"the name servers know different brokers: {'; '.join(missing_texts)}",
                "compared what each of them said",
                "give every broker all name servers: namesrvAddr=host:port;host:port",
            )
        )
    return findings, brokers_by_address


async def _no_name_server(address: str, error: SparrowError) -> Finding:
    check = f"asked {address} for all brokers (106)"
    if isinstance(error, AccessDenied):
        return Finding(Verdict.WRONG, f"name server {address} refuses the account: {error}", check, _ACCOUNT_ADVICE)
    solution = f"correct the address: NAMESRV_ADDR or -n ({error})"
    if isinstance(error, NetworkError):
        advice = await remedy(address, error)
        solution = advice.text if advice.runs else f"start it there with `mqnamesrv`, or {solution}"
    result = f"name server {address} does not answer"
    return Finding(Verdict.WRONG, result, check, solution, sign=Sign(NO_ANSWER, "", address, False, result))


async def _unregistered(
    servers: Servers, registered: Collection[str], expected: Collection[str], topic: str | None
) -> list[Finding]:
    """Return findings of brokers that are not registered: they died, topics are ordered on them, or are expected."""
    findings, lost = [], await servers.lost()
    for name, lost_broker in lost.items():
        died = utc(lost_broker.since_ms)
        result = f"broker {name} at {lost_broker.address} died (since {died}), with {len(lost_broker.topics)} topics"
        if topic is not None and servers.network.full_name(topic) in lost_broker.topics:
            result += f"; its queues and messages of {topic} are missing"
        solution = (
            "start it again on its machine, with its store: its messages are there. If it is gone for good: "
            f"`sparrowmq broker forget {name}`"
        )
        check = "asked the name servers which brokers went without a goodbye (219)"
        sign = Sign(DIED, name, lost_broker.address, True, result)
        findings.append(Finding(Verdict.WRONG, result, check, solution, name, True, sign))
    start = "start it again; or correct {} if it is gone for good"
    expected_results = {name: (f"broker {name} is not registered, and it is expected", "--expect") for name in expected}
    for name, ordered in (await topics.ordered_brokers(servers)).items():
        result = f"broker {name} is not registered, and keys of {', '.join(ordered)} belong to its queues"
        expected_results.setdefault(name, (result, "the order with `mqadmin updateOrderConf`"))
    for name, (result, correction) in sorted(expected_results.items()):
        if name not in registered and name not in lost:
            check = "compared the names with all brokers (106)"
            solution = start.format(correction)
            findings.append(Finding(Verdict.WRONG, result, check, solution, broker=name, stops=True))
    return findings


async def _broker(servers: Servers, place: BrokerPlace, now_ms: Callable[[], int]) -> list[Finding]:
    members = sorted(place.addresses.items())
    answers = await asyncio.gather(
        *(_member(servers, place.name, number, address, now_ms) for number, address in members)
    )
    findings = [finding for _, member_findings in answers for finding in member_findings]
    if place.master is not None:
        return findings
    result = f"broker {place.name} has no master"
    solution = "its slaves can be read; start its master, or make a slave the master (docs/operate/replication.md)"
    if any(elects_master(status) for status, _ in answers):
        solution = ELECTION_ADVICE
    check = "asked the name servers for all brokers (106)"
    sign = Sign(HEADLESS, place.name, "", True, result)
    return [Finding(Verdict.WRONG, result, check, solution, place.name, True, sign), *findings]


async def _member(
    servers: Servers, name: str, number: int, address: str, now_ms: Callable[[], int]
) -> tuple[dict[str, str], list[Finding]]:
    """Return the status of a broker, which is empty if it cannot be known, and the findings."""
    server = f"broker {name} ({'master' if number == 0 else f'slave {number}'}) at {address}"
    check = f"connected to {address}, where the name server sends clients, and asked how it is (28)"
    is_master = number == 0
    try:
        status = await catalogue.broker_figures(servers, address)
    except NetworkError as error:
        solution, runs, is_hanging = await remedy(address, error)
        result = (
            f"{server} hangs"
            if is_hanging
            else f"{server} {'takes no more connections' if runs else 'cannot be reached'}"
        )
        sign = Sign(NO_ANSWER, name, address, is_master, result)
        return {}, [Finding(Verdict.WRONG, result, check, solution, name, is_master, sign)]
    except AccessDenied as error:
        result = f"{server} refuses the account: {error}"
        return {}, [Finding(Verdict.WRONG, result, check, _ACCOUNT_ADVICE, broker=name)]
    except SparrowError as error:
        solution = "look at its log, which has the request and the reason"
        result = f"{server} does not say how it is: {error}"
        return {}, [Finding(Verdict.WRONG, result, check, solution, broker=name)]
    findings = [Finding(Verdict.OK, f"{server} answers", check, broker=name)]
    settings: dict[str, str] = {}
    with suppress(SparrowError):  # Not everybody may see them.
        settings = await catalogue.broker_settings(servers, address)
    findings += condition_findings(server, status, name, address, is_master)
    findings += _disk(server, status, _disk_full_share(settings)) + _permission(server, status, settings)
    judgements = (("clock", _clock(server, status, now_ms())), ("busy", _busy(server, status, settings)))
    for kind, kind_findings in judgements:
        findings += [
            replace(finding, sign=Sign(kind, name, address, is_master, finding.what)) for finding in kind_findings
        ]
    if is_master:
        findings += await _old_client_port(server, address, settings, servers.timeout_s)
    return status, findings


def _disk_full_share(settings: Mapping[str, str]) -> float:
    """Return the share of its disk from which a broker refuses messages. Apache's can only lower it, ours raise it."""
    with suppress(ValueError):
        if "scrubRate" in settings:  # only ours have it
            return max(DISK_FULL_SHARE, int(settings.get("diskMaxUsedSpaceRatio", "0")) / 100)
        return min(DISK_FULL_SHARE, float(settings.get("diskSpaceWarningLevelRatio", "90")) / 100)
    return DISK_FULL_SHARE


def _disk(server: str, status: dict[str, str], full_share: float = DISK_FULL_SHARE) -> list[Finding]:
    used_share, check = float(status.get("commitLogDiskRatio", 0)), "commitLogDiskRatio of its brokerStatus"
    solution = "free some space there, or lower fileReservedTime; writes go on by themselves"
    has_condition = f"{CONDITION}disk_full" in status or f"{CONDITION}disk_nearly_full" in status
    if used_share >= full_share and not has_condition:
        result = f"{server} takes no messages: {used_share:.0%} of its disk is used (CODE 14, SERVICE_NOT_AVAILABLE)"
        return [Finding(Verdict.WRONG, result, check, solution)]
    if used_share >= DISK_WARNING_SHARE and not has_condition:
        result = f"{server} has {used_share:.0%} of its disk used; from {full_share:.0%} on it takes no message"
        return [Finding(Verdict.WARNING, result, check, solution)]
    return [Finding(Verdict.OK, f"{server} has {used_share:.0%} of its disk used", check)]


def _busy(server: str, status: Mapping[str, str], settings: Mapping[str, str]) -> list[Finding]:
    """Check whether the broker refuses sends because they wait, or its log is locked, too long."""
    if "sendThreadPoolQueueHeadWaitTimeMills" not in status:
        return []
    wait_ms, size, capacity, lock_ms = (
        _number_in(status, key)
        for key in (
            "sendThreadPoolQueueHeadWaitTimeMills",
            "sendThreadPoolQueueSize",
            "sendThreadPoolQueueCapacity",
            "pageCacheLockTimeMills",
        )
    )
    check = "sendThreadPoolQueue... and pageCacheLockTimeMills of its brokerStatus"
    is_waiting = wait_ms >= _number_in(settings, "waitTimeMillsInSendQueue", _MAX_SEND_WAIT_MS)
    is_locked = lock_ms >= _number_in(settings, "osPageCacheBusyTimeOutMills", _MAX_LOCK_MS)
    if not (is_waiting or is_locked or 0 < capacity <= size):
        return [Finding(Verdict.OK, f"{server} lets no send wait long", check)]
    result = (
        f"{server} refuses sends as it is busy (CODE 2, SYSTEM_BUSY: system busy, start flow control for a while): "
        f"{size} of {capacity} wait, the first for {wait_ms} ms, and its log has been locked for {lock_ms} ms"
    )
    solution = "look at its disk first (iostat -x); then more sendMessageThreadPoolNums, or more brokers for the topics"
    return [Finding(Verdict.WARNING, result, check, solution)]


def _number_in(table: Mapping[str, str], key: str, default: int = 0) -> int:
    try:
        return int(table.get(key, default))
    except ValueError:
        return default


async def _old_client_port(server: str, address: str, settings: Mapping[str, str], timeout_s: float) -> list[Finding]:
    """Check whether Java's clients before 4.5 can send: they connect to the port 2 below the registered one."""
    host, _, port = address.rpartition(":")
    old_address = f"{host}:{int(port) - _VIP_PORT_DISTANCE}"
    # Who has set it off, or takes any port, has none of them.
    if settings.get("fastListenPort") == "off" or settings.get("listenPort") == "0" or int(port) <= _VIP_PORT_DISTANCE:
        return []
    check = f"connected to {old_address}, where Java's clients before 4.5 and those with vipChannelEnabled=true send"
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port) - _VIP_PORT_DISTANCE)
    except OSError as error:  # a TimeoutError is one
        result = (
            f"old clients cannot send to {server}: connect to <{old_address}> failed ({error or 'no answer in time'})"
        )
        solution = (
            "let firewalls and containers pass listenPort - 2 as well, or set com.rocketmq.sendMessageWithVIPChannel="
            "false in those clients; fastListenPort=off if there are none"
        )
        return [Finding(Verdict.WARNING, result, check, solution)]
    writer.close()
    return [Finding(Verdict.OK, f"old clients can send to {server}", check)]


def _clock(server: str, status: dict[str, str], now_ms: int) -> list[Finding]:
    """Compare a broker's clock with ours: by its start time and its uptime, to a second."""
    parts = re.findall(r"(-?[0-9]{1,9}) (days|hours|minutes|seconds)", status.get("runtime", ""))
    if not parts or "bootTimestamp" not in status:
        return []
    uptime_s = sum(int(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)
    difference_s = int(status["bootTimestamp"]) / 1000 + uptime_s - now_ms / 1000
    check = "bootTimestamp and runtime of its brokerStatus, against the clock here"
    if abs(difference_s) <= CLOCK_LIMIT_S:
        return [Finding(Verdict.OK, f"{server} has the same time as this machine", check)]
    result = f"the clock of {server} is {abs(difference_s):.0f} s {'ahead' if difference_s > 0 else 'behind'}"
    solution = "set both clocks by NTP: delays, retention and searches by time go by them"
    verdict = Verdict.WRONG if abs(difference_s) > CLOCK_ERROR_S else Verdict.WARNING
    return [Finding(verdict, result, check, solution)]


def _permission(server: str, status: Mapping[str, str], settings: Mapping[str, str]) -> list[Finding]:
    """Check whether the broker takes and gives messages. Ours say it by a condition, Apache's do not."""
    check = "brokerPermission of its settings (26)"
    permission = _number_in(settings, "brokerPermission", _READ_AND_WRITE)
    if permission == _READ_AND_WRITE or f"{CONDITION}drained" in status:
        return []
    limitation = {4: "it takes no messages", 2: "it gives no messages"}.get(
        permission, "it neither takes nor gives any"
    )
    address = server.rpartition(" at ")[2]
    solution = f"once it shall: `sparrowmq broker set {address} brokerPermission=6`"
    return [Finding(Verdict.WARNING, f"{server} is set so that {limitation}", check, solution)]


async def _topic(servers: Servers, topic: str, name_servers: list[str]) -> list[Finding]:
    full, findings = servers.network.full_name(topic), []
    addresses_without_route, route = [], None
    for address in name_servers:
        route_there = await catalogue.topic_route(servers, full, address)
        if route_there is None:
            addresses_without_route.append(address)
        route = route_there or route
    check = f"asked each name server for the route of {topic} (105)"
    if route is None:
        solution = (
            f"create it with `sparrowmq topic create {topic}`. The first message creates it only where brokers have "
            "autoCreateTopicEnable=true, and where all of them can be reached"
        )
        return [Finding(Verdict.WRONG, f"no broker has topic {topic} (No route info of this topic)", check, solution)]
    if addresses_without_route:
        solution = "give every broker all name servers: namesrvAddr=host:port;host:port"
        findings.append(
            Finding(Verdict.WRONG, f"{topic} is unknown at {', '.join(addresses_without_route)}", check, solution)
        )
    for queues in route.queue_datas:
        result = f"{topic} has {queues.write_queue_nums} queues to write and {queues.read_queue_nums} to read"
        result += f" at {queues.broker_name}"
        if queues.perm & _READ_AND_WRITE == _READ_AND_WRITE and queues.write_queue_nums == queues.read_queue_nums:
            findings.append(Finding(Verdict.OK, result, check))
        else:
            solution = f"if that is not meant: `sparrowmq topic change {topic}`, with as many of both and perm rw"
            findings.append(Finding(Verdict.WARNING, f"{result}, perm {queues.perm}", check, solution))
    return findings


async def _group(servers: Servers, group: str) -> list[Finding]:
    try:
        members = await groups.members(servers, group)
        lag = await groups.lag(servers, group, None)
    except NoGroup:
        check = "asked every broker for its groups (201)"
        solution = (
            "its first consumer makes it, or `sparrowmq group create`; see that its name is spelled so everywhere"
        )
        return [Finding(Verdict.WRONG, f"no broker knows consumer group {group}", check, solution)]
    except NetworkError as error:
        check = "asked every broker for its members and offsets"
        result = f"nothing can be said of group {group}: {error}"
        return [Finding(Verdict.WARNING, result, check, "first fix what keeps you from the broker")]
    findings = [*_subscriptions(group, members), *_waiting_messages(group, members, lag)]
    findings += await _offset_findings(servers, group, members, lag)
    return findings + await _dead_letter_findings(servers, group)


def _subscriptions(group: str, members: list[groups.Member]) -> list[Finding]:
    """Check for "the consumer's subscription not latest", the error of Java's brokers for members that differ."""
    check = "asked each member what it subscribes (307), and the brokers for its heartbeats (203)"
    members_by_subscription: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for member in members:
        if member.wanted is not None:
            topics = {topic: text for topic, text in member.wanted.items() if not topic.startswith(RETRY)}
            members_by_subscription.setdefault(tuple(sorted(topics.items())), []).append(member.client_id)
    if len(members_by_subscription) > 1:
        subscription_texts = [
            f"{', '.join(client_ids)}: {dict(topics)}" for topics, client_ids in members_by_subscription.items()
        ]
        result = f"the members of {group} want different things (the consumer's subscription not latest)"
        return [
            Finding(
                Verdict.WRONG,
                f"{result}: {'; '.join(subscription_texts)}",
                check,
                "all members of a group subscribe the same topics with the same filters; give the others a group "
                "of their own",
            )
        ]
    count = sum(map(len, members_by_subscription.values()))
    if count < len(members):
        result = f"nothing says what {len(members) - count} of the {len(members)} members of {group} subscribe"
        solution = "look at the log of their programs; all members subscribe the same topics with the same filters"
        return [Finding(Verdict.WARNING, result, check, solution)]
    return [Finding(Verdict.OK, f"the {count} members of {group} want the same", check)] if members else []


def _waiting_messages(group: str, members: list[groups.Member], lag: groups.GroupLag) -> list[Finding]:
    check = "compared its offsets with the ends of the queues"
    if lag.lag and not members:
        solution = "start its consumers, with this group and these name servers"
        result = f"no member of {group} is online, and {lag.lag} messages wait (CODE 206, CONSUMER_NOT_ONLINE)"
        return [Finding(Verdict.WRONG, result, check, solution)]
    if lag.lag and not lag.per_second:
        solution = "look at the log of its consumers: a handler that hangs, or a queue that another client holds"
        result = f"{lag.lag} messages wait for {group}, and it took none within the last minute"
        return [Finding(Verdict.WARNING, result, check, solution)]
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
    starts = await _consume_starts(servers, group)
    return _offsets_outside_queues(group, lag, ranges_by_topic) + _starts_at_end(group, lag, ranges_by_topic, starts)


async def _consume_starts(servers: Servers, group: str) -> set[str | None]:
    answers, _ = await servers.ask_masters(
        await servers.all_masters(), lambda _, address: catalogue.group_connections(servers, address, group)
    )
    return {connections.consume_from_where for connections in answers.values()}


def _offsets_outside_queues(
    group: str, lag: groups.GroupLag, ranges: Mapping[str, Mapping[MessageQueue, range]]
) -> list[Finding]:
    check, findings = "compared its offsets with the beginnings and ends of the queues", []
    counts_ahead: dict[str, int] = {}
    deleted_counts: dict[str, int] = {}
    for queue_lag in lag.queues:
        offsets = ranges.get(queue_lag.queue.topic, {}).get(queue_lag.queue)
        if offsets is not None and queue_lag.committed > offsets.stop:
            counts_ahead[queue_lag.queue.topic] = (
                counts_ahead.get(queue_lag.queue.topic, 0) + queue_lag.committed - offsets.stop
            )
        elif offsets is not None and queue_lag.committed < offsets.start:
            deleted_counts[queue_lag.queue.topic] = (
                deleted_counts.get(queue_lag.queue.topic, 0) + offsets.start - queue_lag.committed
            )
    for topic, count in counts_ahead.items():
        result = f"{group} is {count} messages ahead of the end of {topic}, so what comes next may never reach it"
        solution = (
            f"`sparrowmq group reset {group} {topic} earliest`, or latest: the topic was created again, or the broker "
            "lost its end"
        )
        findings.append(Finding(Verdict.WRONG, result, check, solution))
    for topic, count in deleted_counts.items():
        result = f"{count} messages of {topic} were deleted before {group} consumed them: it continues after them"
        solution = "raise fileReservedTime of the brokers, or have more consumers, if none may be lost"
        findings.append(Finding(Verdict.WARNING, result, check, solution))
    return findings


def _starts_at_end(
    group: str, lag: groups.GroupLag, ranges: Mapping[str, Mapping[MessageQueue, range]], starts: set[str | None]
) -> list[Finding]:
    """Return findings of topics with messages, without an offset, that the group begins at the end."""
    if _FROM_END_START not in starts:
        return []
    check = "asked its brokers where its members begin (203), and looked for its offsets"
    topics_with_offsets = {offsets.queue.topic for offsets in lag.queues}
    findings = []
    for topic in sorted(ranges.keys() - topics_with_offsets):
        if count := sum(len(offsets) for offsets in ranges[topic].values()):
            result = (
                f"{group} has no offset of {topic} and begins at its end ({_FROM_END_START}): the {count} messages "
                "that are there do not come"
            )
            solution = f'`sparrowmq group reset {group} {topic} earliest` if they shall, or start="earliest"'
            findings.append(Finding(Verdict.WARNING, result, check, solution))
    return findings


async def _dead_letter_findings(servers: Servers, group: str) -> list[Finding]:
    topic = dlq_topic(group)
    check = f"looked for its dead letters in {topic}"
    try:
        await servers.route(topic)
    except SparrowError:
        return []  # It has none.
    solution = (
        f"look at them with `sparrowmq dlq list {group}`, and send them again with `sparrowmq dlq redrive {group}`"
    )
    return [Finding(Verdict.WARNING, f"{group} has dead letters: messages that failed every try", check, solution)]


_CONNECT_LIMIT_S: Final = 2.0
_SILENCE_LIMIT_S: Final = 1.0  # a server that is full ends a connection sooner; one that runs waits for a request
# Networks of containers by Docker and its kind, which no other machine reaches.
_CONTAINER_NETWORKS: Final = tuple(map(ipaddress.ip_network, ("172.16.0.0/12", "10.88.0.0/16", "10.42.0.0/15")))
_HANGING_ADVICE: Final = (
    "it takes connections, but the process hangs. On its machine `ss -ltnp sport = :{port}` shows its PID, and "
    "`ps -o stat,wchan,args PID` its state. T is stopped: `kill -CONT PID`; D waits for a disk: `dmesg`. Otherwise, or "
    "if that does not help, `kill -KILL PID` and start it again: messages on disk stay"
)
_FULL_ADVICE: Final = (
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

    `runs` says whether a process takes connections there, `is_hanging` whether this process hangs.
    """

    text: str
    runs: bool
    is_hanging: bool


async def remedy(address: str, error: NetworkError) -> Remedy:
    ends = await _ends_connections(address)
    if ends is None:
        return Remedy(f"{reachability_advice(address)} ({error})", runs=False, is_hanging=False)
    if ends:
        return Remedy(_FULL_ADVICE.format(address=address), runs=True, is_hanging=False)
    return Remedy(_HANGING_ADVICE.format(port=address.rpartition(":")[2]), runs=True, is_hanging=True)


def reachability_advice(address: str) -> str:
    """Return what may keep clients from an address; Java's clients say "connect to <address> failed"."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return f"see that {host} can be resolved and reached from here, or set brokerIP1 to an address that can"
    if ip.is_loopback:
        return "see that it runs; a broker at 127.0.0.1 can be used on its own machine only: set its brokerIP1"
    if any(ip in network for network in _CONTAINER_NETWORKS if ip.version == network.version):
        return (
            f"{host} looks like the address inside a container or virtual machine, which only that machine reaches: "
            "set brokerIP1 to the address of the host, and publish the port under the same number"
        )
    return "see that it runs and that no firewall keeps listenPort from you; set brokerIP1 if the address is wrong"


async def _ends_connections(address: str) -> bool | None:
    """Return whether a server ends a new connection before a request comes; None if it takes none."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:  # a TimeoutError is one
        return None
    try:
        async with asyncio.timeout(_SILENCE_LIMIT_S):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except OSError:  # as a reset
        return True
    finally:
        writer.close()
