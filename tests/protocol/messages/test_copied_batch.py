"""sparrowmq.protocol.messages.copied_batch: messages with their own born times."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.copied_batch import Copy, encode, entries
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties

SHARED = Entry("T", 3, b"", Properties(), 0, b"host")
COPIES = [
    Copy(1_700_000_000_000, 0, BatchPart(b"one", b"UNIQ_KEY\x01a\x02", 7)),
    Copy(1_700_000_000_001, 1 | 4, BatchPart(b"", b"", -1)),
]


def test_each_message_has_its_own_born_time_and_flags_of_its_body_only() -> None:
    [[first, second]] = entries(SHARED, encode(COPIES))
    assert (first.topic, first.queue_id, first.born_host) == ("T", 3, b"host")
    assert (first.body, first.born_timestamp_ms, first.flag) == (b"one", 1_700_000_000_000, 7)
    assert first.properties.unique_key == "a" and first.sys_flag == 0
    assert (second.body, second.born_timestamp_ms, second.flag) == (b"", 1_700_000_000_001, -1)
    assert second.sys_flag == 1, "the mark of a transaction is left out"


def test_a_batch_has_at_least_one_message() -> None:
    with pytest.raises(InvalidMessage):
        encode([])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x00",
        struct.pack(">i", 0),
        struct.pack(">i", -1) + bytes(100),
        struct.pack(">i", 2) + encode(COPIES[:1])[4:],
        struct.pack(">i", 1) + encode(COPIES)[4:],
        encode(COPIES)[:-1],
    ],
)
def test_contradictions_are_refused(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(entries(SHARED, content))


@given(st.binary(max_size=200))
def test_any_bytes_are_copies_or_refused(content: bytes) -> None:
    try:
        [found] = entries(SHARED, content)
    except RemoteProtocolError:
        return
    assert found
