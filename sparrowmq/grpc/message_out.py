"""Stored and popped messages as gRPC clients get them: protobuf messages, written as bytes.

Protobuf itself needs several times as long for the answers that each message needs.

Clients of 5.x unpack gzip and zlib. A body that is packed in another way is sent unpacked. A popped record has its
receipt handle in the property POP_CK, or the handle is made from the lists of places in the answer. A message that is
delivered again is in a retry topic of its group, and its handle says which.
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

_BYTES: Final = 2  # the kind of a field with bytes, a text or a message in it; a number has kind 0
_ALL_BITS: Final = (1 << 64) - 1


def field(number: int, raw: bytes) -> bytes:
    """Return a field with bytes, a text or a message in it."""
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
    """Write a field with bytes, a text or a message in it."""
    put_varint(out, number << 3 | _BYTES)
    put_varint(out, len(raw))
    out.write(raw)


def put_text(out: BytesWriter, number: int, text: str) -> None:
    """Write a field with a text, unless it is empty."""
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


_HIDDEN: Final = RESERVED | {
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
_DUE: Final = (Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS)
_MD5_TYPE: Final = b"\x08" + varint(MD5)
# As in Java, a message with a priority is a normal one: clients of Java before 5.2.0 do not know its own type.
_TYPES: Final = {kind: int(MessageType[kind.name]) for kind in StoredType if kind.name in MessageType.__members__} | {
    StoredType.PRIORITY: int(MessageType.NORMAL)
}
# Constants of this module are compiled in; those of a class that is not compiled are looked up for each message.
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_COMPRESSION: Final = int(SysFlag.COMPRESSION_MASK)
_ZLIB: Final = int(SysFlag.COMPRESSION_ZLIB)
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


def message_of(stored: StoredMessage, topic: str, attempt: int = 0, handle: str = "", invisible_ms: int = 0) -> bytes:
    """The bytes of a `Message`.

    Args:
        topic: the topic that the client knows; a message that is delivered again is stored in another one.
        attempt: the number of this delivery; 0: as the record says.
        handle: the text that acknowledges it; "" for a message that is not popped.
    Raises:
        RemoteProtocolError, ConfigError: the body cannot be unpacked.
    """
    out = BytesWriter()
    put(out, 1, field(2, topic.encode()))
    for name, value in stored.properties.items():
        if name not in _HIDDEN:
            put(out, 2, field(1, name.encode()) + field(2, value.encode()))
    is_plain = not stored.sys_flag & _COMPRESSED
    encoding, body = (_IDENTITY, stored.body) if is_plain else _body(stored)
    attempt = attempt or min(stored.reconsume_times + 1, MAX_INT32)
    put(out, 3, _system(stored, encoding, _digest(body), attempt, handle, invisible_ms))
    put(out, 4, body)
    return out.getvalue()


def _digest(body: bytes) -> bytes:
    """A `Digest`. Of CRC32 the Node client reads decimal digits, and the others hexadecimal ones. Of MD5 all read the
    same."""
    made = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    return _MD5_TYPE + field(2, made.encode())


def _system(stored: StoredMessage, encoding: int, digest: bytes, attempt: int, handle: str, invisible_ms: int) -> bytes:
    found, out = stored.properties, BytesWriter()
    tags = found.get(_TAGS)
    if tags is not None:
        put_text(out, 1, tags)
    keys = found.get(_KEYS)
    if keys is not None:
        for key in keys.split():
            put_text(out, 2, key)
    put_text(out, 3, stored.message_id)
    put(out, 4, digest)
    put_number(out, 5, encoding)
    put_number(out, 6, _type(stored))
    put(out, 7, time_of(_time(stored.born_timestamp_ms)))
    put_text(out, 8, found.get(_BORN_HOST) or stored.born_host)
    put(out, 9, time_of(_time(stored.store_timestamp_ms)))
    put_text(out, 10, stored.store_host)
    due_ms = _due_ms(found)
    if due_ms is not None:
        put(out, 11, time_of(_time(due_ms)))
    put_text(out, 12, handle)
    if stored.queue_id:
        put_number(out, 13, stored.queue_id)
    put_number(out, 14, stored.queue_offset)
    if handle:
        put(out, 15, time_of(invisible_ms))
    put_number(out, 16, attempt)
    put_text(out, 17, found.get(_SHARDING_KEY) or "")
    put_text(out, 18, found.get(_TRACE_CONTEXT) or "")
    _put_dead_letter(out, found)
    text = found.get(_PRIORITY)
    priority = whole_number(text) if text is not None else None
    if priority is not None and priority <= MAX_INT32:
        put_number(out, 22, priority)
    return out.getvalue()


def _due_ms(properties: dict[str, str]) -> int | None:
    for name in _DUE:
        number = whole_number(properties.get(name)) if name in properties else None
        if number is not None:
            return number
    return None


def _time(ms: int) -> int:
    """The nearest time that a `Timestamp` may have. Java's clients give up a whole answer because of another one."""
    return min(max(ms, 0), _YEAR_10000_MS - 1)


def _put_dead_letter(out: BytesWriter, properties: dict[str, str]) -> None:
    topic = properties.get(_DLQ_ORIGIN_TOPIC)
    if topic:
        origin = BytesWriter()
        put_text(origin, 1, topic)
        put_text(origin, 2, properties.get(_DLQ_ORIGIN_MESSAGE_ID) or "")
        put(out, 20, origin.getvalue())


def _body(stored: StoredMessage) -> tuple[int, bytes]:
    return (_IDENTITY, decompress(stored.body, stored.sys_flag)) if is_unpacked(stored) else (_GZIP, stored.body)


def is_unpacked(stored: StoredMessage) -> bool:
    """Whether `message_of` unpacks the body of a message, because its clients cannot."""
    kind = stored.sys_flag & _COMPRESSION
    return bool(stored.sys_flag & _COMPRESSED) and kind != 0 and kind != _ZLIB


def _type(stored: StoredMessage) -> int:
    found = stored.properties
    if stored.sys_flag & _TRANSACTION_BITS:
        return _TRANSACTION
    return _DELAY if _TIMER_OUT_MS in found else _TYPES[type_of_message(found)]


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
