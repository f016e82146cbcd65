"""A commit stores what decoding the half message and encoding it again would give, byte for byte."""

import pytest

from sparrowmq.errors import CorruptRecord, InvalidMessage, RemoteProtocolError
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Destination, Half
from sparrowmq.protocol.messages.properties import Properties, Terms

V4 = hosts.pack("127.0.0.1:10911")
V6 = hosts.pack("[2001:db8::1]:10911")
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
ORDERS = Destination("Orders", 3, "g", Terms(Properties()))


def entry(topic, queue_id, properties, born_host=V4, sys_flag=1, prepared_offset=0):
    text = Properties.decode(properties)
    return Entry(topic, queue_id, b"hello", text, 1000, born_host, 7, sys_flag, 2, prepared_offset)


def half_of(properties=b"TAGS\x01a\x02", topic=HALF_TOPIC, crc=True, **more):
    return record.encode(entry(topic, 0, properties, **more), Placed(500, 9, 2000, V4), crc)


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("half_crc", [True, False])
@pytest.mark.parametrize("topic", ["Orders", "T" * 200])
@pytest.mark.parametrize("half_topic", [HALF_TOPIC, "H" * 130])
@pytest.mark.parametrize("properties", [b"TAGS\x01a\x02KEYS\x01k\x02", b"TAGS\x01\xe4\xb8\xad\x02", b""])
@pytest.mark.parametrize(("born_host", "store_host"), [(V4, V4), (V6, V4), (V4, V6), (V6, V6)])
def test_a_commit_is_the_half_message_at_its_own_address(
    born_host, store_host, properties, half_topic, topic, half_crc, crc
):
    half = Half(half_of(properties, half_topic, half_crc, born_host=born_host))
    assert (half.offset, half.queue_offset) == (500, 9)
    assert half.properties.render() == properties.decode()
    placed = Placed(4096, 7, 3000, store_host)
    expected = record.encode(entry(topic, 3, properties, born_host, 1 | 8, 500), placed, crc)
    assert half.commit(Destination(topic, 3, "g", Terms(half.properties)), placed, crc) == expected


def test_a_half_message_of_a_broker_with_ipv6_can_be_committed_by_one_without():
    half = Half(record.encode(entry(HALF_TOPIC, 0, b""), Placed(500, 9, 2000, V6)))
    found = record.decode(half.commit(ORDERS, Placed(4096, 7, 3000, V4), crc=True))
    assert (found.store_host, found.sys_flag, found.body) == ("127.0.0.1:10911", 1 | 8, b"hello")


def test_a_crc_among_the_properties_that_is_not_the_stores_last_one_is_not_stored_again():
    half = Half(half_of(b"__CRC32#\x010123456789\x02TAGS\x01a\x02", crc=False))
    assert half.properties.render() == "TAGS\x01a\x02"
    found = half.commit(ORDERS, Placed(4096, 7, 3000, V4), crc=True)
    assert found.count(b"__CRC32#") == 1 and record.check(found, 4096, needs_crc=True) is None


def test_properties_of_java_without_their_last_end_get_it_before_the_crc():
    java = bytearray(half_of(b"TAGS\x01a\x02", crc=False))[:-1]
    java[0:4] = len(java).to_bytes(4, "big")
    java[-8:-6] = (6).to_bytes(2, "big")
    found = Half(bytes(java)).commit(ORDERS, Placed(4096, 7, 3000, V4), crc=True)
    assert record.check(found, 4096, needs_crc=True) is None
    assert record.decode(found).properties == {"TAGS": "a"}


@pytest.mark.parametrize(("at", "error"), [(3, RemoteProtocolError), (7, RemoteProtocolError), (90, CorruptRecord)])
def test_what_is_damaged_is_no_half_message(at, error):
    made = bytearray(half_of())
    made[at] ^= 0x40
    with pytest.raises(error):
        Half(bytes(made))


def test_what_does_not_fit_a_record_is_refused():
    half = Half(half_of(b"A\x01" + b"x" * 32_750 + b"\x02", crc=False))
    with pytest.raises(InvalidMessage, match="the properties take"):
        half.commit(ORDERS, Placed(4096, 7, 3000, V4), crc=True)
    with pytest.raises(InvalidMessage, match="does not fit"):
        Half(half_of()).commit(
            Destination("Orders", 1 << 40, None, Terms(Properties())), Placed(4096, 7, 3000, V4), crc=True
        )


@pytest.mark.parametrize("behind", [b"", b"\x02", b"\x02REAL_QID\x011\x02"])
def test_the_owner_is_taken_out_of_properties_that_are_not_utf8(behind):
    # Bytes that Java wrote: every decoded text would be encoded differently.
    raw = half_of(b"TAGS\x01a\x02TRAN_OWNER\x01someone" + (behind or b"\x02"), crc=False)
    raw = raw.replace(b"TAGS\x01a", b"TAGS\x01\xff")
    if not behind:
        raw = (len(raw) - 1).to_bytes(4, "big") + raw[4:-1]
        begin = raw.index(b"TAGS") - 2
        raw = raw[:begin] + (len(raw) - begin - 2).to_bytes(2, "big") + raw[begin + 2 :]
    half = Half(raw)
    assert half.owner == "someone"
    found = half.commit(ORDERS, Placed(4096, 7, 3000, V4), crc=False)
    assert found.endswith(b"TAGS\x01\xff" + behind) and b"TRAN_OWNER" not in found
