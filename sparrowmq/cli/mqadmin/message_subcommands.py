"""Messages: by id, key and place (queryMsgById, queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset,
queryMsgTraceById), those of queues (printMsg, printMsgByQueue, consumeMessage), and sends (sendMessage, sendMsgStatus,
checkMsgSendRT, clusterRT).

Source: the classes of org.apache.rocketmq.tools.command.message and CLusterSendMsgRTCommand; MessageExt,
MessageDecoder, MQAdminImpl, DefaultMQPullConsumer and messageTrackDetail of DefaultMQAdminExtImpl, Java 4.9.8.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from sparrowmq.admin import catalogue
from sparrowmq.admin.message_search import FOR_EVER_MS, readable
from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import INT, Call, brokers_to_ask
from sparrowmq.cli.mqadmin.group_subcommands import consume_stats, consumers_of, online_members
from sparrowmq.cli.mqadmin.java import (
    FAQ_HINT,
    Failure,
    broker_failure,
    client_failure,
    failure_from,
    null_failure,
    number_failure,
    write,
)
from sparrowmq.client.cluster.routes import Route
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.errors import InvalidName, RemoteError, RemoteProtocolError, SendFailed, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import compression, trace
from sparrowmq.protocol.messages.message import Message, MessageQueue, StoredMessage
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.messages.trace import PubTrace, SubAfterTrace
from sparrowmq.protocol.names import DEFAULT_TOPIC, TOOLS_GROUP, TRACE_TOPIC, check_topic
from sparrowmq.protocol.requests.bodies import MASTER
from sparrowmq.protocol.requests.headers import QueryMessage
from sparrowmq.protocol.subscription import ALL

if TYPE_CHECKING:  # most commands send nothing
    from sparrowmq.client.client import Client

BODY_FOLDER: Final = Path("/tmp/rocketmq/msgbodys")
_SAFE_IN_FILE_NAMES: Final = " !#$&'()*+,:;=?@[]"  # signs that stay in names of files
_MAX_MESSAGES: Final = 64
_MAX_PER_ID: Final = 32
_KEY_ROW: Final = "%-50s %4s %40s"
_TRACE_ROW: Final = "%-10s %-20s %-20s %-20s %-10s %-10s"
_UTF8: Final = "UTF-8"
_RULE: Final = "-" * 56
_MATCHED_NOTHING: Final = "NO_MATCHED_MSG"
_DEFAULT_COUNT: Final = 128
FOUND: Final = "FOUND"
_PULL_STATUS: Final = {
    0: FOUND,
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
_SENT_ROW: Final = "%-32s  %-4s  %-20s    %s"
_RT_ROW: Final = "%-24s  %-24s  %-8s  %-16s  %-16s"
_TOPIC_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_CHINA_TIME: Final = timezone(timedelta(hours=8))
_SEND_STATUS: Final = {SendStatus.OK: "SEND_OK"}


@dataclass(frozen=True, slots=True)
class PrintedMessage:
    """A message, with what a pull says about its queue."""

    stored: StoredMessage
    broker: str | None  # None if the message was looked up, and not pulled
    properties: dict[str, str]  # those of the pull, then the message's own

    @property
    def properties_text(self) -> str:
        """HashMap.toString."""
        return "{" + ", ".join(f"{key}={value}" for key, value in java.in_map_order(self.properties)) + "}"

    def __str__(self) -> str:
        """MessageExt.toString."""
        return self.with_body(readable(self.stored).content)

    def with_body(self, body: bytes) -> str:
        """MessageExt.toString, with this body."""
        stored = self.stored
        inside = (
            f"Message{{topic='{stored.topic}', flag={stored.flag}, properties={self.properties_text}, "
            f"body={list(body)}, transactionId='null'}}"
        )
        return java.to_string(
            "MessageExt",
            {
                "brokerName": self.broker,
                "queueId": stored.queue_id,
                "storeSize": stored.store_size,
                "queueOffset": stored.queue_offset,
                "sysFlag": stored.sys_flag,
                "bornTimestamp": stored.born_timestamp_ms,
                "bornHost": f"/{stored.born_host}",
                "storeTimestamp": stored.store_timestamp_ms,
                "storeHost": f"/{stored.store_host}",
                "msgId": stored.offset_id,
                "commitLogOffset": stored.physical_offset,
                "bodyCRC": stored.body_crc,
                "reconsumeTimes": stored.reconsume_times,
                "preparedTransactionOffset": stored.prepared_offset,
                "toString()": inside,
            },
        )


def message_from_store(stored: StoredMessage) -> PrintedMessage:
    """Return a message that a broker found by an id or a key."""
    return PrintedMessage(stored, None, stored.properties)


def print_message(call: Call, message: PrintedMessage, charset: str, shows_body: bool) -> None:
    """Print a message on one line. Raises: Failure, the charset is unknown."""
    body = body_of(call, message)
    try:
        text = body.decode(charset, "replace") if shows_body else "NOT PRINT BODY"
    except LookupError:
        raise Failure("java.io.UnsupportedEncodingException", charset) from None
    call.write(f"MSGID: {message.stored.message_id} {message.with_body(body)} BODY: {text}\n")


def body_of(call: Call, message: PrintedMessage) -> bytes:
    """Return the body as it was sent; complain about one that cannot be decompressed, and return it as it is stored.

    Unlike Java, which leaves out the messages from such a message on.
    """
    body = readable(message.stored)
    if body.trouble is not None:
        place = f"message {message.stored.message_id} at offset {message.stored.queue_offset}"
        call.complain(client_failure(f"the body of {place} is as it is stored, not as it was sent: {body.trouble}"))
    return body.content


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull. (Java: PullResult)"""

    status: str
    next_offset: int
    messages: list[PrintedMessage]


