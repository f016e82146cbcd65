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
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.admin import catalogue
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
_QUEUE_ROW: Final = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"
_QUEUE_ROW_WITH_CLIENT: Final = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s  %-20s %-20s  %s"
_GROUP_ROW: Final = "%-64.64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_MEMBER_ROW: Final = "%-36s %-22s %-10s %s"
_RUNNING_MEMBER_ROW: Final = "%-10s %-40s %-20s %s"
_RUNNING_QUEUE_ROW: Final = "%-64s  %-32s  %-4s  %-20s\n"
_OFFSET_ROW: Final = "%-32s  %-32s  %-4d  %-20d\n"
_DETAIL_ROW: Final = "%-64s  %-32s  %-4d  %s\n"
_RATE_HEADS: Final = "%-64s  %14s %14s %14s %14s %18s %25s\n"
_RATE_ROW: Final = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d\n"
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

    sentence = "create subscription group to %s success."
    if await change_each(call, lambda address: catalogue.put_group(call, address, group), sentence, _FAILED_PAUSE_S):
        call.write(java.to_string("SubscriptionGroupConfig", java.group_table(group)))


async def set_consume_mode(call: Call) -> None:
    mode = RequestMode(call.text("t"), call.text("g"), call.text("m"), call.number("q"))

    sentence = "set consume mode to %s success."
    if await change_each(
        call, lambda address: catalogue.put_request_mode(call, address, mode), sentence, _FAILED_PAUSE_S
    ):
        names = f"topic[{mode.topic}] group[{mode.consumer_group}]"
        call.write(f"{names} consume mode[{mode.mode}] popShareQueueNum[{mode.pop_share_queue_num}]")


async def delete_sub_group(call: Call) -> None:
    group = call.text("g")
    removes_offsets = call.is_true("r")
    if call.has("b"):
        await catalogue.delete_group(call, call.text("b"), group, with_offsets=removes_offsets)
        call.line("delete subscription group [%s] from broker [%s] success.", group, call.text("b"))
    elif call.has("c"):
        cluster = call.text("c")
        for address in await masters_of(call, cluster):
            await catalogue.delete_group(call, address, group, with_offsets=removes_offsets)
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
    table = await catalogue.cluster_table(call)
    group = call.text("g")

    async def read_config(row: tuple[str, BrokerRoute]) -> tuple[str, GroupConfig | None]:
        name, broker = row
        address = address_to_ask(broker.broker_addrs) or ""
        return name, (await catalogue.group_table(call, address)).get(group)

    for name, config in await call.all_answers(java.in_map_order(table.broker_addr_table), read_config):
        if config is None:
            continue
        cluster = cluster_of(table, name)
        call.line("=============================%s:%s=============================", java.value_text(cluster), name)
        for key, value in java.group_table(config).items():
            call.line("%-40s=  %s", key, java.value_text(value))


# Lag, members and rates ----------------------------------------------------------------------------------------------


