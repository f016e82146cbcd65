"""Stored and popped messages as gRPC clients get them: protobuf messages, written as bytes.

Protobuf itself needs several times as long. Clients of 5.x unpack gzip and zlib; a body that is packed in another way
is sent unpacked. A popped record has its receipt handle in the property POP_CK, or the handle is made from the lists of
places in the answer. A message that is delivered again is in a retry topic of its group, and its handle says which.
Source: GrpcConverter.buildMessage and MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from librt.strings import BytesWriter

from sparrowmq.core.digits import whole_number
from sparrowmq.grpc.wire_types import MD5, Encoding, MessageType
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

_BYTES_KIND: Final = 2  # the kind of a field with bytes, a text or a message in it; a number has kind 0
_ALL_BITS: Final = (1 << 64) - 1


def field(number: int, raw: bytes) -> bytes:
    """A field with bytes, a text or a message in it."""
    out = BytesWriter()
    put(out, number, raw)
    return out.getvalue()


def varint(number: int) -> bytes:
    out = BytesWriter()
    put_varint(out, number)
    return out.getvalue()


def time_of(ms: int) -> bytes:
    """Return a `Timestamp` or a `Duration`, in milliseconds from 0 on."""
    out = BytesWriter()
    seconds, rest_ms = ms // 1000, ms % 1000
    if seconds:
        put_number(out, 1, seconds)
    if rest_ms:
        put_number(out, 2, rest_ms * 1_000_000)
    return out.getvalue()


def put(out: BytesWriter, number: int, raw: bytes) -> None:
    put_varint(out, number << 3 | _BYTES_KIND)
    put_varint(out, len(raw))
    out.write(raw)


def put_text(out: BytesWriter, number: int, text: str) -> None:
    if text:
        put(out, number, text.encode())


def put_number(out: BytesWriter, number: int, value: int) -> None:
    put_varint(out, number << 3)
    put_varint(out, value)


def put_varint(out: BytesWriter, number: int) -> None:
    """Write a number of at most 64 bits; a negative one is written as its two's complement."""
    if number < 0:
        number &= _ALL_BITS
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


_HIDDEN_PROPERTIES: Final = RESERVED | {
    Property.PRIORITY,
    Property.SHARDING_KEY,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
    Property.CHECK_IMMUNITY_TIME_IN_SECONDS,
    Property.TRACE_CONTEXT,
}
MAX_INT32: Final = 0x7FFFFFFF
_YEAR_10000_MS: Final = 253_402_300_800_000
_DUE_TIME_PROPERTIES: Final = (Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS)
_MD5_TYPE: Final = b"\x08" + varint(MD5)
# As in Java, a message with a priority is a normal one: clients of Java before 5.2.0 do not know its own type.
_TYPES: Final = {kind: int(MessageType[kind.name]) for kind in StoredType if kind.name in MessageType.__members__} | {
    StoredType.PRIORITY: int(MessageType.NORMAL)
}
# As constants of this module, because the attributes of another one, or of an enum, take longer for each message.
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_COMPRESSION_BITS: Final = int(SysFlag.COMPRESSION_MASK)
_ZLIB_BITS: Final = int(SysFlag.COMPRESSION_ZLIB)
_TRANSACTION_BITS: Final = int(SysFlag.TRANSACTION_MASK)
_IDENTITY: Final = int(Encoding.IDENTITY)
_GZIP: Final = int(Encoding.GZIP)
_TRANSACTION: Final = int(MessageType.TRANSACTION)
_DELAY: Final = int(MessageType.DELAY)
_TAGS: Final[str] = Property.TAGS
_KEYS: Final[str] = Property.KEYS
_BORN_HOST: Final[str] = Property.BORN_HOST
_SHARDING_KEY: Final[str] = Property.SHARDING_KEY
_TRACE_CONTEXT: Final[str] = Property.TRACE_CONTEXT
_TIMER_OUT_MS: Final[str] = Property.TIMER_OUT_MS
_PRIORITY: Final[str] = Property.PRIORITY
_DLQ_ORIGIN_TOPIC: Final[str] = Property.DLQ_ORIGIN_TOPIC
_DLQ_ORIGIN_MESSAGE_ID: Final[str] = Property.DLQ_ORIGIN_MESSAGE_ID
_POP_CK: Final[str] = Property.POP_CK


