"""A stored message as a gRPC client gets it.

Clients of 5.x unpack gzip and zlib. A body that is packed in another way is sent unpacked.
Source: GrpcConverter.buildMessage, Java 5.4.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sparrowmq.grpc.settings_answer import set_ms
from sparrowmq.grpc.wire_types import MD5, Encoding, MessageType, message
from sparrowmq.protocol.messages.compression import decompress
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.message_types import type_of_message
from sparrowmq.protocol.messages.properties import whole_number
from sparrowmq.protocol.messages.property_names import RESERVED, Property

_HIDDEN: Final = RESERVED | {
    Property.PRIORITY,
    Property.SHARDING_KEY,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
    Property.CHECK_IMMUNITY_TIME_IN_SECONDS,
    Property.TRACE_CONTEXT,
}
_ZLIB: Final = (0, SysFlag.COMPRESSION_ZLIB)
MOST_INT32: Final = 0x7FFFFFFF
_YEAR_10000_MS: Final = 253_402_300_800_000
_DUE: Final = (Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS)


def message_of(stored: StoredMessage, topic: str) -> Any:
    """The message `Message`.

    Args:
        topic: the topic that the client knows; a message that is delivered again is stored in another one.
    Raises:
        RemoteProtocolError, ConfigError: the body cannot be unpacked.
    """
    found = stored.properties
    made = message("Message")()
    made.topic.name = topic
    made.user_properties.update({name: value for name, value in found.items() if name not in _HIDDEN})
    system = made.system_properties
    system.body_encoding, made.body = _body(stored)
    # Of CRC32 the Node client reads decimal digits, and the others hexadecimal ones. Of MD5 all read the same.
    system.body_digest.type = MD5
    system.body_digest.checksum = hashlib.md5(made.body, usedforsecurity=False).hexdigest().upper()
    system.message_id = stored.message_id
    system.message_type = _type(stored)
    if stored.tags is not None:
        system.tag = stored.tags
    system.keys.extend(stored.keys)
    set_ms(system.born_timestamp, _time(stored.born_timestamp_ms))
    system.born_host = found.get(Property.BORN_HOST) or stored.born_host
    set_ms(system.store_timestamp, stored.store_timestamp_ms)
    system.store_host = stored.store_host
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = min(stored.reconsume_times + 1, MOST_INT32)
    due_ms = next((number for name in _DUE if (number := whole_number(found.get(name))) is not None), None)
    if due_ms is not None:
        set_ms(system.delivery_timestamp, _time(due_ms))
    if group := found.get(Property.SHARDING_KEY):
        system.message_group = group
    priority = whole_number(found.get(Property.PRIORITY))
    if priority is not None and priority <= MOST_INT32:
        system.priority = priority
    if context := found.get(Property.TRACE_CONTEXT):
        system.trace_context = context
    _add_dead_letter(system, found)
    return made


def _time(ms: int) -> int:
    """The nearest time that a `Timestamp` may have. Java's clients give up a whole answer because of another one."""
    return min(max(ms, 0), _YEAR_10000_MS - 1)


def _add_dead_letter(system: Any, found: dict[str, str]) -> None:
    topic = found.get(Property.DLQ_ORIGIN_TOPIC)
    if topic:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = found.get(Property.DLQ_ORIGIN_MESSAGE_ID, "")


def _body(stored: StoredMessage) -> tuple[Encoding, bytes]:
    if is_unpacked(stored):
        return Encoding.IDENTITY, decompress(stored.body, stored.sys_flag)
    return Encoding.GZIP if stored.sys_flag & SysFlag.COMPRESSED else Encoding.IDENTITY, stored.body


def is_unpacked(stored: StoredMessage) -> bool:
    """Whether `message_of` unpacks the body of a message, because its clients cannot."""
    kind = stored.sys_flag & SysFlag.COMPRESSION_MASK
    return bool(stored.sys_flag & SysFlag.COMPRESSED) and kind not in _ZLIB


def _type(stored: StoredMessage) -> MessageType:
    if stored.sys_flag & SysFlag.TRANSACTION_MASK:
        return MessageType.TRANSACTION
    if Property.TIMER_OUT_MS in stored.properties:
        return MessageType.DELAY
    return MessageType[type_of_message(stored.properties).name]
