"""The messages of a pop, each with its receipt handle.

A record has its handle in the property POP_CK, or the handle is made from the lists of places in the answer. A message
that is delivered again is in a retry topic of its group, and its handle says which.
Source: MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.receipt_handle import (
    Kind,
    OrderCounts,
    PoppedQueue,
    ReceiptHandle,
    handle_in_record,
    popped_queues,
)
from sparrowmq.protocol.requests.pop_headers import PopMessageReply

_POP_CK: Final[str] = Property.POP_CK


class Popped(NamedTuple):
    """A message of a pop.

    Attributes:
        handle: the text of its receipt handle.
        visible_ms: the time at which it becomes visible again, if nothing is done.
        invisible_ms: from its delivery until then.
        attempt: 1 for the first delivery.
    """

    stored: StoredMessage
    handle: str
    visible_ms: int
    invisible_ms: int
    attempt: int


def popped_messages(reply: PopMessageReply, body: bytes, broker_name: str) -> Iterator[Popped]:
    """The messages of an answer. Raises: RemoteProtocolError, CorruptRecord, ConfigError, it has another form."""
    queues = popped_queues(reply.start_offset_info, reply.msg_offset_info)
    counts = OrderCounts.parse(reply.order_count_info) if reply.order_count_info else None
    visible_ms = reply.pop_time + reply.invisible_time
    begins: dict[tuple[str, int], str] = {}  # of handles, by topic and queue: most messages share theirs
    for raw in record.walk(body):
        stored = record.decode(raw)
        attempt = stored.reconsume_times + 1
        if counts is not None:
            again = counts.of(Kind.of(stored.topic), stored.queue_id, stored.queue_offset)
            attempt = max(attempt, again + 1)
        own = stored.properties.get(_POP_CK)
        place = stored.topic, stored.queue_id
        begin = begins.get(place)
        if begin is None or own:
            queue = queues.get((Kind.of(stored.topic), stored.queue_id))
            sealed = handle_in_record(own or "", reply.pop_time, is_listed=queue is not None)
            if sealed is not None:
                yield Popped(stored, str(sealed), sealed.visible_ms, sealed.invisible_ms, attempt)
                continue
            begin = _begin_of(reply, stored, queue, broker_name)
            if queue is not None:
                begins[place] = begin
        text = f"{begin}{stored.queue_offset} {stored.physical_offset}"
        yield Popped(stored, text, visible_ms, reply.invisible_time, attempt)


def _begin_of(reply: PopMessageReply, stored: StoredMessage, queue: PoppedQueue | None, broker_name: str) -> str:
    """The words of a handle before the offsets of its message."""
    begin = ReceiptHandle(
        stored.queue_offset if queue is None else queue.start_offset,
        reply.pop_time,
        reply.invisible_time,
        reply.revive_qid,
        Kind.of(stored.topic),
        broker_name,
        stored.queue_id,
        0,
    )
    return str(begin).removesuffix("0")