def message_of(message: StoredMessage, topic: str, attempt: int = 0, handle: str = "", invisible_ms: int = 0) -> bytes:
    """The bytes of a `Message`. Raises: RemoteProtocolError, ConfigError, the body cannot be unpacked. `topic` is the
    one that the client knows: a message that is delivered again is stored in another one. `attempt` is the number of
    this delivery; 0 takes that of the record. `handle` acknowledges it; "" if it is not popped."""
    out = BytesWriter()
    put(out, 1, field(2, topic.encode()))
    for name, value in message.properties.items():
        if name not in _HIDDEN_PROPERTIES:
            put(out, 2, field(1, name.encode()) + field(2, value.encode()))
    encoding, body = _IDENTITY, message.body
    if needs_unpacking(message):
        body = decompress(body, message.sys_flag)
    elif message.sys_flag & _COMPRESSED:
        encoding = _GZIP
    attempt = attempt or min(message.reconsume_times + 1, MAX_INT32)
    put(out, 3, _system_properties(message, encoding, _digest(body), attempt, handle, invisible_ms))
    put(out, 4, body)
    return out.getvalue()


def _digest(body: bytes) -> bytes:
    """A `Digest`. Of CRC32 the Node client reads decimal digits, the others hexadecimal ones; all read the same MD5."""
    checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    return _MD5_TYPE + field(2, checksum.encode())


def _system_properties(
    message: StoredMessage, encoding: int, digest: bytes, attempt: int, handle: str, invisible_ms: int
) -> bytes:
    properties, out = message.properties, BytesWriter()
    tags = properties.get(_TAGS)
    if tags is not None:
        put_text(out, 1, tags)
    keys = properties.get(_KEYS)
    if keys is not None:
        for key in keys.split():
            put_text(out, 2, key)
    put_text(out, 3, message.message_id)
    put(out, 4, digest)
    put_number(out, 5, encoding)
    put_number(out, 6, _message_type(message))
    put(out, 7, time_of(_representable_ms(message.born_timestamp_ms)))
    put_text(out, 8, properties.get(_BORN_HOST) or message.born_host)
    put(out, 9, time_of(_representable_ms(message.store_timestamp_ms)))
    put_text(out, 10, message.store_host)
    due_ms = _due_ms(properties)
    if due_ms is not None:
        put(out, 11, time_of(_representable_ms(due_ms)))
    put_text(out, 12, handle)
    if message.queue_id:
        put_number(out, 13, message.queue_id)
    put_number(out, 14, message.queue_offset)
    if handle:
        put(out, 15, time_of(invisible_ms))
    put_number(out, 16, attempt)
    put_text(out, 17, properties.get(_SHARDING_KEY) or "")
    put_text(out, 18, properties.get(_TRACE_CONTEXT) or "")
    _put_dead_letter(out, properties)
    text = properties.get(_PRIORITY)
    priority = whole_number(text) if text is not None else None
    if priority is not None and priority <= MAX_INT32:
        put_number(out, 22, priority)
    return out.getvalue()


def _due_ms(properties: dict[str, str]) -> int | None:
    for name in _DUE_TIME_PROPERTIES:
        number = whole_number(properties.get(name)) if name in properties else None
        if number is not None:
            return number
    return None


def _representable_ms(ms: int) -> int:
    """The nearest time that a `Timestamp` may have. Java's clients give up a whole answer because of another one."""
    return min(max(ms, 0), _YEAR_10000_MS - 1)


def _put_dead_letter(out: BytesWriter, properties: dict[str, str]) -> None:
    topic = properties.get(_DLQ_ORIGIN_TOPIC)
    if topic:
        origin = BytesWriter()
        put_text(origin, 1, topic)
        put_text(origin, 2, properties.get(_DLQ_ORIGIN_MESSAGE_ID) or "")
        put(out, 20, origin.getvalue())


def needs_unpacking(message: StoredMessage) -> bool:
    """Whether `message_of` unpacks the body of a message, because its clients cannot."""
    kind = message.sys_flag & _COMPRESSION_BITS
    return bool(message.sys_flag & _COMPRESSED) and kind != 0 and kind != _ZLIB_BITS


def _message_type(message: StoredMessage) -> int:
    properties = message.properties
    if message.sys_flag & _TRANSACTION_BITS:
        return _TRANSACTION
    return _DELAY if _TIMER_OUT_MS in properties else _TYPES[type_of_message(properties)]


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
        own_handle = message.properties.get(_POP_CK)
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