async def queues_of(call: Call, topic: str) -> list[MessageQueue]:
    """Return a topic's readable queues in a HashSet's order."""
    try:
        route = await call.route(topic)
    except Failure as failure:
        outer = client_failure(f"Can not find Message Queue for this topic, {topic}{FAQ_HINT}")
        raise Failure(f"{outer}\nCaused by", str(failure)) from None
    return java.queues_in_map_order(Route.build(topic, route).readable)


async def address_of(call: Call, queue: MessageQueue) -> str:
    try:
        route = await call.route(queue.topic)
    except Failure as failure:
        if failure.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        route = None
    for broker, address in brokers_to_ask(route) if route is not None else ():
        if broker.broker_name == queue.broker_name:
            return address
    raise client_failure(f"The broker[{queue.broker_name}] not exist")


async def read_span(call: Call, address: str, queue: MessageQueue) -> tuple[int, int]:
    """Return a queue's first offset, and the offset of its next message."""
    return await catalogue.min_offset(call, address, queue), await catalogue.max_offset(call, address, queue)


async def pull(
    call: Call, address: str, queue: MessageQueue, offset: int, expression: str = ALL, count: int = catalogue.PAGE
) -> PullResult:
    """Pull once, without waiting for messages."""
    group = call.text("g") or TOOLS_GROUP
    page = await catalogue.pull_page(call, address, queue, offset, expression=expression, count=count, group=group)
    ends = {"MIN_OFFSET": str(page.min_offset), "MAX_OFFSET": str(page.max_offset)}
    messages = [PrintedMessage(stored, queue.broker_name, ends | stored.properties) for stored in page.messages]
    return PullResult(_PULL_STATUS[page.code], page.next_offset, messages)


# Queries -------------------------------------------------------------------------------------------------------------


async def query_msg_by_id(call: Call) -> None:
    ids = [msg_id.strip() for msg_id in call.text("i").split(",") if msg_id.strip()]
    if call.has("g") and call.has("d"):
        for msg_id in ids:
            try:
                call.write(await consume_on_demand(call, await view_by_id(call, msg_id)))
            except Failure as failure:
                call.complain(failure)
    elif call.has("s"):
        for msg_id in ids if call.is_true("s") else ():
            await _send_again(call, msg_id)
    else:
        for msg_id in ids:
            await _show(call, await view_by_id(call, msg_id))


async def view_by_id(call: Call, msg_id: str) -> PrintedMessage:
    try:
        place = parse_offset_id(msg_id)
    except RemoteProtocolError:
        raise client_failure("query message by id finished, but no message.", ResponseCode.NO_MESSAGE) from None
    return message_from_store(await catalogue.view_message(call, place.store_host, place.physical_offset))


