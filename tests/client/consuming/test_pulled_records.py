"""kernel/messages.py: one pass finds what `walk` and `decode` find one by one, also in damaged bytes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import CorruptRecord, RemoteProtocolError
from sparrowmq.kernel.messages import receive
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from tests import records

HOSTS = st.sampled_from([hosts.pack("127.0.0.1:10911"), hosts.pack("[2001:db8::1]:10911")])
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
RAW_PROPERTIES = st.lists(
    st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"a", b"b||c", b"\xff", b"__CRC32#"]), max_size=9
).map(b"".join)
RECORDS = st.builds(
    records.encoded,
    st.sampled_from(["t", "%RETRY%g", "x" * 127, "x" * 128, "ü"]),
    INT32,
    st.binary(max_size=300),
    RAW_PROPERTIES,
    queue_offset=INT64,
    physical_offset=INT64,
    flag=INT32,
    sys_flag=st.integers(0, 0x7FF),
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    store_timestamp_ms=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_offset=INT64,
    crc=st.booleans(),
)


@dataclass
class Decoded:
    messages: list[StoredMessage]
    damaged: list[str]
    problem: str | None = None


def in_one_pass(body: bytes) -> tuple[Decoded, list[ReceivedMessage]]:
    found: list[ReceivedMessage] = []
    damaged: list[int] = []
    problem = receive(ReceivedMessage, body, found, damaged)
    return Decoded([each.stored for each in found], [str(record.body_damage(each)) for each in damaged], problem), found


def one_by_one(body: bytes) -> Decoded:
    slow = Decoded([], [])
    try:
        for each in record.walk(body):
            try:
                slow.messages.append(record.decode(each))
            except CorruptRecord as error:
                slow.damaged.append(str(error))
    except RemoteProtocolError as error:
        slow.problem = str(error)
    return slow


@given(st.lists(RECORDS, max_size=4))
def test_every_field_is_the_one_of_the_slow_decoder(encoded):
    fast, found = in_one_pass(b"".join(encoded))
    assert fast == one_by_one(b"".join(encoded))
    assert (len(fast.messages), fast.problem) == (len(encoded), None)
    for pulled, stored in zip(found, fast.messages, strict=True):
        at_once = pulled.offset, pulled.store_size, pulled._sys_flag, pulled.reconsume_times, pulled._stored_body
        assert at_once == (
            stored.queue_offset,
            stored.store_size,
            stored.sys_flag,
            stored.reconsume_times,
            stored.body,
        )
        assert (pulled._topic(), pulled.tag) == (stored.topic, stored.tags)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_damaged_bytes_give_the_same_messages_and_the_same_errors(encoded, data):
    body = bytearray(b"".join(encoded))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(body), data.draw(st.integers(0, len(body)))]))
    assert in_one_pass(bytes(body[:cut]))[0] == one_by_one(bytes(body[:cut]))


@pytest.mark.parametrize("value", [0, 0x7F, 0xFF, 0x30])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1"])
def test_each_damaged_byte_of_a_head_or_an_end_gives_the_same_errors(value, host):
    sound = records.encoded(body=b"b" * 20, properties=b"TAGS\x01a\x02", store_host=hosts.pack(host))
    for at in (*range(112), -1, -2, -30):
        damaged = bytearray(sound)
        damaged[at] = value
        body = sound + bytes(damaged) + sound
        assert in_one_pass(body)[0] == one_by_one(body), f"byte {at}"


def test_the_shortest_record_is_decoded():
    shortest = records.encoded("", body=b"", crc=False)
    fast, _ = in_one_pass(shortest * 2)
    assert fast == one_by_one(shortest * 2)
    assert len(fast.messages) == 2
