"""record.py: the layout against bytes made by Java's rules, damage of every kind, and round trips."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrowmq.errors import CorruptRecord, InvalidMessage, RemoteProtocolError
from sparrowmq.kernel import records as kernel
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import parse
from tests import records

V4 = hosts.pack("127.0.0.1:10911")
V6 = hosts.pack("[2001:db8::1]:10911")


def encoded(
    topic=b"PT",
    body=b"hello",
    properties=b"TAGS\x01a\x02",
    born_host=V4,
    store_host=V4,
    sys_flag=0,
    queue_offset=7,
    physical_offset=4096,
    crc=True,
):
    return records.encoded(
        topic.decode(),
        3,
        body,
        properties,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=9,
        sys_flag=sys_flag,
        born_timestamp_ms=1_700_000_000_000,
        born_host=born_host,
        store_timestamp_ms=1_700_000_000_001,
        store_host=store_host,
        reconsume_times=2,
        prepared_offset=55,
        crc=crc,
    )


@pytest.mark.covers("S-STORE-02")
def test_a_record_without_property_crc_has_the_bytes_that_java_writes():
    properties = b"KEYS\x01k1\x02TAGS\x01a\x02"
    expected = b"".join(
        [
            struct.pack(">ii", 91 + 5 + 2 + len(properties), -626843481),
            struct.pack(">i", zlib.crc32(b"hello") & 0x7FFFFFFF),
            struct.pack(">iiqqi", 3, 9, 7, 4096, 0),
            struct.pack(">q", 1_700_000_000_000) + bytes([127, 0, 0, 1]) + struct.pack(">i", 10911),
            struct.pack(">q", 1_700_000_000_001) + bytes([127, 0, 0, 1]) + struct.pack(">i", 10911),
            struct.pack(">iq", 2, 55),
            struct.pack(">i", 5) + b"hello" + b"\x02PT",
            struct.pack(">h", len(properties)) + properties,
        ]
    )
    assert encoded(properties=properties, crc=False) == expected


def test_the_property_crc_is_the_one_of_java_5():
    made = encoded(properties=b"TAGS\x01a")
    covered, tail = made[:-20], made[-20:]
    crc = zlib.crc32(covered) & 0x7FFFFFFF
    digits = []
    for _ in range(10):  # MessageDecoder.createCrc32 takes the lowest digit first
        digits.append(b"0123456789"[crc % 10])
        crc //= 10
    assert tail == b"__CRC32#\x01" + bytes(digits) + b"\x02"
    assert covered.endswith(b"TAGS\x01a\x02")


@given(st.integers(0, 0xFFFFFFFF))
@example(0)
@example(0x7FFFFFFF)
@example(99_999_999)
def test_each_crc_has_ten_digits_the_last_one_first(crc):
    expected = f"__CRC32#\x01{f'{crc & 0x7FFFFFFF:010}'[::-1]}\x02"
    assert kernel.property_crc(crc) == expected.encode()


def test_a_topic_of_more_than_127_bytes_makes_a_v2_record():
    long, short = encoded(topic=b"t" * 128), encoded(topic=b"t" * 127)
    assert struct.unpack_from(">i", long, 4)[0] == MAGIC_V2
    assert struct.unpack_from(">i", short, 4)[0] == MAGIC_V1
    assert record.decode(long).topic == "t" * 128


@pytest.mark.parametrize(("born", "store"), [(V4, V4), (V6, V4), (V4, V6), (V6, V6)])
@pytest.mark.parametrize("crc", [True, False])
def test_hosts_of_both_families_come_back(born, store, crc):
    made = encoded(born_host=born, store_host=store, sys_flag=0x100, crc=crc)
    found = record.decode(made)
    assert (found.born_host, found.store_host) == (hosts.unpack(born), hosts.unpack(store))
    assert found.sys_flag == 0x100 | (0x10 if born is V6 else 0) | (0x20 if store is V6 else 0)
    assert record.check(made, 4096) is None
    assert record.outline(made).store_timestamp_ms == 1_700_000_000_001 == record.store_timestamp_ms(made)


@given(
    st.binary(max_size=300),
    st.text(max_size=200),
    st.dictionaries(st.text("abcXYZ", min_size=1), st.text("äöü 19", min_size=1), max_size=4),
    st.sampled_from([V4, V6]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.booleans(),
)
def test_what_is_encoded_is_decoded(body, topic, properties, host, offset, crc):
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    made = encoded(topic.encode(), body, text, host, V4, 0, offset, 0, crc)
    found = record.decode(made)
    assert (found.topic, found.body, found.properties, found.queue_offset) == (
        topic,
        body,
        properties,
        offset,
    )
    assert (found.queue_id, found.flag, found.reconsume_times, found.prepared_offset) == (3, 9, 2, 55)
    assert (found.store_size, found.body_crc) == (len(made), zlib.crc32(body) & 0x7FFFFFFF)
    assert record.check(made, 0) is None
    check_outline(record.outline(made), found)
    check_outline(record.outline_at(b"before" + made + b"behind", 6), found)


def check_outline(outline: record.Outline, found: StoredMessage) -> None:
    assert (outline.size, outline.topic, outline.queue_id, outline.queue_offset) == (
        found.store_size,
        found.topic,
        found.queue_id,
        found.queue_offset,
    )
    assert (outline.physical_offset, outline.sys_flag, outline.store_timestamp_ms) == (
        found.physical_offset,
        found.sys_flag,
        found.store_timestamp_ms,
    )
    assert parse(outline.properties.render()).keys() - {"__CRC32#"} == found.properties.keys()


def test_every_flipped_bit_is_found():
    made = encoded()
    for bit in range(len(made) * 8):
        damaged = bytearray(made)
        damaged[bit // 8] ^= 1 << bit % 8
        assert record.check(damaged) is not None, f"bit {bit} of {len(made) * 8}"
        between = b"before" + damaged + b"behind"
        assert not kernel.is_sound(between, 6, len(made), 4096, True), f"bit {bit} of {len(made) * 8}"


def test_a_record_among_others_is_checked_where_it_lies():
    made = encoded()
    assert kernel.is_sound(b"before" + made + b"behind", 6, len(made), 4096, True)
    assert not kernel.is_sound(made, 0, len(made), 8192, True)
    assert not kernel.is_sound(made[:-1], 0, len(made), 4096, True)
    assert not kernel.is_sound(made, 0, 10, 4096, True)
    java = encoded(crc=False)
    assert kernel.is_sound(java, 0, len(java), 4096, False)
    assert not kernel.is_sound(java, 0, len(java), 4096, True)
    assert not kernel.is_sound(java.replace(b"hello", b"jello"), 0, len(java), 4096, False)


def test_a_record_of_java_is_checked_by_its_body():
    made = encoded(crc=False)
    damaged = made.replace(b"hello", b"jello")
    assert record.check(made) is None
    assert record.check(damaged) == "its CRC does not fit its body"
    with pytest.raises(CorruptRecord, match="4096"):
        record.decode(damaged)
    assert record.decode(damaged, check_crc=False).body == b"jello"


def test_a_copy_with_the_crc_of_another_record_can_be_given_its_own():
    copy = encoded()[:-11] + b"0123456789\x02"
    assert record.check(copy) == "its CRC does not fit its bytes"
    assert kernel.seal_copy(copy) == encoded()
    assert kernel.seal_copy(copy.replace(b"hello", b"jello")) is None
    assert kernel.seal_copy(encoded(crc=False)) is None


def test_a_sound_record_at_the_wrong_place_is_found():
    assert record.check(encoded(), 8192) == "its own offset is 4096"


@pytest.mark.parametrize("size", [0, 4, 90, 100])
def test_a_cut_record_is_refused(size):
    made = encoded()[:size]
    assert record.check(made) is not None
    with pytest.raises(RemoteProtocolError, match="not a record"):
        record.decode(made)


def test_walk_gives_each_record_uncopied():
    first, second = encoded(), encoded(body=b"x" * 1000, topic=b"t" * 200)
    both = first + second
    views = list(record.walk(both))
    assert [bytes(view) for view in views] == [first, second]
    assert all(view.obj is both for view in views)
    assert list(record.walk(b"")) == []


@pytest.mark.parametrize("rest", [b"\x00", b"\x00" * 100, struct.pack(">ii", 100, -626843481)])
def test_walk_refuses_what_follows_the_last_whole_record(rest):
    made = encoded()
    found: list[bytes] = []
    with pytest.raises(RemoteProtocolError):
        found.extend(map(bytes, record.walk(made + rest)))
    assert list(record.walk(made)) == [made]


def test_walk_does_not_take_a_blank_for_a_record():
    blank = struct.pack(">ii", 200, MAGIC_BLANK) + bytes(192)
    with pytest.raises(RemoteProtocolError, match="magic 0xcbd43194"):
        list(record.walk(blank))


@pytest.mark.parametrize(("size", "crc"), [(32768, False), (32748, True)])
def test_properties_that_do_not_fit_are_refused(size, crc):
    fitting = b"a\x01" + b"x" * (size - 4) + b"\x02"
    assert record.check(encoded(properties=fitting, crc=crc)) is None
    with pytest.raises(InvalidMessage, match="the properties take 32768 bytes"):
        encoded(properties=b"b" + fitting, crc=crc)


def test_a_number_that_does_not_fit_is_refused():
    with pytest.raises(InvalidMessage, match="does not fit"):
        encoded(queue_offset=1 << 63)


@pytest.mark.parametrize("size", range(MIN_SIZE_BYTES, MIN_SIZE_BYTES + 12))
@pytest.mark.parametrize("flag", [0x10, 0x20, 0x30])
def test_a_short_record_that_seems_to_have_ipv6_hosts_is_told(size, flag):
    found = bytearray(size)
    struct.pack_into(">ii", found, 0, size, MAGIC_V1)
    found[39] = flag
    assert record.check(found)


@pytest.mark.parametrize("cut", [0, 1, 90, 130])
def test_the_whole_records_at_the_beginning_of_a_block(cut):
    made = [encoded(body=b"x" * size) for size in (0, 10, 100)]
    whole = b"".join(made)
    begins = [0, len(made[0]), len(made[0]) + len(made[1])]
    assert kernel.starts(whole) == (begins, len(whole), None) and record.starts(whole) == begins
    found, end, problem = kernel.starts(whole[: begins[2] + cut])
    assert (found, end) == (begins[:2], begins[2])
    assert (problem is None) == (cut == 0)


@pytest.mark.parametrize("block", [b"", b"\0" * 200, b"\xff" * 200, encoded()[:-1]])
def test_a_block_that_begins_with_no_record(block):
    assert kernel.starts(block)[:2] == ([], 0)
