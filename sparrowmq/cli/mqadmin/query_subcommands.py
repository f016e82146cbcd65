"""Messages by id, key and place: queryMsgById, queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset,
queryMsgTraceById.

Source: the classes of org.apache.rocketmq.tools.command.message, MQAdminImpl and messageTrackDetail of
DefaultMQAdminExtImpl, Java 4.9.8.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure, client_failure, of
from sparrowmq.cli.mqadmin.message_printing import FOUND, Message, address_of, body_of, looked_up, pull
from sparrowmq.cli.mqadmin.progress_subcommands import consume_stats, consumers_of, members
from sparrowmq.cli.mqadmin.tool_files import write
from sparrowmq.client.admin.message_search import FOR_EVER_MS
from sparrowmq.client.admin.operations import cluster_table, consume_directly, query_messages, view_message
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.errors import RemoteProtocolError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import compression, trace
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.messages.trace import PubTrace, SubAfterTrace
from sparrowmq.protocol.names import TRACE_TOPIC
from sparrowmq.protocol.requests.client_bodies import ConsumerConnections
from sparrowmq.protocol.requests.headers import QueryMessage

BODIES: Final = Path("/tmp/rocketmq/msgbodys")
_IN_NAMES: Final = " !#$&'()*+,:;=?@[]"  # signs that stay in names of files
_MOST: Final = 64
_MOST_OF_ONE_ID: Final = 32
_KEY: Final = "%-50s %4s %40s"
_TRACE: Final = "%-10s %-20s %-20s %-20s %-10s %-10s"


async def query_msg_by_id(call: Call) -> None:
    ids = [each.strip() for each in call.text("i").split(",") if each.strip()]
    if call.has("g") and call.has("d"):
        for msg_id in ids:
            await _push(call, msg_id)
    elif call.has("s"):
        for msg_id in ids if call.is_true("s") else ():
            await _send_again(call, msg_id)
    else:
        for msg_id in ids:
            await _show(call, await view(call, msg_id))


async def view(call: Call, msg_id: str) -> Message:
    """Return the message of an offset id. Raises: Failure."""
    try:
        place = parse_offset_id(msg_id)
    except RemoteProtocolError:
        raise client_failure("query message by id finished, but no message.", ResponseCode.NO_MESSAGE) from None
    return looked_up(await view_message(call, place.store_host, place.physical_offset))


async def _push(call: Call, msg_id: str) -> None:
    try:
        message = await view(call, msg_id)
        call.write(await consumed_by(call, message))
    except Failure as failure:
        call.complain(failure)


async def consumed_by(call: Call, message: Message) -> str:
    """Let a member consume a message on demand, by -g and -d; returns the outcome. Raises: Failure."""
    stored = message.stored
    outcome = await consume_directly(call, stored.store_host, call.text("g"), call.text("d"), stored.offset_id)
    return java.fields(
        "ConsumeMessageDirectlyResult",
        {
            "order": outcome.order,
            "autoCommit": outcome.auto_commit,
            "consumeResult": outcome.consume_result,
            "remark": outcome.remark,
            "spentTimeMills": outcome.spent_time_mills,
        },
    )


async def _send_again(call: Call, msg_id: str) -> None:
    from sparrowmq.cli.mqadmin.send_subcommands import producing, result_text

    try:
        message = await view(call, msg_id)
        call.write(f"prepare resend msg. originalMsgId={msg_id}")
        async with producing(call) as mq:
            try:
                body = compression.decompress(message.stored.body, message.stored.sys_flag)
                copy = message.stored.copy_for(message.stored.topic, body)
                call.write(result_text(await mq.send(copy)))
            except SparrowError as error:
                raise of(error) from None
    except Failure as failure:
        call.complain(failure)


async def query_msg_by_offset(call: Call) -> None:
    queue = MessageQueue(call.text("t"), call.text("b"), call.number("i"))
    offset = call.number("o")
    pulled = await pull(call, await address_of(call, queue), queue, offset, count=1)
    if pulled.status == FOUND:
        await _show(call, pulled.messages[0])


async def query_msg_by_key(call: Call) -> None:
    found = await _query(call, call.text("t"), call.text("k"), _MOST, FOR_EVER_MS)
    call.line(_KEY, "#Message ID", "#QID", "#Offset")
    for message in found:
        stored = message.stored
        call.line("%-50s %4d %40d", stored.message_id, stored.queue_id, stored.queue_offset)


async def query_msg_by_unique_key(call: Call) -> None:
    topic, msg_id = call.text("t"), call.text("i")
    if call.has("g") and call.has("d"):
        call.write(await consumed_by(call, await _by_any_id(call, topic, msg_id)))
        return
    found = await _by_unique_id(call, topic, msg_id)
    found.sort(key=lambda each: each.stored.store_timestamp_ms)
    for number, message in enumerate(found if call.has("a") else found[:1]):
        await _show(call, message, f"_{number}" if number else "", is_by_id=False)


async def _by_any_id(call: Call, topic: str, msg_id: str) -> Message:
    try:
        return await view(call, msg_id)
    except Failure:
        return (await _by_unique_id(call, topic, msg_id))[0]


async def _by_unique_id(call: Call, topic: str, msg_id: str) -> list[Message]:
    return await _query(call, topic, msg_id, _MOST_OF_ONE_ID, FOR_EVER_MS, is_id=True)


async def _query(call: Call, topic: str, key: str, most: int, until_ms: int, is_id: bool = False) -> list[Message]:
    """Return the messages with a key at all of a topic's brokers. Raises: Failure, there is none."""
    request = QueryMessage(topic, key, most, 0, until_ms, unique_key_query=is_id)
    found: list[Message] = []
    for _, address in brokers_of.asked(await call.route(topic)):
        try:
            messages = await query_messages(call, address, request)
        except Failure as failure:
            if failure.code != ResponseCode.QUERY_NOT_FOUND:
                call.complain(failure)  # Unlike Java, which leaves out brokers that do not answer.
            continue
        found += [looked_up(each) for each in messages if _has_key(each, key, is_id)]
    if not found:
        raise client_failure("query message by key finished, but no message.", ResponseCode.NO_MESSAGE)
    return found


