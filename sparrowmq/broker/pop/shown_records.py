"""Records as a consumer that pops sees them, where they differ from the stored ones.

comes again                the number of deliveries before (reconsumeTimes)
of a retry topic           the topic itself, and the receipt handle in the property POP_CK: the client could not
                           make it from the answer
"""

from __future__ import annotations

from sparrowmq.protocol.messages.properties import VALUE_END, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record_layout import (
    BODY_SIZE_BEHIND_RECONSUME_TIMES,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    HOST_BITS_AT,
    INT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
    PREFIX,
    SHORT,
    TOPIC_SIZE_FIELD_V1,
    TOPIC_SIZE_FIELD_V2,
)


def given_again(view: memoryview, times: int) -> memoryview:
    """Return the record with so many deliveries more."""
    if times <= 0:
        return view
    raw = bytearray(view)
    at = _body_size_at(raw) - BODY_SIZE_BEHIND_RECONSUME_TIMES
    INT.pack_into(raw, at, INT.unpack_from(raw, at)[0] + times)
    return memoryview(bytes(raw))


def shown_as(view: memoryview, topic: str, handle: str) -> memoryview:
    """Return the record with another topic, and with a handle."""
    raw = bytearray(view)
    size_at = _body_size_at(raw)
    topic_at = size_at + BODY_SIZE_FIELD + INT.unpack_from(raw, size_at)[0]
    if PREFIX.unpack_from(raw)[1] == MAGIC_V1:
        properties_at = topic_at + TOPIC_SIZE_FIELD_V1 + raw[topic_at]
    else:
        properties_at = topic_at + TOPIC_SIZE_FIELD_V2 + SHORT.unpack_from(raw, topic_at)[0]
    properties = bytes(raw[properties_at + SHORT.size :])
    if properties and not properties.endswith(VALUE_END.encode()):
        properties += VALUE_END.encode()
    properties += f"{mark(Property.POP_CK)[1:]}{handle}{VALUE_END}".encode()
    name = topic.encode()
    is_short = len(name) <= MAX_TOPIC_BYTES_V1
    size = bytes((len(name),)) if is_short else SHORT.pack(len(name))
    del raw[topic_at:]
    raw += size + name + SHORT.pack(len(properties)) + properties
    PREFIX.pack_into(raw, 0, len(raw), MAGIC_V1 if is_short else MAGIC_V2)
    return memoryview(bytes(raw))


def _body_size_at(raw: bytearray) -> int:
    return BODY_SIZE_BY_HOSTS[raw[HOST_BITS_AT] >> 4 & 3]
