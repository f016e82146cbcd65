"""Stored messages as clients get them."""

import lz4.frame
import pytest

from sparrowmq.grpc import message_out
from sparrowmq.grpc.client_settings import ms_of
from sparrowmq.grpc.wire_types import Encoding, MessageType, message_class
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag


def stored(body=b"hello", sys_flag=0, born_ms=1_700_000_000_123, tries=3, **properties):
    return StoredMessage(
        topic="orders",
        queue_id=2,
        queue_offset=5,
        physical_offset=1337,
        store_size=100,
        body_crc=0,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host="10.0.0.1:1",
        store_timestamp_ms=1_700_000_000_456,
        store_host="10.0.0.2:10911",
        reconsume_times=tries,
        prepared_offset=0,
        body=body,
        properties=properties,
    )


def message_of(*args):
    return message_class("Message").FromString(message_out.message_of(*args))


def test_message_has_the_fields_of_the_record():
    got = message_of(stored(UNIQ_KEY="01AB", TAGS="t", KEYS="a b", own="x", POP_CK="secret"), "orders")
    system = got.system_properties
    assert (got.topic.name, got.body, dict(got.user_properties)) == ("orders", b"hello", {"own": "x"})
    assert (system.message_id, system.tag, list(system.keys)) == ("01AB", "t", ["a", "b"])
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (2, 5, 4)
    assert (system.born_host, system.store_host) == ("10.0.0.1:1", "10.0.0.2:10911")
    assert ms_of(system.born_timestamp) == 1_700_000_000_123
    assert ms_of(system.store_timestamp) == 1_700_000_000_456
    assert (system.body_digest.type, system.body_digest.checksum) == (2, "5D41402ABC4B2A76B9719D911017C592")
    assert not system.HasField("message_group")


@pytest.mark.parametrize(
    ("properties", "flag", "kind"),
    [
        ({}, 0, MessageType.NORMAL),
        ({"__SHARDINGKEY": "g"}, 0, MessageType.FIFO),
        ({"TIMER_OUT_MS": "9"}, 0, MessageType.DELAY),
        ({"_SYS_MSG_PRIORITY_": "2"}, 0, MessageType.NORMAL),
        ({"TRAN_MSG": "true"}, 0, MessageType.TRANSACTION),
        ({"TRAN_MSG": "True", "DELAY": "3"}, 0, MessageType.TRANSACTION),
        ({"TRAN_MSG": "false"}, 0, MessageType.NORMAL),
        ({"DELAY": "3"}, 0, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "1"}, 0, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, 0, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "1", "__SHARDINGKEY": "k"}, 0, MessageType.DELAY),
        ({"__SHARDINGKEY": "k", "_SYS_MSG_PRIORITY_": "1"}, 0, MessageType.FIFO),
        ({}, SysFlag.COMMIT, MessageType.TRANSACTION),
    ],
)
def test_message_has_its_type(properties, flag, kind):
    assert message_of(stored(sys_flag=flag, **properties), "orders").system_properties.message_type == kind


def test_own_fields_of_types_come_back():
    system = message_of(stored(__SHARDINGKEY="g", _SYS_MSG_PRIORITY_="2", TIMER_OUT_MS="1000"), "t").system_properties
    assert (system.message_group, system.priority, ms_of(system.delivery_timestamp)) == ("g", 2, 1000)


@pytest.mark.parametrize("number", ["²", "9" * 18, "9" * 19, "9" * 5000, "-5", "x", "2147483648"])
def test_numbers_that_no_client_can_read_are_left_out(number):
    system = message_of(stored(_SYS_MSG_PRIORITY_=number, TIMER_OUT_MS=number), "t").system_properties
    assert not system.HasField("priority")
    assert ms_of(system.delivery_timestamp) <= 253_402_300_799_999


def test_numbers_of_a_record_become_those_that_a_client_can_read():
    found = [
        message_of(stored(born_ms=born_ms, tries=tries), "t").system_properties
        for born_ms, tries in ((-(1 << 63), 3), ((1 << 63) - 1, (1 << 31) - 1))
    ]
    assert [ms_of(system.born_timestamp) for system in found] == [0, 253_402_300_799_999]
    assert [system.delivery_attempt for system in found] == [4, (1 << 31) - 1]


def test_dead_letter_names_its_origin():
    found = message_of(stored(DLQ_ORIGIN_TOPIC="orders", DLQ_ORIGIN_MESSAGE_ID="x"), "%DLQ%g").system_properties
    assert (found.dead_letter_queue.topic, found.dead_letter_queue.message_id) == ("orders", "x")


def test_zlib_body_stays_packed_and_other_kinds_do_not():
    packed = message_of(stored(b"packed", SysFlag.COMPRESSED), "t")
    assert (packed.body, packed.system_properties.body_encoding) == (b"packed", Encoding.GZIP)
    body = lz4.frame.compress(b"hello")
    plain = message_of(stored(body, SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4), "t")
    assert (plain.body, plain.system_properties.body_encoding) == (b"hello", Encoding.IDENTITY)
