"""Reports of a group's members: consumerStatus, and every minute those of all groups: startMonitoring.

Source: ConsumerStatusSubCommand, ConsumerRunningInfo, ProcessQueueInfo and MonitorService, Java 4.9.8.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.cli.mqadmin.progress_subcommands import consume_stats, members, running
from sparrowmq.cli.mqadmin.tool_files import write
from sparrowmq.protocol.codes import version_name
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.requests.client_bodies import ConsumerRunning, ProcessQueueState
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats

_MEMBER: Final = "%-10s %-40s %-20s %s"
_QUEUE: Final = "%-64s  %-32s  %-4s  %-20s\n"
_OFFSET: Final = "%-32s  %-32s  %-4d  %-20d\n"
_DETAIL: Final = "%-64s  %-32s  %-4d  %s\n"
_RATE_HEAD: Final = "%-64s  %14s %14s %14s %14s %18s %25s\n"
_RATE: Final = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d\n"
_SETTLED_MS: Final = 120_000  # younger members may not know of a change yet
_STUCK_MS: Final = 60_000
_ROUND_S: Final = 60.0
_FIRST_ROUND_S: Final = 20.0


async def consumer_status(call: Call) -> None:
    group, jstack = call.text("g"), call.has("s")
    found = await members(call, group, call.text("b") or None)
    if call.has("i"):
        call.write(describe(await running(call, group, call.text("i"), jstack)))
        return
    folder = Path(str(round(time.time() * 1000)))
    said: dict[str, ConsumerRunning] = {}
    call.line(_MEMBER, "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    for each in found.connection_set:
        try:
            said[each.client_id] = await running(call, group, each.client_id, jstack)
            path = _keep(folder, each.client_id, describe(said[each.client_id]))
        except Failure as failure:
            call.complain(failure)
            continue
        call.line(_MEMBER, len(said), each.client_id, version_name(each.version), path)
    if said:
        _judge(call, said)


def _keep(folder: Path, client_id: str, text: str) -> Path:
    """Write a member's report to a file below the current folder, as Java does. Raises: Failure.

    A client may have any id, such as `..`, or one that is too long for the name of a file.
    """
    name = client_id.replace("/", "_").replace("\0", "_")
    return write(folder / (name if name.strip(".") else f"_{name}"), text.encode())


def _judge(call: Call, said: Mapping[str, ConsumerRunning]) -> None:
    if not agree(said):
        call.write("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    call.write("\n\nSame subscription in the same group of consumer")
    call.write("\n\nRebalance OK\n")
    for client_id, each in sorted(said.items()):
        for complaint in complaints(client_id, each):
            call.line(complaint)


def agree(said: Mapping[str, ConsumerRunning]) -> bool:
    """Return whether all members subscribe the same; young members and pull consumers are not compared."""
    rows = [each for _, each in sorted(said.items())]
    first = rows[0].properties
    started_ms = int(first.get("PROP_CONSUMER_START_TIMESTAMP") or time.time() * 1000)
    if not _is_push(rows[0]) or time.time() * 1000 - started_ms <= _SETTLED_MS:
        return True
    wishes = {frozenset((each.topic, each.expression, each.kind) for each in row.subscription_set) for row in rows}
    return len(wishes) == 1 and bool(rows[-1].subscription_set)


def complaints(client_id: str, said: ConsumerRunning) -> Iterator[str]:
    """Yield the queues of a member that are stuck."""
    if not _is_push(said):
        return
    now_ms = time.time() * 1000
    is_orderly = java.is_true(said.properties.get("PROP_CONSUMEORDERLY", "false"))
    for queue, state in sorted(said.mq_table.items()):
        where = f"{client_id} {java.queue_text(queue)}"
        if is_orderly and not state.locked:
            yield f"{where} can't lock for a while, {now_ms - state.last_lock_timestamp:.0f}ms"
        elif is_orderly and state.dropped and state.try_unlock_times > 0:
            yield f"{where} unlock {state.try_unlock_times} times, still failed"
        elif not is_orderly and state.cached_msg_count > 0:
            silent_ms = now_ms - state.last_consume_timestamp
            if silent_ms > _STUCK_MS:
                yield f"{where} can't consume for a while, maybe blocked, {silent_ms:.0f}ms"


def _is_push(said: ConsumerRunning) -> bool:
    return said.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def describe(said: ConsumerRunning) -> str:
    """ConsumerRunningInfo.formatString."""
    parts = ["#Consumer Properties#\n"]
    parts += [f"{key:<40}: {value}\n" for key, value in java.table(said.properties)]
    parts.append("\n\n#Consumer Subscription#\n")
    for number, each in enumerate(sorted(said.subscription_set, key=lambda each: each.topic), 1):
        parts.append(
            f"{number:03d} Topic: {each.topic:<40} ClassFilter: {java.truth(each.class_filter):<8} "
            f"SubExpression: {each.expression}\n"
        )
    queues = sorted(said.mq_table.items())
    parts.append("\n\n#Consumer Offset#\n" + _QUEUE % ("#Topic", "#Broker Name", "#QID", "#Consumer Offset"))
    parts += [_OFFSET % (*_place(queue), state.commit_offset) for queue, state in queues]
    parts.append("\n\n#Consumer MQ Detail#\n" + _QUEUE % ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"))
    parts += [_DETAIL % (*_place(queue), _state_text(state)) for queue, state in queues]
    heads = "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS"
    parts.append("\n\n#Consumer RT&TPS#\n" + _RATE_HEAD % (*heads, "#ConsumeFailedMsgsInHour"))
    for topic, pace in sorted(said.status_table.items()):
        rates = pace.pull_rt, pace.pull_tps, pace.consume_rt, pace.consume_ok_tps, pace.consume_failed_tps
        parts.append(_RATE % (topic, *rates, pace.consume_failed_msgs))
    if said.jstack is not None:
        parts.append(f"\n\n#Consumer jstack#\n{said.jstack}")
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
            "lastLockTimestamp": java.when_compactly(state.last_lock_timestamp),
            "droped": state.dropped,
            "lastPullTimestamp": java.when_compactly(state.last_pull_timestamp),
            "lastConsumeTimestamp": java.when_compactly(state.last_consume_timestamp),
        },
    )


# startMonitoring ----------------------------------------------------------------------------------------------------


async def start_monitoring(call: Call) -> None:
    """Unlike Java, which writes to a log file of its own and so shows nothing."""
    await call.pause(_FIRST_ROUND_S)
    while True:
        await report(call)
        await call.pause(_ROUND_S)


async def report(call: Call) -> None:
    """Report once on all groups. Raises: Failure, no name server answers."""
    for topic in await call.topics():
        if topic.startswith(RETRY):
            await _report_group(call, topic.removeprefix(RETRY))


async def _report_group(call: Call, group: str) -> None:
    try:
        found = await members(call, group)
        stats = await consume_stats(call, group)
    except Failure:
        return
    for topic, total, most in _behind(stats):
        values = f"consumerGroup={group}, topic={topic}, undoneMsgsTotal={total}, undoneMsgsSingleMQ={most}"
        call.line("[MONITOR] reportUndoneMsgs: UndoneMsgs [%s]", values)
    said: dict[str, ConsumerRunning] = {}
    for each in found.connection_set:
        try:
            said[each.client_id] = await running(call, group, each.client_id)
        except Failure:
            continue
    if said and not agree(said):
        call.line("[NOTIFY] reportConsumerRunningInfo: ConsumerGroup: %s, Subscription different", group)
    for client_id, member in sorted(said.items()):
        for complaint in complaints(client_id, member):
            where = f"ConsumerGroup: {group}, ClientId: {client_id}"
            call.line("[NOTIFY] reportConsumerRunningInfo: %s, %s", where, complaint)


def _behind(stats: ConsumeStats) -> Iterator[tuple[str, int, int]]:
    """Yield for each topic its lag, and the lag of its slowest queue."""
    for topic in sorted({queue.topic for queue in stats.offset_table}):
        lags = [row.lag for queue, row in stats.offset_table.items() if queue.topic == topic]
        yield topic, sum(max(0, lag) for lag in lags), max(0, *lags)
