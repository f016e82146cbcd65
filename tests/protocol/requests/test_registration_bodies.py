"""Registrations: Java's plain and packed forms, damage and bombs."""

import zlib

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.requests.registration_bodies import MAX_INFLATED_BYTES, RegisterBrokerBody, sum_in_steps

TOPICS = {"Orders": TopicConfig("Orders", 4, 4), "TBW102": TopicConfig("TBW102", 8, 8, 7)}
BODY = RegisterBrokerBody(TopicConfigTable(DataVersion(3, 1700000000000), TOPICS))

# RegisterBrokerBody.encode of Java 4.9.8, plain and compressed.
JAVA = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"timestamp":1700000000000},'
    b'"topicConfigTable":{"Orders":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"Orders","topicSysFlag":0,"writeQueueNums":4},"TBW102":{"order":false,"perm":7,"readQueueNums":8,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}}}}'
)
JAVA_PACKED = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d6512ac9cc4d2d2e49cc2d50b232343740805a060606262016f72f4a492d2a563001423385"
    "604f3f771fd7f810477790548853b8a181918205109aa34a3145c702008d5018df"
)


def packed_form(body: RegisterBrokerBody) -> bytes:
    return at_once(body.pack_in_steps())


def unpacked(raw: bytes) -> RegisterBrokerBody:
    return at_once(RegisterBrokerBody.unpack_in_steps(raw))


def test_a_registration_is_that_of_java_in_both_forms() -> None:
    assert BODY.encode() == JAVA
    assert RegisterBrokerBody.decode(JAVA) == BODY
    assert zlib.decompress(packed_form(BODY)) == zlib.decompress(JAVA_PACKED)
    assert unpacked(JAVA_PACKED) == BODY


def _packed(line: bytes) -> bytes:
    """A packed registration with this one topic."""
    raw = b"\x00\x00\x00\x02{}\x00\x00\x00\x01" + len(line).to_bytes(4, "big") + line + b"\x00\x00\x00\x02[]"
    return zlib.compress(raw)


def test_attributes_of_5_are_read() -> None:
    topics = unpacked(_packed(b'T 1 2 6 MULTI_TAG {"message.type":"FIFO","b":"x y"}')).topics
    attributes = {"message.type": "FIFO", "b": "x y"}
    assert topics.topic_config_table == {"T": TopicConfig("T", 1, 2, 6, "MULTI_TAG", attributes=attributes)}


def test_a_packed_topic_has_the_five_words_that_a_name_server_of_4_9_reads() -> None:
    topic = TopicConfig("T", 1, 2, 6, "MULTI_TAG", attributes={"message.type": "FIFO"})
    packed = packed_form(RegisterBrokerBody(TopicConfigTable(DataVersion(1, 2, 3), {"T": topic}), ["h:1"]))
    assert b"\x00\x00\x00\x11T 1 2 6 MULTI_TAG\x00" in zlib.decompress(packed)


def table_of(count: int) -> TopicConfigTable:
    return TopicConfigTable(topic_config_table={f"t{each}": TopicConfig(f"t{each}") for each in range(count)})


def test_what_5_adds_at_the_end_is_not_read() -> None:
    longer = zlib.decompress(JAVA_PACKED) + b"\x00\x00\x00\x01\x00\x00\x00\x02{}"
    assert unpacked(zlib.compress(longer)) == BODY


@pytest.mark.parametrize("size", range(0, 107, 5))
def test_a_packed_registration_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        unpacked(JAVA_PACKED[:-1][:size])
    with pytest.raises(RemoteProtocolError):
        unpacked(zlib.compress(zlib.decompress(JAVA_PACKED)[:size]))


@pytest.mark.parametrize("line", [b"T 1 2 6", b"T x 2 6 SINGLE_TAG", b"", b"T 1 2 6 SINGLE_TAG {"])
def test_a_topic_that_cannot_be_read_is_refused(line: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unpacked(_packed(line))


def test_a_dialect_in_a_packed_registration_is_refused() -> None:
    """The reader of dialects would take a second for these 1.5 KB."""
    with pytest.raises(RemoteProtocolError, match="standard JSON"):
        unpacked(_packed(b"T 1 2 6 SINGLE_TAG {" + b"a:1," * 200_000 + b"b:1}"))


def test_a_packed_registration_is_read_in_steps() -> None:
    steps = RegisterBrokerBody.unpack_in_steps(packed_form(RegisterBrokerBody(table_of(1000))))
    assert sum(1 for _ in steps) > 1000


def test_a_bomb_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="holds more than"):
        unpacked(zlib.compress(bytes(MAX_INFLATED_BYTES + 1), 1))


def test_the_checksum_has_31_bits() -> None:
    assert at_once(sum_in_steps(b"123456789")) == 0xCBF43926 & 0x7FFFFFFF


def test_a_registration_is_written_and_packed_in_steps():
    said = RegisterBrokerBody(table_of(1000), ["h:1"])
    assert at_once(said.encode_in_steps()) == said.encode()
    assert sum(1 for _ in said.encode_in_steps()) == 10
    assert sum(1 for _ in said.pack_in_steps()) >= 1000
    assert at_once(RegisterBrokerBody(TopicConfigTable()).encode_in_steps()) == RegisterBrokerBody().encode()
