"""The table of a record's places says the same as the structs, and as records that Apache's broker wrote."""

import struct

import pytest

from sparrowmq.kernel import record_layout as layout
from sparrowmq.protocol import hosts
from tests.records import encoded

V4, V6 = hosts.pack("10.0.0.1:1"), hosts.pack("[2001:db8::1]:2")
FIELDS = {  # place and format of each field, and what is encoded there
    layout.QUEUE_ID_AT: (">i", 2),
    layout.FLAG_AT: (">i", 3),
    layout.QUEUE_OFFSET_AT: (">q", 4),
    layout.PHYSICAL_OFFSET_AT: (">q", 5),
    layout.BORN_TIMESTAMP_AT: (">q", 6),
}


def made_with(born: bytes, store: bytes) -> bytes:
    return encoded(
        "topic",
        2,
        flag=3,
        queue_offset=4,
        physical_offset=5,
        born_timestamp_ms=6,
        born_host=born,
        store_timestamp_ms=7,
        store_host=store,
        reconsume_times=8,
        prepared_offset=9,
        crc=False,
    )


@pytest.mark.parametrize(
    ("bits", "born", "store"),
    [(0, V4, V4), (1, V6, V4), (2, V4, V6), (3, V6, V6)],
    ids=["v4", "v6 born", "v6 store", "v6"],
)
def test_the_places_are_those_where_encode_writes(bits, born, store):
    made = made_with(born, store)
    for place, (kind, value) in FIELDS.items():
        assert struct.unpack_from(kind, made, place) == (value,)
    assert made[layout.HOST_BITS_AT] >> 4 & 3 == bits
    assert layout.PREFIX.unpack_from(made) == (len(made), layout.MAGIC_V1)
    assert made[layout.BORN_HOST_AT :].startswith(born)
    stored_at = layout.STORE_TIMESTAMP_BY_HOSTS[bits]
    assert layout.LONG.unpack_from(made, stored_at) == (7,)
    assert made[stored_at + layout.STORE_HOST_BEHIND_STORE_TIMESTAMP :].startswith(store)
    size_at = layout.BODY_SIZE_BY_HOSTS[bits]
    reconsume_at = size_at - layout.BODY_SIZE_BEHIND_RECONSUME_TIMES
    assert layout.INT.unpack_from(made, reconsume_at) == (8,)
    assert layout.LONG.unpack_from(made, reconsume_at + layout.PREPARED_OFFSET_BEHIND_RECONSUME_TIMES) == (9,)
    assert layout.INT.unpack_from(made, size_at) == (4,)
    body_at = reconsume_at + layout.BODY_BEHIND_RECONSUME_TIMES
    assert layout.HEADS[bits].size == body_at == size_at + layout.BODY_SIZE_FIELD
    assert made[body_at:] == b"body\x05topic\0\0"


def test_the_limits_follow_from_the_places():
    assert max(head.size for head in layout.HEADS) == layout.LONGEST_HEAD
    behind_body = layout.TOPIC_SIZE_FIELD_V1 + layout.PROPERTIES_SIZE_FIELD
    assert layout.HEADS[0].size + behind_body == layout.MIN_SIZE_BYTES
    assert layout.SYS_FLAG_AT + layout.INT.size == layout.BORN_TIMESTAMP_AT
