"""Offsets of groups: cloneGroupOffset, resetOffsetByTime, skipAccumulatedMessage.

Brokers reset online members; without online members the offsets are committed in their place.
Source: CloneGroupOffsetCommand, ResetOffsetByTimeCommand, ResetOffsetByTimeOldCommand, SkipAccumulationSubCommand and
DefaultMQAdminExtImpl, Java 4.9.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.admin import catalogue
from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call, brokers_to_ask
from sparrowmq.cli.mqadmin.group_subcommands import consume_stats
from sparrowmq.cli.mqadmin.java import Failure, null_failure
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.offset_bodies import QueueProgress

_ONLINE_ROW: Final = "%-40s  %-40s  %-40s"
_OFFLINE_ROW: Final = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s"
_TO_THE_END: Final = -1


@dataclass(frozen=True, slots=True)
class _Reset:
    """A reset: to the first message since a time, or to the end; only back, unless `force`."""

    group: str
    topic: str
    timestamp: int
    force: bool


@dataclass(frozen=True, slots=True)
class _QueueReset:
    """The reset of one queue. (Java: RollbackStats)"""

    queue: MessageQueue
    before: QueueProgress
    target: int
    new_offset: int


async def clone_group_offset(call: Call) -> None:
    source, target, topic = call.text("s"), call.text("d"), call.text("t")
    stats = await consume_stats(call, source)
    call.check_all_answered()
    route = await call.route(topic)
    addresses = {broker.broker_name: address for broker, address in brokers_to_ask(route)}
    for queue, row in stats.offset_table.items():
        address = addresses.get(queue.broker_name)
        if address is None:
            # Unlike Java, which sends it to a name server and waits in vain.
            raise null_failure(f"topic {topic} has no broker {queue.broker_name}, which has {queue.topic}")
        if row.consumer_offset >= 0:
            await catalogue.commit_offset(call, address, target, queue, row.consumer_offset)
    call.write(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


async def reset_offset_by_time(call: Call) -> None:
    text = call.text("s")
    try:
        timestamp = _TO_THE_END if text == "now" else java.parse_time(text)
    except ValueError:
        raise null_failure(f"{text!r} is no time; give now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS") from None
    reset = _Reset(call.text("g"), call.text("t"), timestamp, call.is_true("f", True))
    options = f"force[{java.value_text(reset.force)}], timestamp(string)[{text}], timestamp(long)[{timestamp}]"
    try:
        offsets = await _reset_members(call, reset)
    except Failure as failure:
        if failure.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        rows = await _reset_in_place(call, reset)
        call.line(
            "rollback consumer offset by specified consumerGroup[%s], topic[%s], %s", reset.group, reset.topic, options
        )
        _show_rows(call, rows)
        return
    call.line("rollback consumer offset by specified group[%s], topic[%s], %s", reset.group, reset.topic, options)
    _show_members(call, offsets)


async def skip_accumulated_message(call: Call) -> None:
    reset = _Reset(call.text("g"), call.text("t"), _TO_THE_END, call.is_true("f", True))
    try:
        _show_members(call, await _reset_members(call, reset))
    except Failure as failure:
        if failure.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        _show_rows(call, await _reset_in_place(call, reset))


async def _reset_members(call: Call, reset: _Reset) -> dict[MessageQueue, int]:
    """Let brokers reset the online members. Raises: Failure, with code 206 if none is online.

    -c changes nothing: our brokers write to C++ members in their format; Apache's do so only for a C++ admin.
    """
    offsets: dict[MessageQueue, int] = {}
    for _, address in brokers_to_ask(await call.route(reset.topic)):
        offsets |= await catalogue.reset_members(call, address, reset.topic, reset.group, reset.timestamp, reset.force)
    return offsets


def _show_members(call: Call, offsets: dict[MessageQueue, int]) -> None:
    call.line(_ONLINE_ROW, "#brokerName", "#queueId", "#offset")
    for queue in java.queues_in_map_order(offsets):
        call.line(_ONLINE_ROW, queue.broker_name[:32], queue.queue_id, offsets[queue])


async def _reset_in_place(call: Call, reset: _Reset) -> list[_QueueReset]:
    resets: list[_QueueReset] = []
    route = await call.route(reset.topic)
    counts = {row.broker_name: row.read_queue_nums for row in route.queue_datas}
    for broker, address in brokers_to_ask(route):
        table = (await catalogue.group_progress(call, address, reset.group)).offset_table
        rows = {queue: row for queue, row in table.items() if queue.topic == reset.topic}
        queues = java.queues_in_map_order(rows)
        if not rows:  # The group never consumed the topic: as if it were at the beginnings of the queues.
            stats = await catalogue.topic_offsets(call, address, reset.topic)
            name = broker.broker_name
            queues = [MessageQueue(reset.topic, name, number) for number in range(counts[name])]
            rows = {queue: QueueProgress(stats[queue].max_offset, stats[queue].min_offset) for queue in queues}
        resets += [await _reset_queue(call, address, reset, queue, rows[queue]) for queue in queues]
    return resets


async def _reset_queue(call: Call, address: str, reset: _Reset, queue: MessageQueue, row: QueueProgress) -> _QueueReset:
    if reset.timestamp == _TO_THE_END:
        target = await catalogue.max_offset(call, address, queue)
    else:
        target = await catalogue.offset_since(call, address, queue, reset.timestamp)
    if not reset.force and target > row.consumer_offset:
        return _QueueReset(queue, row, target, row.consumer_offset)
    await catalogue.commit_offset(call, address, reset.group, queue, target)
    return _QueueReset(queue, row, target, target)


def _show_rows(call: Call, rows: list[_QueueReset]) -> None:
    call.heads(_OFFLINE_ROW, "#brokerName|#queueId|#brokerOffset|#consumerOffset|#timestampOffset|#rollbackOffset")
    for row in rows:
        offsets = row.before.broker_offset, row.before.consumer_offset
        call.line(_OFFLINE_ROW, row.queue.broker_name[:32], row.queue.queue_id, *offsets, row.target, row.new_offset)