def _has_key(message: StoredMessage, key: str, is_id: bool) -> bool:
    return message.unique_key == key if is_id else key in message.keys


async def _show(call: Call, message: Message, suffix: str = "", is_by_id: bool = True) -> None:
    """Print a message, the file with its body, and the groups that have consumed it."""
    stored = message.stored
    path = _keep_body(call, message, suffix)
    rows: list[tuple[str, object]] = [
        *([("OffsetID:", stored.offset_id)] if is_by_id else []),
        ("Topic:", stored.topic),
        ("Tags:", f"[{java.truth(stored.tags)}]"),
        ("Keys:", f"[{java.truth(stored.properties.get('KEYS'))}]"),
        ("Queue ID:", stored.queue_id),
        ("Queue Offset:", stored.queue_offset),
        ("CommitLog Offset:", stored.physical_offset),
        ("Reconsume Times:", stored.reconsume_times),
        ("Born Timestamp:", java.when_exactly(stored.born_timestamp_ms)),
        ("Store Timestamp:", java.when_exactly(stored.store_timestamp_ms)),
        ("Born Host:", stored.born_host),
        ("Store Host:", stored.store_host),
        ("System Flag:", stored.sys_flag),
        ("Properties:", message.properties_text),
        ("Message Body Path:", path),
    ]
    for name, value in rows:
        call.line("%-20s %s", name, value)
    try:
        tracks = await tracks_of(call, stored)
    except Failure as failure:
        call.complain(failure)
        return
    call.write("\n\n" + ("".join(tracks) if tracks else "WARN: No Consumer"))


