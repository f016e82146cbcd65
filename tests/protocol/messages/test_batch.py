"""Batches: the bytes of Java, both directions, and damage."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.kernel.batch_layout import MAX_COUNT, PLACE_BYTES
from sparrowmq.protocol.messages.batch import BatchPart, decode, encode, entries, places
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties

PARTS = st.builds(BatchPart, st.binary(max_size=50), st.binary(max_size=50), st.integers(-(1 << 31), (1 << 31) - 1))

# MessageDecoder.encodeMessages of Java 4.9.8.
JAVA = bytes.fromhex(
    "000000360000000000000000000000070000000568656c6c6f001b4b455953016b3102574149540174727565025441475301546167410000"
    "002500000000000000000000000000000006e4b896e7958c0009574149540174727565"
)
JAVA_PARTS = [
    BatchPart(b"hello", b"KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01TagA", 7),
    BatchPart("世界".encode(), b"WAIT\x01true", 0),
]


@pytest.mark.covers("S-PROD-18")
def test_a_batch_has_the_bytes_of_java() -> None:
    assert encode(JAVA_PARTS) == JAVA
    assert decode(JAVA) == JAVA_PARTS


@given(st.lists(PARTS, min_size=1, max_size=10))
def test_what_was_encoded_is_decoded(parts: list[BatchPart]) -> None:
    assert decode(memoryview(encode(parts))) == parts


@pytest.mark.parametrize("size", [*range(1, 54), *range(55, len(JAVA))])
def test_a_batch_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(JAVA[:size])


@given(st.binary(max_size=200))
def test_noise_is_refused_or_read_but_never_crashes(noise: bytes) -> None:
    with suppress(RemoteProtocolError):
        assert encode(decode(noise))


@pytest.mark.parametrize(
    ("position", "value"), [(0, 0), (0, -1), (0, 55), (16, -1), (16, 6), (16, 1 << 30), (25, 0x7FFF0000)]
)
def test_sizes_that_contradict_each_other_are_refused(position: int, value: int) -> None:
    broken = bytearray(JAVA)
    broken[position : position + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError, match="message 0"):
        decode(broken)


def test_the_count_is_limited_both_ways() -> None:
    one = BatchPart(b"", b"")
    assert len(decode(encode([one] * MAX_COUNT))) == MAX_COUNT
    with pytest.raises(InvalidMessage, match=f"not {MAX_COUNT + 1}"):
        encode([one] * (MAX_COUNT + 1))
    with pytest.raises(RemoteProtocolError, match=f"1 to {MAX_COUNT} messages"):
        decode(encode([one]) * (MAX_COUNT + 1))
    with pytest.raises(InvalidMessage):
        encode([])
    with pytest.raises(RemoteProtocolError, match="none"):
        decode(b"")


def test_properties_that_are_too_long_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="32767"):
        encode([BatchPart(b"", bytes(32768))])


def test_some_of_its_messages_become_entries_with_all_but_their_own_shared():
    content = encode([BatchPart(b"0", b"a\x011\x02", 5), BatchPart(b"11", b""), BatchPart(b"", b"TAGS\x01b\x02", 7)])
    shared = Entry("T", 3, b"not looked at", Properties(), 1000, bytes(8), 9, sys_flag=16)
    found = entries(shared, content, places(content)[PLACE_BYTES:])
    assert [(bytes(entry.body), entry.properties.encode(), entry.flag) for entry in found] == [
        (b"11", b"", 0),
        (b"", b"TAGS\x01b\x02", 7),
    ]
    assert {
        (entry.topic, entry.queue_id, entry.born_timestamp_ms, entry.born_host, entry.sys_flag) for entry in found
    } == {("T", 3, 1000, bytes(8), 16)}
