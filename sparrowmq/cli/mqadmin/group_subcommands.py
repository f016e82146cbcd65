"""Groups: their settings (updateSubGroup, setConsumeMode, deleteSubGroup, getConsumerConfig), lag and members
(consumerProgress, consumerConnection, producerConnection), and reports (consumerStatus, startMonitoring).

As in Java's tools, a group is found by the route of its retry topic; without a retry topic a group is unknown.
Source: the classes of org.apache.rocketmq.tools.command.consumer and .connection, DefaultMQAdminExtImpl,
ConsumerRunningInfo, ProcessQueueInfo and MonitorService, Java 4.9.8.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import (
    Call,
    address_to_ask,
    addresses_to_ask,
    change_each,
    cluster_of,
    masters_of,
    remove_topic,
)
from sparrowmq.cli.mqadmin.java import Failure, client_failure, write
from sparrowmq.client.admin.operations import (
    broker_statistic,
    cluster_table,
    delete_group,
    group_connections,
    group_progress,
    group_table,
    groups_of_topic,
    producer_connections,
    put_group,
    put_request_mode,
    running_member,
)
from sparrowmq.protocol.codes import ResponseCode, version_name
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY, dlq_topic, retry_topic
from sparrowmq.protocol.requests.bodies import BrokerRoute, GroupConfig, TopicRoute
from sparrowmq.protocol.requests.client_bodies import (
    ConsumerConnections,
    ConsumerRunning,
    ProcessQueueState,
    RequestMode,
)
from sparrowmq.protocol.requests.group_settings import GroupRetryPolicy
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats

_FAILED_PAUSE_S: Final = 1.0
_QUEUE: Final = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"
_QUEUE_WITH_CLIENT: Final = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s  %-20s %-20s  %s"
_GROUP: Final = "%-64.64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_MEMBER: Final = "%-36s %-22s %-10s %s"
_RUNNING_MEMBER: Final = "%-10s %-40s %-20s %s"
_RUNNING_QUEUE: Final = "%-64s  %-32s  %-4s  %-20s\n"
_OFFSET: Final = "%-32s  %-32s  %-4d  %-20d\n"
_DETAIL: Final = "%-64s  %-32s  %-4d  %s\n"
_RATE_HEAD: Final = "%-64s  %14s %14s %14s %14s %18s %25s\n"
_RATE: Final = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d\n"
_SETTLED_MS: Final = 120_000  # younger members may not know of a change yet
_STUCK_MS: Final = 60_000
_ROUND_S: Final = 60.0
_FIRST_ROUND_S: Final = 20.0


async def update_sub_group(call: Call) -> None:
    group = GroupConfig(
        call.text("g"),
        consume_enable=call.is_true("s", True),
        consume_from_min_enable=call.is_true("m"),
        consume_broadcast_enable=call.is_true("d"),
        retry_queue_nums=call.number("q", 1),
        retry_max_times=call.number("r", 16),
        broker_id=call.number("i"),
        which_broker_when_consume_slowly=call.number("w", 1),
        notify_consumer_ids_changed_enable=call.is_true("a", True),
        consume_message_orderly=call.is_true("o") if call.has("o") else None,
        group_retry_policy=GroupRetryPolicy.decode(call.text("p").encode()) if call.has("p") else None,
    )

    async def put(address: str) -> None:
        await put_group(call, address, group)
        call.line("create subscription group to %s success.", address)

    if await change_each(call, put, _FAILED_PAUSE_S):
        call.write(java.fields("SubscriptionGroupConfig", java.group_table(group)))


async def set_consume_mode(call: Call) -> None:
    mode = RequestMode(call.text("t"), call.text("g"), call.text("m"), call.number("q"))

    async def put(address: str) -> None:
        await put_request_mode(call, address, mode)
        call.line("set consume mode to %s success.", address)

    if await change_each(call, put, _FAILED_PAUSE_S):
        names = f"topic[{mode.topic}] group[{mode.consumer_group}]"
        call.write(f"{names} consume mode[{mode.mode}] popShareQueueNum[{mode.pop_share_queue_num}]")


async def delete_sub_group(call: Call) -> None:
    group = call.text("g")
    removes = call.is_true("r")
    if call.has("b"):
        await delete_group(call, call.text("b"), group, with_offsets=removes)
        call.line("delete subscription group [%s] from broker [%s] success.", group, call.text("b"))
    elif call.has("c"):
        cluster = call.text("c")
        for address in await masters_of(call, cluster):
            await delete_group(call, address, group, with_offsets=removes)
            place = f"broker [{address}] in cluster [{cluster}]"
            call.line("delete subscription group [%s] from %s success.", group, place)
        try:
            await remove_topic(call, retry_topic(group), cluster)
            await remove_topic(call, dlq_topic(group), cluster)
        except Failure as failure:
            call.complain(failure)
    else:
        call.show_usage()


async def get_consumer_config(call: Call) -> None:
    table = await cluster_table(call)
    group = call.text("g")

    async def at(row: tuple[str, BrokerRoute]) -> tuple[str, GroupConfig | None]:
        name, broker = row
        address = address_to_ask(broker.broker_addrs) or ""
        return name, (await group_table(call, address)).get(group)

    for name, config in await call.all_answers(java.table(table.broker_addr_table), at):
        if config is None:
            continue
        cluster = cluster_of(table, name)
        call.line("=============================%s:%s=============================", java.text(cluster), name)
        for key, value in java.group_table(config).items():
            call.line("%-40s=  %s", key, java.text(value))


# Lag, members and rates ----------------------------------------------------------------------------------------------


async def consume_stats(call: Call, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the offsets of a group at its brokers. Raises: Failure, with code 17 for an unknown group."""
    found = ConsumeStats()
    addresses = addresses_to_ask(await call.route(retry_topic(group)))
    for stats in await call.all_answers(addresses, lambda address: group_progress(call, address, group, topic)):
        found.offset_table.update(stats.offset_table)
        found.consume_tps += stats.consume_tps
    if not found.offset_table:
        raise client_failure(
            "Not found the consumer group consume stats, because return offset table is empty, maybe the consumer "
            "not consume any message",
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
    return found


def lag_of(stats: ConsumeStats) -> int:
    return sum(row.lag for row in stats.offset_table.values())


async def online_members(call: Call, group: str, address: str | None = None) -> ConsumerConnections:
    """Return the online members of a group, from the given broker or any of its brokers."""
    places = [address] if address else _shuffled(await call.route(retry_topic(group)))
    found = await call.first_answer(places, lambda place: group_connections(call, place, group))
    if not found.connection_set:
        raise client_failure("Not found the consumer group connection", ResponseCode.CONSUMER_NOT_ONLINE)
    return found


async def running_info(call: Call, group: str, client_id: str, jstack: bool = False) -> ConsumerRunning:
    addresses = addresses_to_ask(await call.route(RETRY + group))
    return await call.first_answer(
        addresses, lambda address: running_member(call, address, group, client_id, jstack=jstack)
    )


async def consumers_of(call: Call, topic: str) -> list[str]:
    """Return the groups that consume a topic, from the first of its brokers that answers."""
    addresses = addresses_to_ask(await call.route(topic))
    return java.names(await call.first_answer(addresses, lambda address: groups_of_topic(call, address, topic)))


def _shuffled(route: TopicRoute) -> list[str]:
    addresses = addresses_to_ask(route)
    return random.sample(addresses, len(addresses))


async def figure_of_brokers(call: Call, addresses: Iterable[str], name: str, key: str) -> tuple[float, int]:
    """Return the sum of a figure over all brokers: per second in the last minute, and per day.

    A broker that has counted nothing answers with an error, which counts as 0.
    """
    per_second, count = 0.0, 0
    for address in addresses:
        try:
            stats = await broker_statistic(call, address, name, key)
        except Failure:
            continue
        per_second += stats.stats_minute.tps
        count += stats.sum_of_day
    return per_second, count


async def consumer_connection(call: Call) -> None:
    found = await online_members(call, call.text("g"), call.text("b") or None)
    call.line(_MEMBER, "#ClientId", "#ClientAddr", "#Language", "#Version")
    for each in found.connection_set:
        call.line(_MEMBER, each.client_id, each.client_addr, each.language, version_name(each.version))
    call.line("\nBelow is subscription:")
    call.line("%-20s %s", "#Topic", "#SubExpression")
    for _, wish in java.table(found.subscription_table):
        call.line("%-20s %s", wish.topic, wish.expression)
    call.line()
    call.line("ConsumeType: %s", java.text(found.consume_type))
    call.line("MessageModel: %s", java.text(found.message_model))
    call.line("ConsumeFromWhere: %s", java.text(found.consume_from_where))


async def producer_connection(call: Call) -> None:
    places = _shuffled(await call.route(call.text("t")))
    found = await call.first_answer(places, lambda place: producer_connections(call, place, call.text("g")))
    for number, each in enumerate(found.connection_set, 1):
        version = version_name(each.version)
        call.line("%04d  %-32s %-22s %-8s %s", number, each.client_id, each.client_addr, each.language, version)


async def consumer_progress(call: Call) -> None:
    if not call.has("g"):
        await _all_groups(call)
        return
    group, shows_clients = call.text("g"), call.text("s").lower() == "true"
    stats = await consume_stats(call, group)
    clients = await _clients(call, group) if shows_clients else {}
    form = _QUEUE_WITH_CLIENT if shows_clients else _QUEUE
    who = "#Client IP|" if shows_clients else ""
    call.heads(form, f"#Topic|#Broker Name|#QID|#Broker Offset|#Consumer Offset|{who}#Diff|#LastTime")
    for queue, row in sorted(stats.offset_table.items()):
        place = queue.topic, queue.broker_name, queue.queue_id
        offsets = row.broker_offset, row.consumer_offset
        client = [clients.get(queue, "N/A")] if shows_clients else []
        when = java.time_text(row.last_timestamp) if row.last_timestamp else "N/A"
        call.line(form, *place, *offsets, *client, row.lag, when)
    call.line("\nConsume TPS: %.2f", stats.consume_tps)
    call.line("Diff Total: %d", lag_of(stats))


async def _clients(call: Call, group: str) -> dict[MessageQueue, str]:
    """Return the host of each queue, as far as members answer."""
    found: dict[MessageQueue, str] = {}
    try:
        for each in (await online_members(call, group)).connection_set:
            report = await running_info(call, group, each.client_id)
            found.update(dict.fromkeys(report.mq_table, each.client_id.split("@")[0]))
    except Failure:
        pass
    return found


async def _all_groups(call: Call) -> None:
    call.heads(_GROUP, "#Group|#Count|#Version|#Type|#Model|#TPS|#Diff Total")
    for topic in await call.topics():
        if topic.startswith(RETRY):
            group = topic.removeprefix(RETRY)
            call.line(_GROUP, group, *await _summary(call, group))


async def _summary(call: Call, group: str) -> tuple[object, ...]:
    pace, behind = 0, 0
    try:
        stats = await consume_stats(call, group)
        pace, behind = int(stats.consume_tps), lag_of(stats)
    except Failure:
        pass
    try:
        found = await online_members(call, group)
    except Failure:
        return 0, "OFFLINE", "", "", pace, behind
    is_push = found.consume_type == "CONSUME_PASSIVELY"
    oldest = min(each.version for each in found.connection_set)
    kind = "PULL" if found.consume_type == "CONSUME_ACTIVELY" else "PUSH"
    model = found.message_model if is_push else ""
    return len(found.connection_set), version_name(oldest), kind, model, pace, behind


# Reports of members --------------------------------------------------------------------------------------------------


async def consumer_status(call: Call) -> None:
    group, jstack = call.text("g"), call.has("s")
    found = await online_members(call, group, call.text("b") or None)
    if call.has("i"):
        call.write(describe(await running_info(call, group, call.text("i"), jstack)))
        return
    folder = Path(str(round(time.time() * 1000)))
    reports: dict[str, ConsumerRunning] = {}
    call.line(_RUNNING_MEMBER, "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    for each in found.connection_set:
        try:
            reports[each.client_id] = await running_info(call, group, each.client_id, jstack)
            path = _write_report(folder, each.client_id, describe(reports[each.client_id]))
        except Failure as failure:
            call.complain(failure)
            continue
        call.line(_RUNNING_MEMBER, len(reports), each.client_id, version_name(each.version), path)
    if reports:
        _print_verdict(call, reports)


def _write_report(folder: Path, client_id: str, text: str) -> Path:
    """Write a member's report to a file below the current folder, as Java does. Raises: Failure.

    A client may have any id, such as `..`, or one that is too long for the name of a file.
    """
    name = client_id.replace("/", "_").replace("\0", "_")
    return write(folder / (name if name.strip(".") else f"_{name}"), text.encode())


def _print_verdict(call: Call, reports: Mapping[str, ConsumerRunning]) -> None:
    if not have_same_subscription(reports):
        call.write("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    call.write("\n\nSame subscription in the same group of consumer")
    call.write("\n\nRebalance OK\n")
    for client_id, each in sorted(reports.items()):
        for complaint in complaints(client_id, each):
            call.line(complaint)


def have_same_subscription(reports: Mapping[str, ConsumerRunning]) -> bool:
    """Return whether all members subscribe the same; young members and pull consumers are not compared."""
    rows = [each for _, each in sorted(reports.items())]
    first = rows[0].properties
    started_ms = int(first.get("PROP_CONSUMER_START_TIMESTAMP") or time.time() * 1000)
    if not _is_push(rows[0]) or time.time() * 1000 - started_ms <= _SETTLED_MS:
        return True
    wishes = {frozenset((each.topic, each.expression, each.kind) for each in row.subscription_set) for row in rows}
    return len(wishes) == 1 and bool(rows[-1].subscription_set)


def complaints(client_id: str, report: ConsumerRunning) -> Iterator[str]:
    """Yield the queues of a member that are stuck."""
    if not _is_push(report):
        return
    now_ms = time.time() * 1000
    is_orderly = java.is_true(report.properties.get("PROP_CONSUMEORDERLY", "false"))
    for queue, state in sorted(report.mq_table.items()):
        where = f"{client_id} {java.queue_text(queue)}"
        if is_orderly and not state.locked:
            yield f"{where} can't lock for a while, {now_ms - state.last_lock_timestamp:.0f}ms"
        elif is_orderly and state.dropped and state.try_unlock_times > 0:
            yield f"{where} unlock {state.try_unlock_times} times, still failed"
        elif not is_orderly and state.cached_msg_count > 0:
            silent_ms = now_ms - state.last_consume_timestamp
            if silent_ms > _STUCK_MS:
                yield f"{where} can't consume for a while, maybe blocked, {silent_ms:.0f}ms"


def _is_push(report: ConsumerRunning) -> bool:
    return report.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def describe(report: ConsumerRunning) -> str:
    """ConsumerRunningInfo.formatString."""
    parts = ["#Consumer Properties#\n"]
    parts += [f"{key:<40}: {value}\n" for key, value in java.table(report.properties)]
    parts.append("\n\n#Consumer Subscription#\n")
    for number, each in enumerate(sorted(report.subscription_set, key=lambda each: each.topic), 1):
        parts.append(
            f"{number:03d} Topic: {each.topic:<40} ClassFilter: {java.text(each.class_filter):<8} "
            f"SubExpression: {each.expression}\n"
        )
    queues = sorted(report.mq_table.items())
    parts.append("\n\n#Consumer Offset#\n" + _RUNNING_QUEUE % ("#Topic", "#Broker Name", "#QID", "#Consumer Offset"))
    parts += [_OFFSET % (*_place(queue), state.commit_offset) for queue, state in queues]
    parts.append(
        "\n\n#Consumer MQ Detail#\n" + _RUNNING_QUEUE % ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    )
    parts += [_DETAIL % (*_place(queue), _state_text(state)) for queue, state in queues]
    heads = "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS"
    parts.append("\n\n#Consumer RT&TPS#\n" + _RATE_HEAD % (*heads, "#ConsumeFailedMsgsInHour"))
    for topic, pace in sorted(report.status_table.items()):
        rates = pace.pull_rt, pace.pull_tps, pace.consume_rt, pace.consume_ok_tps, pace.consume_failed_tps
        parts.append(_RATE % (topic, *rates, pace.consume_failed_msgs))
    if report.jstack is not None:
        parts.append(f"\n\n#Consumer jstack#\n{report.jstack}")
    return "".join(parts)


def _place(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _state_text(state: ProcessQueueState) -> str:
    """ProcessQueueInfo.toString."""
    return java.fields(
        "ProcessQueueInfo",
        {
            "commitOffset": state.commit_offset,
            "cachedMsgMinOffset": state.cached_msg_min_offset,
            "cachedMsgMaxOffset": state.cached_msg_max_offset,
            "cachedMsgCount": state.cached_msg_count,
            "cachedMsgSizeInMiB": state.cached_msg_size_in_mib,
            "transactionMsgMinOffset": state.transaction_msg_min_offset,
            "transactionMsgMaxOffset": state.transaction_msg_max_offset,
            "transactionMsgCount": state.transaction_msg_count,
            "locked": state.locked,
            "tryUnlockTimes": state.try_unlock_times,
            "lastLockTimestamp": java.compact_time_text(state.last_lock_timestamp),
            "droped": state.dropped,
            "lastPullTimestamp": java.compact_time_text(state.last_pull_timestamp),
            "lastConsumeTimestamp": java.compact_time_text(state.last_consume_timestamp),
        },
    )


# startMonitoring ----------------------------------------------------------------------------------------------------


async def start_monitoring(call: Call) -> None:
    """Unlike Java, which writes to a log file of its own and so shows nothing."""
    await call.pause(_FIRST_ROUND_S)
    while True:
        await report_all_groups(call)
        await call.pause(_ROUND_S)


async def report_all_groups(call: Call) -> None:
    """Report once on all groups. Raises: Failure, no name server answers."""
    for topic in await call.topics():
        if topic.startswith(RETRY):
            await _report_group(call, topic.removeprefix(RETRY))


async def _report_group(call: Call, group: str) -> None:
    try:
        found = await online_members(call, group)
        stats = await consume_stats(call, group)
    except Failure:
        return
    for topic, total, most in _behind(stats):
        values = f"consumerGroup={group}, topic={topic}, undoneMsgsTotal={total}, undoneMsgsSingleMQ={most}"
        call.line("[MONITOR] reportUndoneMsgs: UndoneMsgs [%s]", values)
    reports: dict[str, ConsumerRunning] = {}
    for each in found.connection_set:
        try:
            reports[each.client_id] = await running_info(call, group, each.client_id)
        except Failure:
            continue
    if reports and not have_same_subscription(reports):
        call.line("[NOTIFY] reportConsumerRunningInfo: ConsumerGroup: %s, Subscription different", group)
    for client_id, member in sorted(reports.items()):
        for complaint in complaints(client_id, member):
            where = f"ConsumerGroup: {group}, ClientId: {client_id}"
            call.line("[NOTIFY] reportConsumerRunningInfo: %s, %s", where, complaint)


def _behind(stats: ConsumeStats) -> Iterator[tuple[str, int, int]]:
    for topic in sorted({queue.topic for queue in stats.offset_table}):
        lags = [row.lag for queue, row in stats.offset_table.items() if queue.topic == topic]
        yield topic, sum(max(0, lag) for lag in lags), max(0, *lags)