def _keep_body(call: Call, message: Message, suffix: str) -> Path:
    """Write the body to the same file as Java's tool. Raises: Failure.

    Unlike Java: a message's sender chooses its id, so an id with a slash names no file elsewhere.
    """
    name = quote(message.stored.message_id, safe=_IN_NAMES)
    return write(BODIES / (name + suffix), body_of(call, message))


# Groups that have consumed it ----

#     CONSUMED                 the group's offset is after it, and the group subscribes its tag
#     CONSUMED_BUT_FILTERED    the group's offset is after it, but the group subscribes other tags
#     NOT_CONSUME_YET          the group's offset is not after it
#     PULL                     the group pulls by itself, so it is unknown
#     NOT_ONLINE               no member is online
#     UNKNOWN                  a request failed, with the reason


async def tracks_of(call: Call, message: StoredMessage) -> list[str]:
    """Return a description for each group that consumes the message's topic. Raises: Failure."""
    return [await _track(call, message, group) for group in await consumers_of(call, message.topic)]


async def _track(call: Call, message: StoredMessage, group: str) -> str:
    kind, why = "UNKNOWN", None
    try:
        found = await members(call, group)
        if found.consume_type == "CONSUME_ACTIVELY":
            kind = "PULL"
        elif not await _is_behind(call, message, group):
            kind = "NOT_CONSUME_YET"
        else:
            kind = "CONSUMED" if _wants(found, message) else "CONSUMED_BUT_FILTERED"
    except Failure as failure:
        # Unlike Java, which says UNKNOWN where a broker answers with an empty list of members.
        is_away = failure.code == ResponseCode.CONSUMER_NOT_ONLINE
        kind = "NOT_ONLINE" if is_away else kind
        has_code = is_away or failure.is_of_broker
        why = f"CODE:{failure.code} DESC:{failure.remark}" if has_code else str(failure)
    return java.fields("MessageTrack", {"consumerGroup": group, "trackType": kind, "exceptionDesc": why})


async def _is_behind(call: Call, message: StoredMessage, group: str) -> bool:
    """Return whether the group's offset is after the message, at the broker that has it."""
    stats = await consume_stats(call, group)
    table = (await cluster_table(call)).broker_addr_table
    return any(
        row.consumer_offset > message.queue_offset
        for queue, row in stats.offset_table.items()
        if (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
        and queue.broker_name in table
        and table[queue.broker_name].broker_addrs.get(MASTER) == message.store_host
    )


def _wants(group: ConsumerConnections, message: StoredMessage) -> bool:
    subscription = group.subscription_table.get(message.topic)
    return subscription is None or not subscription.tags or message.tags in subscription.tags


async def query_msg_trace_by_id(call: Call) -> None:
    msg_id = call.text("i")
    found = await _query(call, call.text("t") or TRACE_TOPIC, msg_id, _MOST, round(time.time() * 1000))
    consumers: dict[str, list[tuple[object, ...]]] = {}
    for message in found:
        host = message.stored.born_host.rpartition(":")[0]
        for each in trace.decode(body_of(call, message).decode("utf-8", "replace")):
            if each.msg_id != msg_id:
                continue
            if isinstance(each, PubTrace):
                _head(call, "#ProducerGroup", "#SendTime")
                call.line(_TRACE, "Pub", *_traced(each.group, host, each))
                call.line()
            elif isinstance(each, SubAfterTrace):
                group = each.group or ""
                consumers.setdefault(group, []).append(_traced(group, host, each))
    for _, rows in java.table(consumers):
        _head(call, "#ConsumerGroup", "#ConsumerTime")
        for row in rows:
            call.line(_TRACE, "Sub", *row)
        call.line()


def _head(call: Call, group: str, moment: str) -> None:
    call.line(_TRACE, "#Type", group, "#ClientHost", moment, "#CostTimes", "#Status")


def _traced(group: str, host: str, each: PubTrace | SubAfterTrace) -> tuple[object, ...]:
    status = "success" if each.is_success else "failed"
    return group, host, java.when(each.time_ms or 0), f"{each.cost_ms}ms", status
