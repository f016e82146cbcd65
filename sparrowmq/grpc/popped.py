"""The messages of a pop, each with its receipt handle.

A record has its handle in the property POP_CK, or the handle is made from the lists of places in the answer. A message
that is delivered again is in a retry topic of its group, and its handle says which.
Source: MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.receipt_handle import (
    Kind,
    OrderCounts,
    ReceiptHandle,
    handle_in_record,
    popped_queues,
)
from sparrowmq.protocol.requests.pop_headers import PopMessageReply


class Popped(NamedTuple):
    """A message of a pop.

    Attributes:
        attempt: 1 for the first delivery.
    """

    stored: StoredMessage
    handle: ReceiptHandle
    attempt: int


def popped_messages(reply: PopMessageReply, body: bytes, broker_name: str) -> Iterator[Popped]:
    """The messages of an answer. Raises: RemoteProtocolError, CorruptRecord, ConfigError, it has another form."""
    queues = popped_queues(reply.start_offset_info, reply.msg_offset_info)
    counts = OrderCounts.parse(reply.order_count_info)
    for raw in record.walk(body):
        stored = record.decode(raw)
        kind = Kind.of(stored.topic)
        queue = queues.get((kind, stored.queue_id))
        text = stored.properties.get(Property.POP_CK, "")
        handle = handle_in_record(text, reply.pop_time, is_listed=queue is not None)
        if handle is None:
            handle = ReceiptHandle(
                stored.queue_offset if queue is None else queue.start_offset,
                reply.pop_time,
                reply.invisible_time,
                reply.revive_qid,
                kind,
                broker_name,
                stored.queue_id,
                stored.queue_offset,
                stored.physical_offset,
            )
        former = max(stored.reconsume_times, counts.of(kind, stored.queue_id, stored.queue_offset))
        yield Popped(stored, handle, former + 1)
