"""Pops and acknowledgements, asked of a whole broker."""

from typing import Any

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle, popped_queues
from sparrowmq.protocol.requests.pop_headers import (
    AckMessage,
    ChangeInvisibleTime,
    PopMessage,
    PopMessageReply,
)
from sparrowmq.remoting.request_in_flight import Response
from tests.broker.live import Live

FOUND_OR_NOT = {208, 209, 210, 19}


def pop_request(**fields: Any) -> PopMessage:
    usual: dict[str, Any] = {
        "consumer_group": "poppers",
        "topic": "orders",
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 30_000,
        "poll_time": 0,
        "born_time": 0,
        "init_mode": 0,
    }
    return PopMessage(**(usual | fields))


async def pop(live: Live, **fields: Any) -> list[StoredMessage]:
    """The messages of one pop."""
    return messages(await live.session.call(pop_request(**fields), accept=FOUND_OR_NOT, timeout_s=30))


async def pop_all(live: Live, **fields: Any) -> list[StoredMessage]:
    """The messages of pops until there are none. On a busy machine a pop may end before it has looked at all."""
    found: list[StoredMessage] = []
    while some := await pop(live, **fields):
        found += some
    return found


def messages(answer: Response[PopMessageReply]) -> list[StoredMessage]:
    """The messages of an answer, each with its handle in POP_CK, as a client of Java makes it."""
    found = [record.decode(view) for view in record.walk(answer.body)]
    header = answer.header
    queues = popped_queues(header.start_offset_info, header.msg_offset_info)
    for message in found:
        if "POP_CK" in message.properties:
            continue
        kind = Kind.of(message.topic)
        queue = queues[kind, message.queue_id]
        assert message.queue_offset in queue.offsets
        handle = ReceiptHandle(
            queue.start_offset,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            kind,
            "broker-0",
            message.queue_id,
            message.queue_offset,
        )
        message.properties["POP_CK"] = str(handle)
    return found


def ack(message: StoredMessage, handle: str | None = None, **fields: Any) -> AckMessage:
    place: dict[str, Any] = {
        "consumer_group": "poppers",
        "topic": message.topic,
        "queue_id": message.queue_id,
        "extra_info": handle or message.properties["POP_CK"],
        "offset": message.queue_offset,
    }
    return AckMessage(**(place | fields))


def change(message: StoredMessage, invisible_ms: int, **fields: Any) -> ChangeInvisibleTime:
    asked = ack(message, **fields)
    place = (asked.consumer_group, asked.topic, asked.queue_id, asked.extra_info, asked.offset)
    return ChangeInvisibleTime(*place, invisible_ms)
