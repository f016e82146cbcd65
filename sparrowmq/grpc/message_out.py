"""Stored and popped messages as gRPC clients get them: as bytes of protobuf.

The kernel writes them. Clients of 5.x unpack gzip and zlib; a body that is packed in another way is sent unpacked. A
popped record has its receipt handle in the property POP_CK, or the handle is made from the lists of places in the
answer. A message that is delivered again is in a retry topic of its group, and its handle says which.
Source: GrpcConverter.buildMessage and MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from sparrowmq.grpc.wire_types import Encoding, MessageType
from sparrowmq.kernel import grpc_messages
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.compression import decompress
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.message_types import MessageType as StoredType
from sparrowmq.protocol.messages.message_types import type_of_message
from sparrowmq.protocol.messages.property_names import RESERVED, Property
from sparrowmq.protocol.receipt_handle import (
    Kind,
    OrderCounts,
    PoppedQueue,
    ReceiptHandle,
    handle_in_record,
    popped_queues,
)
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
# As in Java, a message with a priority is a normal one: clients of Java before 5.2.0 do not know its own type.
_TYPES: Final = {kind: int(MessageType[kind.name]) for kind in StoredType if kind.name in MessageType.__members__} | {
    StoredType.PRIORITY: int(MessageType.NORMAL)
}


def message_of(message: StoredMessage, topic: str, attempt: int = 0, handle: str = "", invisible_ms: int = 0) -> bytes:
    """The bytes of a `Message`. Raises: RemoteProtocolError, ConfigError, the body cannot be unpacked. `topic` is the
    one that the client knows: a message that is delivered again is stored in another one. `attempt` is the number of
    this delivery; 0 takes that of the record. `handle` acknowledges it; "" if it is not popped."""
    encoding, body = Encoding.IDENTITY, message.body
    if needs_unpacking(message):
        body = decompress(body, message.sys_flag)
    elif message.sys_flag & SysFlag.COMPRESSED:
        encoding = Encoding.GZIP
    attempt = attempt or min(message.reconsume_times + 1, _MAX_INT32)
    # Of CRC32 the Node client reads decimal digits, the others hexadecimal ones; all read the same MD5.
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    texts = message.message_id, message.born_host, message.store_host, handle, digest
    numbers = (
        encoding,
        _message_type(message),
        message.born_timestamp_ms,
        message.store_timestamp_ms,
        message.queue_id,
        message.queue_offset,
        invisible_ms,
        attempt,
    )
    return grpc_messages.message(topic, message.properties, _HIDDEN_PROPERTIES, texts, numbers, body)


def needs_unpacking(message: StoredMessage) -> bool:
    """Whether `message_of` unpacks the body of a message, because its clients cannot."""
    kind = message.sys_flag & SysFlag.COMPRESSION_MASK
    return bool(message.sys_flag & SysFlag.COMPRESSED) and kind not in (0, SysFlag.COMPRESSION_ZLIB)


def _message_type(message: StoredMessage) -> int:
    properties = message.properties
    if message.sys_flag & SysFlag.TRANSACTION_MASK:
        return MessageType.TRANSACTION
    return MessageType.DELAY if Property.TIMER_OUT_MS in properties else _TYPES[type_of_message(properties)]


class PoppedMessage(NamedTuple):
    """A message of a pop. `visible_ms` is the time at which it becomes visible again, if nothing is done;
    `invisible_ms` counts from its delivery until then. `attempt` is 1 for the first delivery."""

    message: StoredMessage
    handle: str
    visible_ms: int
    invisible_ms: int
    attempt: int


def popped_messages(reply: PopMessageReply, body: bytes, broker_name: str) -> Iterator[PoppedMessage]:
    """The messages of an answer. Raises: RemoteProtocolError, CorruptRecord, ConfigError, it has another form."""
    queues = popped_queues(reply.start_offset_info, reply.msg_offset_info)
    counts = OrderCounts.parse(reply.order_count_info) if reply.order_count_info else None
    visible_ms = reply.pop_time + reply.invisible_time
    handle_prefixes: dict[tuple[str, int], str] = {}  # of handles, by topic and queue: most messages share theirs
    for raw in record.walk(body):
        message = record.decode(raw)
        attempt = message.reconsume_times + 1
        if counts is not None:
            earlier_deliveries = counts.of(Kind.of(message.topic), message.queue_id, message.queue_offset)
            attempt = max(attempt, earlier_deliveries + 1)
        own_handle = message.properties.get(Property.POP_CK)
        place = message.topic, message.queue_id
        handle_prefix = handle_prefixes.get(place)
        if handle_prefix is None or own_handle:
            queue = queues.get((Kind.of(message.topic), message.queue_id))
            handle = handle_in_record(own_handle or "", reply.pop_time, is_listed=queue is not None)
            if handle is not None:
                yield PoppedMessage(message, str(handle), handle.visible_ms, handle.invisible_ms, attempt)
                continue
            handle_prefix = _handle_prefix(reply, message, queue, broker_name)
            if queue is not None:
                handle_prefixes[place] = handle_prefix
        text = f"{handle_prefix}{message.queue_offset} {message.physical_offset}"
        yield PoppedMessage(message, text, visible_ms, reply.invisible_time, attempt)


def _handle_prefix(reply: PopMessageReply, message: StoredMessage, queue: PoppedQueue | None, broker_name: str) -> str:
    handle = ReceiptHandle(
        message.queue_offset if queue is None else queue.start_offset,
        reply.pop_time,
        reply.invisible_time,
        reply.revive_qid,
        Kind.of(message.topic),
        broker_name,
        message.queue_id,
        0,
    )
    return str(handle).removesuffix("0")
