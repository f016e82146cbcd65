"""Stored and popped messages as gRPC clients get them: as bytes of protobuf.

The kernel writes them, plain ones of a pop straight from their records. Clients of 5.x unpack gzip and zlib; a body
that is packed in another way is sent unpacked. A popped record has its receipt handle in the property POP_CK, or the
handle is made from the lists of places in the answer. A message that is delivered again is in a retry topic of its
group, and its handle says which.
Source: GrpcConverter.buildMessage and MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparrowmq.kernel import grpc_messages
from sparrowmq.kernel.grpc_messages import PoppedRecords
from sparrowmq.kernel.records import Buffer
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.compression import decompress
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.property_names import RESERVED, Property
from sparrowmq.protocol.receipt_handle import Kind, OrderCounts, ReceiptHandle, handle_in_record, popped_queues
from sparrowmq.protocol.requests.pop_headers import PopMessageReply

_HIDDEN_PROPERTIES: Final = RESERVED | {
    Property.PRIORITY,
    Property.SHARDING_KEY,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
    Property.CHECK_IMMUNITY_TIME_IN_SECONDS,
    Property.TRACE_CONTEXT,
}
_MAX_INT32: Final = 0x7FFFFFFF


def message_of(message: StoredMessage, topic: str, attempt: int = 0, handle: ReceiptHandle | None = None) -> bytes:
    """The bytes of a `Message`. Raises: RemoteProtocolError, ConfigError, the body cannot be unpacked. `topic` is the
    one that the client knows: a message that is delivered again is stored in another one. `attempt` is the number of
    this delivery; 0 takes that of the record. `handle` acknowledges it; None if it is not popped."""
    sys_flag, body = message.sys_flag, message.body
    if needs_unpacking(message):
        sys_flag, body = sys_flag & ~SysFlag.COMPRESSED, decompress(body, sys_flag)
    texts = message.message_id, message.born_host, message.store_host, "" if handle is None else str(handle)
    numbers = (
        sys_flag,
        message.born_timestamp_ms,
        message.store_timestamp_ms,
        message.queue_id,
        message.queue_offset,
        0 if handle is None else handle.invisible_ms,
        attempt or min(message.reconsume_times + 1, _MAX_INT32),
    )
    return grpc_messages.message(topic, message.properties, _HIDDEN_PROPERTIES, texts, numbers, body)


def needs_unpacking(message: StoredMessage) -> bool:
    """Whether `message_of` unpacks the body of a message, because its clients cannot."""
    kind = message.sys_flag & SysFlag.COMPRESSION_MASK
    return bool(message.sys_flag & SysFlag.COMPRESSED) and kind not in (0, SysFlag.COMPRESSION_ZLIB)


class PoppedMessage(NamedTuple):
    """A message of a pop. `attempt` is 1 for the first delivery."""

    message: StoredMessage
    handle: ReceiptHandle
    attempt: int


class PopAnswer:
    """The messages in the answer to a pop. Raises: ConfigError, it has another form."""

    def __init__(self, reply: PopMessageReply, body: bytes, broker_name: str) -> None:
        self.visible_ms = reply.pop_time + reply.invisible_time  # of messages that are not done by then
        self._body = body
        self._reply = reply
        self._broker_name = broker_name
        self._queues = popped_queues(reply.start_offset_info)
        self._counts = OrderCounts.parse(reply.order_count_info)

    def plain_records(self, topic: str, max_attempts: int, tags: frozenset[str]) -> PoppedRecords:
        """The records, for the kernel. None of them are plain if the answer counts the former deliveries."""
        handle_starts = {
            queue_id: str(self._handle(queue.start_offset, kind, queue_id)).removesuffix("0 0")
            for (kind, queue_id), queue in self._queues.items()
            if kind is Kind.NORMAL and not self._reply.order_count_info
        }
        return PoppedRecords(
            self._body, topic, handle_starts, _HIDDEN_PROPERTIES, self._reply.invisible_time, max_attempts, tags
        )

    def message_of(self, raw: Buffer) -> PoppedMessage:
        """A message by its record. Raises: RemoteProtocolError, CorruptRecord."""
        message = record.decode(raw)
        kind = Kind.of(message.topic)
        queue = self._queues.get((kind, message.queue_id))
        own_handle = message.properties.get(Property.POP_CK, "")
        handle = handle_in_record(own_handle, self._reply.pop_time, is_listed=queue is not None)
        if handle is None:
            start_offset = message.queue_offset if queue is None else queue.start_offset
            place = message.queue_offset, message.physical_offset
            handle = self._handle(start_offset, kind, message.queue_id, *place)
        earlier_deliveries = self._counts.of(kind, message.queue_id, message.queue_offset)
        return PoppedMessage(message, handle, max(message.reconsume_times, earlier_deliveries) + 1)

    def _handle(
        self, start_offset: int, kind: Kind, queue_id: int, queue_offset: int = 0, log_offset: int = 0
    ) -> ReceiptHandle:
        reply = self._reply
        times = start_offset, reply.pop_time, reply.invisible_time, reply.revive_qid
        return ReceiptHandle(*times, kind, self._broker_name, queue_id, queue_offset, log_offset)