async def consume_stats(call: Call, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the offsets of a group at its brokers. Raises: Failure, with code 17 for an unknown group."""
    total = ConsumeStats()
    addresses = addresses_to_ask(await call.route(retry_topic(group)))
    for stats in await call.all_answers(
        addresses, lambda address: catalogue.group_progress(call, address, group, topic)
    ):
        total.offset_table.update(stats.offset_table)
        total.consume_tps += stats.consume_tps
    if not total.offset_table:
        raise client_failure(
            "Not found the consumer group consume stats, because return offset table is empty, maybe the consumer "
            "not consume any message",
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
    return total


def lag_of(stats: ConsumeStats) -> int:
    return sum(row.lag for row in stats.offset_table.values())


async def online_members(call: Call, group: str, address: str | None = None) -> ConsumerConnections:
    """Return the online members of a group, from the given broker or any of its brokers."""
    addresses = [address] if address else _shuffled(await call.route(retry_topic(group)))
    members = await call.first_answer(addresses, lambda broker: catalogue.group_connections(call, broker, group))
    if not members.connection_set:
        raise client_failure("Not found the consumer group connection", ResponseCode.CONSUMER_NOT_ONLINE)
    return members


async def running_info(call: Call, group: str, client_id: str, jstack: bool = False) -> ConsumerRunning:
    addresses = addresses_to_ask(await call.route(RETRY + group))
    return await call.first_answer(
        addresses, lambda address: catalogue.running_member(call, address, group, client_id, jstack=jstack)
    )


async def consumers_of(call: Call, topic: str) -> list[str]:
    """Return the groups that consume a topic, from the first of its brokers that answers."""
    addresses = addresses_to_ask(await call.route(topic))
    return java.in_set_order(
        await call.first_answer(addresses, lambda address: catalogue.groups_of_topic(call, address, topic))
    )


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
            stats = await catalogue.broker_statistic(call, address, name, key)
        except Failure:
            continue
        per_second += stats.stats_minute.tps
        count += stats.sum_of_day
    return per_second, count


async def consumer_connection(call: Call) -> None:
    members = await online_members(call, call.text("g"), call.text("b") or None)
    call.line(_MEMBER_ROW, "#ClientId", "#ClientAddr", "#Language", "#Version")
    for member in members.connection_set:
        call.line(_MEMBER_ROW, member.client_id, member.client_addr, member.language, version_name(member.version))
    call.line("\nBelow is subscription:")
    call.line("%-20s %s", "#Topic", "#SubExpression")
    for _, subscription in java.in_map_order(members.subscription_table):
        call.line("%-20s %s", subscription.topic, subscription.expression)
    call.line("\nConsumeType: %s", java.value_text(members.consume_type))
    call.line("MessageModel: %s", java.value_text(members.message_model))
    call.line("ConsumeFromWhere: %s", java.value_text(members.consume_from_where))


async def producer_connection(call: Call) -> None:
    brokers = _shuffled(await call.route(call.text("t")))
    producers = await call.first_answer(
        brokers, lambda broker: catalogue.producer_connections(call, broker, call.text("g"))
    )
    for number, client in enumerate(producers.connection_set, 1):
        version = version_name(client.version)
        call.line("%04d  %-32s %-22s %-8s %s", number, client.client_id, client.client_addr, client.language, version)


async def consumer_progress(call: Call) -> None:
    if not call.has("g"):
        call.heads(_GROUP_ROW, "#Group|#Count|#Version|#Type|#Model|#TPS|#Diff Total")
        for topic in await call.topics():
            if topic.startswith(RETRY):
                group = topic.removeprefix(RETRY)
                call.line(_GROUP_ROW, group, *await _group_row(call, group))
        return
    group, shows_clients = call.text("g"), call.is_true("s")
    stats = await consume_stats(call, group)
    clients = await _hosts_by_queue(call, group) if shows_clients else {}
    form = _QUEUE_ROW_WITH_CLIENT if shows_clients else _QUEUE_ROW
    client_head = "#Client IP|" if shows_clients else ""
    call.heads(form, f"#Topic|#Broker Name|#QID|#Broker Offset|#Consumer Offset|{client_head}#Diff|#LastTime")
    for queue, row in sorted(stats.offset_table.items()):
        place = queue.topic, queue.broker_name, queue.queue_id
        offsets = row.broker_offset, row.consumer_offset
        client = [clients.get(queue, "N/A")] if shows_clients else []
        when = java.time_text(row.last_timestamp) if row.last_timestamp else "N/A"
        call.line(form, *place, *offsets, *client, row.lag, when)
    call.line("\nConsume TPS: %.2f", stats.consume_tps)
    call.line("Diff Total: %d", lag_of(stats))


async def _hosts_by_queue(call: Call, group: str) -> dict[MessageQueue, str]:
    """Return the host of each queue, as far as members answer."""
    hosts: dict[MessageQueue, str] = {}
    with suppress(Failure):
        for member in (await online_members(call, group)).connection_set:
            report = await running_info(call, group, member.client_id)
            hosts.update(dict.fromkeys(report.mq_table, member.client_id.split("@")[0]))
    return hosts


async def _group_row(call: Call, group: str) -> tuple[object, ...]:
    per_second, lag = 0, 0
    with suppress(Failure):
        stats = await consume_stats(call, group)
        per_second, lag = int(stats.consume_tps), lag_of(stats)
    try:
        members = await online_members(call, group)
    except Failure:
        return 0, "OFFLINE", "", "", per_second, lag
    oldest = min(member.version for member in members.connection_set)
    kind = "PULL" if members.consume_type == "CONSUME_ACTIVELY" else "PUSH"
    model = members.message_model if members.consume_type == "CONSUME_PASSIVELY" else ""
    return len(members.connection_set), version_name(oldest), kind, model, per_second, lag


# Reports of members --------------------------------------------------------------------------------------------------


async def consumer_status(call: Call) -> None:
    group, jstack = call.text("g"), call.has("s")
    members = await online_members(call, group, call.text("b") or None)
    if call.has("i"):
        call.write(describe(await running_info(call, group, call.text("i"), jstack)))
        return
    folder = Path(str(round(time.time() * 1000)))
    reports: dict[str, ConsumerRunning] = {}
    call.line(_RUNNING_MEMBER_ROW, "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    for member in members.connection_set:
        client_id = member.client_id
        try:
            reports[client_id] = await running_info(call, group, client_id, jstack)
            path = _write_report(folder, client_id, describe(reports[client_id]))
        except Failure as failure:
            call.complain(failure)
            continue
        call.line(_RUNNING_MEMBER_ROW, len(reports), client_id, version_name(member.version), path)
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
    for client_id, report in sorted(reports.items()):
        for complaint in complaints(client_id, report):
            call.line(complaint)


def have_same_subscription(reports: Mapping[str, ConsumerRunning]) -> bool:
    """Return whether all members subscribe the same; young members and pull consumers are not compared."""
    ordered = [report for _, report in sorted(reports.items())]
    first = ordered[0].properties
    started_ms = int(first.get("PROP_CONSUMER_START_TIMESTAMP") or time.time() * 1000)
    if not _is_push(ordered[0]) or time.time() * 1000 - started_ms <= _SETTLED_MS:
        return True
    subscriptions = {
        frozenset(
            (subscription.topic, subscription.expression, subscription.kind) for subscription in report.subscription_set
        )
        for report in ordered
    }
    return len(subscriptions) == 1 and bool(ordered[-1].subscription_set)


def complaints(client_id: str, report: ConsumerRunning) -> Iterator[str]:
    """Yield the queues of a member that are stuck."""
    if not _is_push(report):
        return
    now_ms = time.time() * 1000
    is_orderly = java.is_true(report.properties.get("PROP_CONSUMEORDERLY", "false"))
    for queue, state in sorted(report.mq_table.items()):
        subject = f"{client_id} {java.queue_text(queue)}"
        if is_orderly and not state.locked:
            yield f"{subject} can't lock for a while, {now_ms - state.last_lock_timestamp:.0f}ms"
        elif is_orderly and state.dropped and state.try_unlock_times > 0:
            yield f"{subject} unlock {state.try_unlock_times} times, still failed"
        elif not is_orderly and state.cached_msg_count > 0:
            silent_ms = now_ms - state.last_consume_timestamp
            if silent_ms > _STUCK_MS:
                yield f"{subject} can't consume for a while, maybe blocked, {silent_ms:.0f}ms"


def _is_push(report: ConsumerRunning) -> bool:
    return report.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def describe(report: ConsumerRunning) -> str:
    """ConsumerRunningInfo.formatString."""
    parts = ["#Consumer Properties#\n"]
    parts += [f"{key:<40}: {value}\n" for key, value in java.in_map_order(report.properties)]
    parts.append("\n\n#Consumer Subscription#\n")
    for number, subscription in enumerate(
        sorted(report.subscription_set, key=lambda subscription: subscription.topic), 1
    ):
        parts.append(
            f"{number:03d} Topic: {subscription.topic:<40} "
            f"ClassFilter: {java.value_text(subscription.class_filter):<8} SubExpression: {subscription.expression}\n"
        )
    queues = sorted(report.mq_table.items())
    parts.append(
        "\n\n#Consumer Offset#\n" + _RUNNING_QUEUE_ROW % ("#Topic", "#Broker Name", "#QID", "#Consumer Offset")
    )
    parts += [_OFFSET_ROW % (*_place(queue), state.commit_offset) for queue, state in queues]
    parts.append(
        "\n\n#Consumer MQ Detail#\n" + _RUNNING_QUEUE_ROW % ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    )
    parts += [_DETAIL_ROW % (*_place(queue), _state_text(state)) for queue, state in queues]
    heads = "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS"
    parts.append("\n\n#Consumer RT&TPS#\n" + _RATE_HEADS % (*heads, "#ConsumeFailedMsgsInHour"))
    for topic, pace in sorted(report.status_table.items()):
        rates = pace.pull_rt, pace.pull_tps, pace.consume_rt, pace.consume_ok_tps, pace.consume_failed_tps
        parts.append(_RATE_ROW % (topic, *rates, pace.consume_failed_msgs))
    if report.jstack is not None:
        parts.append(f"\n\n#Consumer jstack#\n{report.jstack}")
    return "".join(parts)


def _place(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _state_text(state: ProcessQueueState) -> str:
    """ProcessQueueInfo.toString."""
    return java.to_string(
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
        members = await online_members(call, group)
        stats = await consume_stats(call, group)
    except Failure:
        return
    for topic, total, greatest in _lags_by_topic(stats):
        values = f"consumerGroup={group}, topic={topic}, undoneMsgsTotal={total}, undoneMsgsSingleMQ={greatest}"
        call.line("[MONITOR] reportUndoneMsgs: UndoneMsgs [%s]", values)
    reports: dict[str, ConsumerRunning] = {}
    for member in members.connection_set:
        with suppress(Failure):
            reports[member.client_id] = await running_info(call, group, member.client_id)
    if reports and not have_same_subscription(reports):
        call.line("[NOTIFY] reportConsumerRunningInfo: ConsumerGroup: %s, Subscription different", group)
    for client_id, report in sorted(reports.items()):
        for complaint in complaints(client_id, report):
            subject = f"ConsumerGroup: {group}, ClientId: {client_id}"
            call.line("[NOTIFY] reportConsumerRunningInfo: %s, %s", subject, complaint)


def _lags_by_topic(stats: ConsumeStats) -> Iterator[tuple[str, int, int]]:
    for topic in sorted({queue.topic for queue in stats.offset_table}):
        lags = [max(0, row.lag) for queue, row in stats.offset_table.items() if queue.topic == topic]
        yield topic, sum(lags), max(lags)
