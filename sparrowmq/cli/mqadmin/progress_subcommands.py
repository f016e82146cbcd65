"""Lag, members and rates of groups: consumerProgress, consumerConnection, producerConnection.

As in Java's tools, a group is found by the route of its retry topic; without a retry topic a group is unknown.
Source: DefaultMQAdminExtImpl, ConsumerProgressSubCommand and the classes of .connection, Java 4.9.8.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure, client_failure
from sparrowmq.client.admin.operations import (
    broker_statistic,
    group_connections,
    group_progress,
    groups_of_topic,
    producer_connections,
    running_member,
)
from sparrowmq.protocol.codes import ResponseCode, version_name
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY, retry_topic
from sparrowmq.protocol.requests.bodies import TopicRoute
from sparrowmq.protocol.requests.client_bodies import ConsumerConnections, ConsumerRunning
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats

_QUEUE: Final = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"
_QUEUE_WITH_CLIENT: Final = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s  %-20s %-20s  %s"
_GROUP: Final = "%-64.64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_MEMBER: Final = "%-36s %-22s %-10s %s"


async def consume_stats(call: Call, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the offsets of a group at its brokers. Raises: Failure, with code 17 for an unknown group."""
    found = ConsumeStats()
    addresses = brokers_of.addresses(await call.route(retry_topic(group)))
    for stats in await call.each(addresses, lambda address: group_progress(call, address, group, topic)):
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


async def members(call: Call, group: str, address: str | None = None) -> ConsumerConnections:
    """Return the online members of a group, from the given broker or any of its brokers. Raises: Failure."""
    places = [address] if address else _shuffled(await call.route(retry_topic(group)))
    found = await call.first(places, lambda place: group_connections(call, place, group))
    if not found.connection_set:
        raise client_failure("Not found the consumer group connection", ResponseCode.CONSUMER_NOT_ONLINE)
    return found


async def running(call: Call, group: str, client_id: str, jstack: bool = False) -> ConsumerRunning:
    """Return the report of one member. Raises: Failure."""
    addresses = brokers_of.addresses(await call.route(RETRY + group))
    return await call.first(addresses, lambda address: running_member(call, address, group, client_id, jstack=jstack))


async def consumers_of(call: Call, topic: str) -> list[str]:
    """Return the groups that consume a topic, from the first of its brokers that answers. Raises: Failure."""
    addresses = brokers_of.addresses(await call.route(topic))
    return java.names(await call.first(addresses, lambda address: groups_of_topic(call, address, topic)))


def _shuffled(route: TopicRoute) -> list[str]:
    addresses = brokers_of.addresses(route)
    return random.sample(addresses, len(addresses))


async def measured(call: Call, addresses: Iterable[str], name: str, key: str) -> tuple[float, int]:
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
    found = await members(call, call.text("g"), call.text("b") or None)
    call.line(_MEMBER, "#ClientId", "#ClientAddr", "#Language", "#Version")
    for each in found.connection_set:
        call.line(_MEMBER, each.client_id, each.client_addr, each.language, version_name(each.version))
    call.line("\nBelow is subscription:")
    call.line("%-20s %s", "#Topic", "#SubExpression")
    for _, wish in java.table(found.subscription_table):
        call.line("%-20s %s", wish.topic, wish.expression)
    call.line()
    call.line("ConsumeType: %s", java.truth(found.consume_type))
    call.line("MessageModel: %s", java.truth(found.message_model))
    call.line("ConsumeFromWhere: %s", java.truth(found.consume_from_where))


async def producer_connection(call: Call) -> None:
    places = _shuffled(await call.route(call.text("t")))
    found = await call.first(places, lambda place: producer_connections(call, place, call.text("g")))
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
        when = java.when(row.last_timestamp) if row.last_timestamp else "N/A"
        call.line(form, *place, *offsets, *client, row.lag, when)
    call.line("\nConsume TPS: %.2f", stats.consume_tps)
    call.line("Diff Total: %d", lag_of(stats))


async def _clients(call: Call, group: str) -> dict[MessageQueue, str]:
    """Return the host of each queue, as far as members answer."""
    found: dict[MessageQueue, str] = {}
    try:
        for each in (await members(call, group)).connection_set:
            said = await running(call, group, each.client_id)
            found.update(dict.fromkeys(said.mq_table, each.client_id.split("@")[0]))
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
        found = await members(call, group)
    except Failure:
        return 0, "OFFLINE", "", "", pace, behind
    is_push = found.consume_type == "CONSUME_PASSIVELY"
    oldest = min(each.version for each in found.connection_set)
    kind = "PULL" if found.consume_type == "CONSUME_ACTIVELY" else "PUSH"
    model = found.message_model if is_push else ""
    return len(found.connection_set), version_name(oldest), kind, model, pace, behind