async def consume_on_demand(call: Call, message: PrintedMessage) -> str:
    """Let a member consume a message on demand, by -g and -d; returns the outcome."""
    stored = message.stored
    outcome = await catalogue.consume_directly(
        call, stored.store_host, call.text("g"), call.text("d"), stored.offset_id
    )
    return java.to_string(
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
    try:
        message = await view_by_id(call, msg_id)
        call.write(f"prepare resend msg. originalMsgId={msg_id}")
        async with open_client(call) as mq:
            try:
                body = compression.decompress(message.stored.body, message.stored.sys_flag)
                copy = message.stored.copy_for(message.stored.topic, body)
                call.write(result_text(await mq.send(copy)))
            except SparrowError as error:
                raise failure_from(error) from None
    except Failure as failure:
        call.complain(failure)


async def query_msg_by_offset(call: Call) -> None:
    queue = MessageQueue(call.text("t"), call.text("b"), call.number("i"))
    offset = call.number("o")
    result = await pull(call, await address_of(call, queue), queue, offset, count=1)
    if result.status == FOUND:
        await _show(call, result.messages[0])


async def query_msg_by_key(call: Call) -> None:
    messages = await _query(call, call.text("t"), call.text("k"), _MAX_MESSAGES, FOR_EVER_MS)
    call.line(_KEY_ROW, "#Message ID", "#QID", "#Offset")
    for message in messages:
        stored = message.stored
        call.line("%-50s %4d %40d", stored.message_id, stored.queue_id, stored.queue_offset)


async def query_msg_by_unique_key(call: Call) -> None:
    topic, msg_id = call.text("t"), call.text("i")
    if call.has("g") and call.has("d"):
        try:
            message = await view_by_id(call, msg_id)
        except Failure:
            message = (await _query_unique_id(call, topic, msg_id))[0]
        call.write(await consume_on_demand(call, message))
        return
    messages = await _query_unique_id(call, topic, msg_id)
    messages.sort(key=lambda message: message.stored.store_timestamp_ms)
    for number, message in enumerate(messages if call.has("a") else messages[:1]):
        await _show(call, message, f"_{number}" if number else "", is_by_id=False)


async def _query_unique_id(call: Call, topic: str, msg_id: str) -> list[PrintedMessage]:
    return await _query(call, topic, msg_id, _MAX_PER_ID, FOR_EVER_MS, is_id=True)


async def _query(
    call: Call, topic: str, key: str, limit: int, until_ms: int, is_id: bool = False
) -> list[PrintedMessage]:
    """Return the messages with a key at all of a topic's brokers. Raises: Failure, there is none."""
    request = QueryMessage(topic, key, limit, 0, until_ms, unique_key_query=is_id)
    messages: list[PrintedMessage] = []
    for _, address in brokers_to_ask(await call.route(topic)):
        try:
            answer = await catalogue.query_messages(call, address, request)
        except Failure as failure:
            if failure.code != ResponseCode.QUERY_NOT_FOUND:
                call.complain(failure)  # Unlike Java, which leaves out brokers that do not answer.
            continue
        # A broker compares only hashes of keys.
        matching = [stored for stored in answer if (stored.unique_key == key if is_id else key in stored.keys)]
        messages += map(message_from_store, matching)
    if not messages:
        raise client_failure("query message by key finished, but no message.", ResponseCode.NO_MESSAGE)
    return messages


async def _show(call: Call, message: PrintedMessage, suffix: str = "", is_by_id: bool = True) -> None:
    """Print a message, the file with its body, and the groups that have consumed it."""
    stored = message.stored
    # Unlike Java: a message's sender chooses its id, so an id with a slash names no file elsewhere.
    name = quote(stored.message_id, safe=_SAFE_IN_FILE_NAMES)
    path = write(BODY_FOLDER / (name + suffix), body_of(call, message))
    rows: list[tuple[str, object]] = [
        *([("OffsetID:", stored.offset_id)] if is_by_id else []),
        ("Topic:", stored.topic),
        ("Tags:", f"[{java.value_text(stored.tags)}]"),
        ("Keys:", f"[{java.value_text(stored.properties.get('KEYS'))}]"),
        ("Queue ID:", stored.queue_id),
        ("Queue Offset:", stored.queue_offset),
        ("CommitLog Offset:", stored.physical_offset),
        ("Reconsume Times:", stored.reconsume_times),
        ("Born Timestamp:", java.time_text_ms(stored.born_timestamp_ms)),
        ("Store Timestamp:", java.time_text_ms(stored.store_timestamp_ms)),
        ("Born Host:", stored.born_host),
        ("Store Host:", stored.store_host),
        ("System Flag:", stored.sys_flag),
        ("Properties:", message.properties_text),
        ("Message Body Path:", path),
    ]
    for name, value in rows:
        call.line("%-20s %s", name, value)
    try:
        tracks = [await _track(call, stored, group) for group in await consumers_of(call, stored.topic)]
    except Failure as failure:
        call.complain(failure)
        return
    call.write("\n\n" + ("".join(tracks) if tracks else "WARN: No Consumer"))


# Groups that have consumed it ----

#     CONSUMED                 the group's offset is after it, and the group subscribes its tag
#     CONSUMED_BUT_FILTERED    the group's offset is after it, but the group subscribes other tags
#     NOT_CONSUME_YET          the group's offset is not after it
#     PULL                     the group pulls by itself, so it is unknown
#     NOT_ONLINE               no member is online
#     UNKNOWN                  a request failed, with the reason


async def _track(call: Call, message: StoredMessage, group: str) -> str:
    kind, reason = "UNKNOWN", None
    try:
        members = await online_members(call, group)
        if members.consume_type == "CONSUME_ACTIVELY":
            kind = "PULL"
        elif not await _has_passed(call, message, group):
            kind = "NOT_CONSUME_YET"
        else:
            subscription = members.subscription_table.get(message.topic)
            gets_message = subscription is None or not subscription.tags or message.tags in subscription.tags
            kind = "CONSUMED" if gets_message else "CONSUMED_BUT_FILTERED"
    except Failure as failure:
        # Unlike Java, which says UNKNOWN where a broker answers with an empty list of members.
        is_away = failure.code == ResponseCode.CONSUMER_NOT_ONLINE
        kind = "NOT_ONLINE" if is_away else kind
        has_code = is_away or failure.is_of_broker
        reason = f"CODE:{failure.code} DESC:{failure.remark}" if has_code else str(failure)
    return java.to_string("MessageTrack", {"consumerGroup": group, "trackType": kind, "exceptionDesc": reason})


async def _has_passed(call: Call, message: StoredMessage, group: str) -> bool:
    stats = await consume_stats(call, group)
    table = (await catalogue.cluster_table(call)).broker_addr_table
    return any(
        row.consumer_offset > message.queue_offset
        for queue, row in stats.offset_table.items()
        if (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
        and queue.broker_name in table
        and table[queue.broker_name].broker_addrs.get(MASTER) == message.store_host
    )


async def query_msg_trace_by_id(call: Call) -> None:
    msg_id = call.text("i")
    messages = await _query(call, call.text("t") or TRACE_TOPIC, msg_id, _MAX_MESSAGES, round(time.time() * 1000))
    consumers: dict[str, list[tuple[object, ...]]] = {}
    for message in messages:
        host = message.stored.born_host.rpartition(":")[0]
        for event in trace.decode(body_of(call, message).decode("utf-8", "replace")):
            if event.msg_id != msg_id:
                continue
            if isinstance(event, PubTrace):
                _write_trace_heads(call, "#ProducerGroup", "#SendTime")
                call.line(_TRACE_ROW, "Pub", *_trace_row(event.group, host, event))
                call.line()
            elif isinstance(event, SubAfterTrace):
                group = event.group or ""
                consumers.setdefault(group, []).append(_trace_row(group, host, event))
    for _, rows in java.in_map_order(consumers):
        _write_trace_heads(call, "#ConsumerGroup", "#ConsumerTime")
        for row in rows:
            call.line(_TRACE_ROW, "Sub", *row)
        call.line()


def _write_trace_heads(call: Call, group: str, moment: str) -> None:
    call.line(_TRACE_ROW, "#Type", group, "#ClientHost", moment, "#CostTimes", "#Status")


def _trace_row(group: str, host: str, event: PubTrace | SubAfterTrace) -> tuple[object, ...]:
    status = "success" if event.is_success else "failed"
    return group, host, java.time_text(event.time_ms or 0), f"{event.cost_ms}ms", status


# Messages of queues --------------------------------------------------------------------------------------------------


async def print_msg(call: Call) -> None:
    charset, shows_body = call.text("c", _UTF8), call.is_true("d", True)

    async def show(queue: MessageQueue) -> None:
        address = await address_of(call, queue)
        begin, end = await _read_span_by_b_and_e(call, address, queue)
        call.line("minOffset=%s, maxOffset=%s, %s", begin, end, java.queue_text(queue))
        offset = begin
        while offset < end and (result := await _pull_or_complain(call, address, queue, offset)) is not None:
            offset = result.next_offset
            for message in result.messages:
                print_message(call, message, charset, shows_body)
            if _is_over(call, queue, result):
                break
        call.line(_RULE)

    await call.all_answers(await queues_of(call, call.text("t")), show)


async def print_msg_by_queue(call: Call) -> None:
    queue = MessageQueue(call.text("t"), call.text("a"), call.number("i"))
    address = await address_of(call, queue)
    offset, end = await _read_span_by_b_and_e(call, address, queue)
    tags: Counter[str] = Counter()
    while offset < end and (result := await _pull_or_complain(call, address, queue, offset)) is not None:
        offset = result.next_offset
        if result.status != FOUND:
            break
        tags.update(message.stored.tags for message in result.messages if message.stored.tags)
        for message in result.messages if call.is_true("p") else ():
            print_message(call, message, call.text("c", _UTF8), call.is_true("d"))
    if call.is_true("f"):
        for tag, count in sorted(java.in_map_order(tags), key=lambda row: -row[1]):
            call.line("Tag: %-30s Count: %s", tag, count)


async def _pull_or_complain(call: Call, address: str, queue: MessageQueue, offset: int) -> PullResult | None:
    """Return the next messages that fit -s; None if the pull failed, which is reported."""
    try:
        return await pull(call, address, queue, offset, call.text("s", ALL))
    except Failure as failure:
        call.complain(failure)
        return None


def _is_over(call: Call, queue: MessageQueue, result: PullResult) -> bool:
    """Return whether a pull was the last one; report a pull without messages."""
    if result.status == FOUND:
        return False
    matched_nothing = result.status == _MATCHED_NOTHING
    outcome = "no matched msg" if matched_nothing else "print msg finished"
    call.line("%s %s. status=%s, offset=%s", java.queue_text(queue), outcome, result.status, result.next_offset)
    return not matched_nothing


async def _read_span_by_b_and_e(call: Call, address: str, queue: MessageQueue) -> tuple[int, int]:
    begin, end = await read_span(call, address, queue)
    if call.has("b"):
        begin = await catalogue.offset_since(call, address, queue, _parse_time(call.text("b")))
    if call.has("e"):
        end = await catalogue.offset_since(call, address, queue, _parse_time(call.text("e")))
    return begin, end


def _parse_time(text: str) -> int:
    try:
        return java.parse_time(text)
    except ValueError:
        raise null_failure(f"{text!r} is no time; give milliseconds or yyyy-MM-dd#HH:mm:ss:SSS") from None


# consumeMessage -----------------------------------------------------------------------------------------------------


async def consume_message(call: Call) -> None:
    if problem := _find_problem(call):
        call.failed = True
        call.write(problem)
        return
    count = call.number("c", _DEFAULT_COUNT)
    try:
        if call.has("i"):
            await _consume_queue(call, count)
        else:
            await _consume_topic(call, count)
    except Failure as failure:
        if failure.kind == number_failure("").kind:
            raise
        call.complain(failure)


def _find_problem(call: Call) -> str | None:
    now_ms = time.time() * 1000
    begin, end = (_parse_time(call.text(letter)) if call.has(letter) else 0 for letter in "se")
    rules = [
        (call.has("c") and call.number("c") <= 0, "Please input a positive messageNumber!"),
        (call.has("i") and not call.has("b"), "Please set the brokerName before queueId!"),
        (call.has("o") and not call.has("i"), "Please set queueId before offset!"),
        (begin > now_ms, "Please set the beginTimestamp before now!"),
        (end > now_ms, "Please set the endTimestamp before now!"),
        (
            call.has("e") and begin > end,
            "Please make sure that the beginTimestamp is less than or equal to the endTimestamp",
        ),
    ]
    return next((problem for is_broken, problem in rules if is_broken), None)


async def _consume_topic(call: Call, count: int) -> None:
    remaining = count
    for queue in await queues_of(call, call.text("t")):
        if remaining == 0:
            return
        address = await address_of(call, queue)
        begin, end = await _read_span_by_s_and_e(call, address, queue)
        if end - begin > remaining:
            call.line("The older %d message of the %d queue will be provided", remaining, queue.queue_id)
            end = begin + remaining - 1
            remaining = 0
        else:
            remaining -= end - begin + 1
        await _print_range(call, address, queue, begin, end)


async def _consume_queue(call: Call, count: int) -> None:
    queue = MessageQueue(call.text("t"), call.text("b"), call.number("i"))
    offset = call.number("o")
    address = await address_of(call, queue)
    begin, end = await _read_span_by_s_and_e(call, address, queue)
    if offset > end:
        call.line("%s no matched msg, offset=%s", java.queue_text(queue), offset)
        return
    begin = max(begin, offset)
    if end - begin > count:
        call.line("The oldler %d message will be provided", count)
        end = begin + count - 1
    await _print_range(call, address, queue, begin, end)


async def _read_span_by_s_and_e(call: Call, address: str, queue: MessageQueue) -> tuple[int, int]:
    begin, end = await read_span(call, address, queue)
    if call.has("s") and (since_ms := _parse_time(call.text("s"))) > 0:
        begin = await catalogue.offset_since(call, address, queue, since_ms)
    if call.has("e") and (until_ms := _parse_time(call.text("e"))) > 0:
        end = await catalogue.offset_since(call, address, queue, until_ms)
    return begin, end


async def _print_range(call: Call, address: str, queue: MessageQueue, offset: int, last: int) -> None:
    """Print messages up to an offset. Java asks for one message more than there is."""
    while offset <= last:
        result = await pull(call, address, queue, offset, count=last - offset + 1)
        offset = result.next_offset
        if result.status == FOUND:
            call.line("Consume ok")
            for message in result.messages:
                print_message(call, message, _UTF8, True)
        if _is_over(call, queue, result):
            return


# Sends ---------------------------------------------------------------------------------------------------------------


def open_client(call: Call, trace: bool = False) -> Client:
    """A client with connections of its own; with `trace` it reports to the trace topic."""
    from sparrowmq.client.client import Client

    return Client(call.namesrvs, credentials=call.credentials, tls=call.tls, trace=trace)


def status_name(status: SendStatus) -> str:
    """Return Java's name: SEND_OK, FLUSH_DISK_TIMEOUT ..."""
    return _SEND_STATUS.get(status, status.name)


def result_text(result: SendResult) -> str:
    """SendResult.toString."""
    return java.to_string(
        "SendResult",
        {
            "sendStatus": status_name(result.status),
            "msgId": result.msg_id,
            "offsetMsgId": result.offset_msg_id,
            "messageQueue": java.queue_text(result.queue),
            "queueOffset": result.offset,
        },
    )


async def send_message(call: Call) -> None:
    if call.has("i") and not call.has("b"):
        call.failed = True
        call.write("Broker name must be set if the queue is chosen!")
        return
    keys, tag = call.text("k").split(), call.text("c") or None
    message = Message(call.text("t"), call.text("p").encode(), tag, keys)
    queue, address = None, ""
    if call.has("b") and call.has("i") and call.number("i") > -1:
        queue = MessageQueue(message.topic, call.text("b"), call.number("i"))
        address = await _address_for_send(call, queue)
    async with open_client(call, trace=call.is_true("m")) as mq:
        try:
            result = await mq.send(message, queue=queue)
        except InvalidName:
            raise _illegal_topic(message.topic) from None
        except SendFailed as error:
            if queue is not None and isinstance(error.cause, RemoteError):
                raise broker_failure(error.cause, address) from None
            raise failure_from(error) from None
        except SparrowError as error:
            raise failure_from(error) from None
    call.line(_SENT_ROW, "#Broker Name", "#QID", "#Send Result", "#MsgId")
    call.line(_SENT_ROW, result.queue.broker_name, result.queue.queue_id, status_name(result.status), result.msg_id)


async def _address_for_send(call: Call, queue: MessageQueue) -> str:
    """Return the address of a queue's broker. The template has the brokers of a topic without a route, which the send
    creates. Raises: Failure.
    """
    try:
        await call.route(check_topic(queue.topic))
    except InvalidName:
        raise _illegal_topic(queue.topic) from None
    except Failure as failure:
        if failure.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        queue = MessageQueue(DEFAULT_TOPIC, queue.broker_name, queue.queue_id)
    return await address_of(call, queue)


def _illegal_topic(topic: str) -> Failure:
    return client_failure(f"The specified topic[{topic}] contains illegal characters, allowing only {_TOPIC_PATTERN}")


async def send_msg_status(call: Call) -> None:
    broker, size, count = call.text("b"), call.number("s", 128, INT), call.number("c", 50)
    async with open_client(call) as mq:
        await _send(mq, Message(broker, _make_body(16)))
        for _ in range(count):
            start = time.monotonic()
            result = await _send(mq, Message(broker, _make_body(size)))
            call.line("rt=%sms, SendResult=%s", round((time.monotonic() - start) * 1000), result_text(result))


def _make_body(size: int) -> bytes:
    """Return a body of at least this size, as Java's tool makes it."""
    return b"hello jodie" * math.ceil(size / 11)


async def check_msg_send_rt(call: Call) -> None:
    amount = call.number("a", 100)
    message = Message(call.text("t"), b"a" * call.number("s", 128, INT))
    call.line(_SENT_ROW, "#Broker Name", "#QID", "#Send Result", "#RT")
    try:
        queues = Route.build(message.topic, await call.route(message.topic)).writable
    except Failure:
        template = Route.build(DEFAULT_TOPIC, await call.route(DEFAULT_TOPIC))
        queues = template.for_new_topic(message.topic).writable
    elapsed = 0
    async with open_client(call) as mq:
        for number in range(amount):
            queue = queues[number % len(queues)]
            is_ok, took_ms = await _send_and_time(mq, message, queue)
            elapsed += took_ms if number else 0
            call.line(_SENT_ROW, queue.broker_name, queue.queue_id, java.value_text(is_ok), took_ms)
    call.line("Avg RT: %s", _average(elapsed, amount))


async def cluster_rt(call: Call) -> None:
    amount, size, interval = call.number("a", 100), call.number("s", 128, INT), call.number("i", 10)
    as_log = call.is_true("p")
    clusters = (await catalogue.cluster_table(call)).cluster_addr_table
    names = [call.text("c")] if call.has("c") else java.in_set_order(clusters)
    if not as_log:
        call.heads("%-24s  %-24s  %-4s  %-8s  %-8s", "#Cluster Name|#Broker Name|#RT|#successCount|#failCount")
    async with open_client(call) as mq:
        while True:
            for cluster in names:
                if cluster not in clusters:
                    call.failed = True
                    call.write(f"cluster [{cluster}] not exist")
                    break
                for broker in java.in_set_order(clusters[cluster]):
                    await _measure(call, mq, cluster, broker, amount, size, as_log)
            if call.failed:
                return  # Unlike Java, which says so again and again.
            await call.pause(interval)


async def _measure(call: Call, mq: Client, cluster: str, broker: str, amount: int, size: int, as_log: bool) -> None:
    message = Message(broker, b"a" * size)
    outcomes = [await _send_and_time(mq, message, None) for _ in range(amount)]
    average = _average(sum(took_ms for _, took_ms in outcomes[1:]), amount)
    success_count = sum(is_ok for is_ok, _ in outcomes)
    if as_log:
        machine_room = call.text("m", "noname")
        now = f"{datetime.now(_CHINA_TIME):%Y-%m-%d %H:%M:%S}"
        call.line("%s|%s|%s|%s|%s", now, machine_room, cluster, broker, average.partition(".")[0])
    else:
        call.line(_RT_ROW, cluster, broker, average, success_count, amount - success_count)


async def _send_and_time(mq: Client, message: Message, queue: MessageQueue | None) -> tuple[bool, int]:
    start, is_ok = time.monotonic(), True
    try:
        await mq.send(message, queue=queue)
    except SparrowError:
        is_ok = False
    return is_ok, round((time.monotonic() - start) * 1000)


async def _send(mq: Client, message: Message) -> SendResult:
    try:
        return await mq.send(message)
    except SparrowError as error:
        raise failure_from(error) from None


def _average(elapsed_ms: int, amount: int) -> str:
    """Return the average without the first, which had to connect."""
    return f"{elapsed_ms / (amount - 1):.2f}" if amount > 1 else "NaN"
