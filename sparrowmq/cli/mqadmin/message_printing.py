"""Messages as Java's tools show them, and the brokers and queues that they are read from.

Source: MessageExt, MessageDecoder, MQAdminImpl and DefaultMQPullConsumer, Java 4.9.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import FURTHER, Failure, client_failure
from sparrowmq.client.admin.message_search import readable
from sparrowmq.client.admin.operations import PAGE, max_offset, min_offset, pull_page
from sparrowmq.client.cluster.routes import Route
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.protocol.subscription import ALL

FOUND: Final = "FOUND"
_STATUS: Final = {
    0: FOUND,
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}


@dataclass(frozen=True, slots=True)
class Message:
    """A message, with what a pull says about its queue.

    Attributes:
        broker: the broker it was pulled from; None if it was looked up.
        properties: those of the pull, then the message's own.
    """

    stored: StoredMessage
    broker: str | None
    properties: dict[str, str]

    @property
    def properties_text(self) -> str:
        """HashMap.toString."""
        return "{" + ", ".join(f"{key}={value}" for key, value in java.table(self.properties)) + "}"

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
        return java.fields(
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


def looked_up(stored: StoredMessage) -> Message:
    """Return a message that a broker found by an id or a key."""
    return Message(stored, None, stored.properties)


def print_message(call: Call, message: Message, charset: str, shows_body: bool) -> None:
    """Print a message on one line. Raises: Failure, the charset is unknown."""
    body = body_of(call, message)
    try:
        text = body.decode(charset, "replace") if shows_body else "NOT PRINT BODY"
    except LookupError:
        raise Failure("java.io.UnsupportedEncodingException", charset) from None
    call.write(f"MSGID: {message.stored.message_id} {message.with_body(body)} BODY: {text}\n")


def body_of(call: Call, message: Message) -> bytes:
    """Return the body as it was sent; complain about one that cannot be decompressed, and return it as it is stored.

    Unlike Java, which leaves out the messages from such a message on.
    """
    body = readable(message.stored)
    if body.trouble is not None:
        at = f"message {message.stored.message_id} at offset {message.stored.queue_offset}"
        call.complain(client_failure(f"the body of {at} is as it is stored, not as it was sent: {body.trouble}"))
    return body.content


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull. (Java: PullResult)"""

    status: str
    next_offset: int
    messages: list[Message]


async def queues_of(call: Call, topic: str) -> list[MessageQueue]:
    """Return a topic's readable queues in a HashSet's order. Raises: Failure."""
    try:
        route = await call.route(topic)
    except Failure as failure:
        outer = client_failure(f"Can not find Message Queue for this topic, {topic}{FURTHER}")
        raise Failure(f"{outer}\nCaused by", str(failure)) from None
    return java.queues(Route.build(topic, route).readable)


async def address_of(call: Call, queue: MessageQueue) -> str:
    """Return the address of a queue's broker. Raises: Failure."""
    try:
        route = await call.route(queue.topic)
    except Failure as failure:
        if failure.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        route = None
    for broker, address in brokers_of.asked(route) if route is not None else ():
        if broker.broker_name == queue.broker_name:
            return address
    raise client_failure(f"The broker[{queue.broker_name}] not exist")


async def span_of(call: Call, address: str, queue: MessageQueue) -> tuple[int, int]:
    """Return a queue's first offset, and the offset of its next message. Raises: Failure."""
    return await min_offset(call, address, queue), await max_offset(call, address, queue)


async def pull(
    call: Call, address: str, queue: MessageQueue, offset: int, expression: str = ALL, count: int = PAGE
) -> Pulled:
    """Pull once, without waiting for messages. Raises: Failure."""
    group = call.text("g") or TOOLS_GROUP
    page = await pull_page(call, address, queue, offset, expression=expression, count=count, group=group)
    ends = {"MIN_OFFSET": str(page.min_offset), "MAX_OFFSET": str(page.max_offset)}
    found = [Message(stored, queue.broker_name, ends | stored.properties) for stored in page.messages]
    return Pulled(_STATUS[page.code], page.next_offset, found)
