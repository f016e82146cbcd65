"""Sends: sendMessage, and how long they take: sendMsgStatus, checkMsgSendRT, clusterRT.

Source: SendMessageCommand, SendMsgStatusCommand, CheckMsgSendRTCommand and CLusterSendMsgRTCommand, Java 4.9.8.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone
from typing import Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import INT, Call
from sparrowmq.cli.mqadmin.failures import Failure, broker_failure, client_failure, of
from sparrowmq.cli.mqadmin.message_printing import address_of
from sparrowmq.client.admin.operations import cluster_table
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.routes import Route
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.errors import InvalidName, RemoteError, SendFailed, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.names import DEFAULT_TOPIC, check_topic

_SENT: Final = "%-32s  %-4s  %-20s    %s"
_RT: Final = "%-24s  %-24s  %-8s  %-16s  %-16s"
_NAMES: Final = "^[%|a-zA-Z0-9_-]+$"
_CHINA: Final = timezone(timedelta(hours=8))
_STATUS: Final = {SendStatus.OK: "SEND_OK"}


def producing(call: Call, trace: bool = False) -> Client:
    """A client with connections of its own; with `trace` it reports to the trace topic."""
    return Client(call.namesrvs, credentials=call.credentials, tls=call.tls, trace=trace)


def status_name(status: SendStatus) -> str:
    """Return Java's name: SEND_OK, FLUSH_DISK_TIMEOUT ..."""
    return _STATUS.get(status, status.name)


def result_text(result: SendResult) -> str:
    """SendResult.toString."""
    return java.fields(
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
    async with producing(call, trace=call.is_true("m")) as mq:
        try:
            result = await mq.send(message, queue=queue)
        except InvalidName:
            raise _illegal(message.topic) from None
        except SendFailed as error:
            if queue is not None and isinstance(error.cause, RemoteError):
                raise broker_failure(error.cause, address) from None
            raise of(error) from None
        except SparrowError as error:
            raise of(error) from None
    call.line(_SENT, "#Broker Name", "#QID", "#Send Result", "#MsgId")
    call.line(_SENT, result.queue.broker_name, result.queue.queue_id, status_name(result.status), result.msg_id)


async def _address_for_send(call: Call, queue: MessageQueue) -> str:
    """Return the address of a queue's broker. The template has the brokers of a topic without a route, which the send
    creates. Raises: Failure.
    """
    try:
        await call.route(check_topic(queue.topic))
    except InvalidName:
        raise _illegal(queue.topic) from None
    except Failure as failure:
        if failure.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        queue = MessageQueue(DEFAULT_TOPIC, queue.broker_name, queue.queue_id)
    return await address_of(call, queue)


def _illegal(topic: str) -> Failure:
    return client_failure(f"The specified topic[{topic}] contains illegal characters, allowing only {_NAMES}")


async def send_msg_status(call: Call) -> None:
    broker, size, count = call.text("b"), call.number("s", 128, INT), call.number("c", 50)
    async with producing(call) as mq:
        await _send(mq, Message(broker, _jodie(16)))
        for _ in range(count):
            start = time.monotonic()
            result = await _send(mq, Message(broker, _jodie(size)))
            call.line("rt=%sms, SendResult=%s", round((time.monotonic() - start) * 1000), result_text(result))


def _jodie(size: int) -> bytes:
    """Return a body of at least this size, as Java's tool makes it."""
    return b"hello jodie" * math.ceil(size / 11)


async def check_msg_send_rt(call: Call) -> None:
    amount = call.number("a", 100)
    message = Message(call.text("t"), b"a" * call.number("s", 128, INT))
    call.line(_SENT, "#Broker Name", "#QID", "#Send Result", "#RT")
    try:
        queues = Route.build(message.topic, await call.route(message.topic)).writable
    except Failure:
        template = Route.build(DEFAULT_TOPIC, await call.route(DEFAULT_TOPIC))
        queues = template.for_new_topic(message.topic).writable
    elapsed = 0
    async with producing(call) as mq:
        for number in range(amount):
            queue = queues[number % len(queues)]
            is_ok, took_ms = await _timed(mq, message, queue)
            elapsed += took_ms if number else 0
            call.line(_SENT, queue.broker_name, queue.queue_id, java.truth(is_ok), took_ms)
    call.line("Avg RT: %s", _average(elapsed, amount))


async def cluster_rt(call: Call) -> None:
    amount, size, interval = call.number("a", 100), call.number("s", 128, INT), call.number("i", 10)
    as_log = call.is_true("p")
    clusters = (await cluster_table(call)).cluster_addr_table
    chosen = [call.text("c")] if call.has("c") else java.names(clusters)
    if not as_log:
        call.heads("%-24s  %-24s  %-4s  %-8s  %-8s", "#Cluster Name|#Broker Name|#RT|#successCount|#failCount")
    async with producing(call) as mq:
        while True:
            for cluster in chosen:
                if cluster not in clusters:
                    call.failed = True
                    call.write(f"cluster [{cluster}] not exist")
                    break
                for broker in java.names(clusters[cluster]):
                    await _measure(call, mq, cluster, broker, amount, size, as_log)
            if call.failed:
                return  # Unlike Java, which says so again and again.
            await call.pause(interval)


async def _measure(call: Call, mq: Client, cluster: str, broker: str, amount: int, size: int, as_log: bool) -> None:
    message = Message(broker, b"a" * size)
    outcomes = [await _timed(mq, message, None) for _ in range(amount)]
    average = _average(sum(took_ms for _, took_ms in outcomes[1:]), amount)
    went_well = sum(is_ok for is_ok, _ in outcomes)
    if as_log:
        room = call.text("m", "noname")
        now = f"{datetime.now(_CHINA):%Y-%m-%d %H:%M:%S}"
        call.line("%s|%s|%s|%s|%s", now, room, cluster, broker, average.partition(".")[0])
    else:
        call.line(_RT, cluster, broker, average, went_well, amount - went_well)


async def _timed(mq: Client, message: Message, queue: MessageQueue | None) -> tuple[bool, int]:
    start = time.monotonic()
    try:
        await mq.send(message, queue=queue)
        is_ok = True
    except SparrowError:
        is_ok = False
    return is_ok, round((time.monotonic() - start) * 1000)


async def _send(mq: Client, message: Message) -> SendResult:
    try:
        return await mq.send(message)
    except SparrowError as error:
        raise of(error) from None


def _average(elapsed_ms: int, amount: int) -> str:
    """Return the average without the first, which had to connect."""
    return f"{elapsed_ms / (amount - 1):.2f}" if amount > 1 else "NaN"
