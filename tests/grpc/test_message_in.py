"""Messages of clients, checked."""

import gzip
import zlib

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.message_in import MAX_DELAY_MS, body_of, properties_of, send_request, type_of, unpack_bodies
from sparrowmq.grpc.wire_types import MessageType
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import parse
from tests.grpc.scripted import outgoing

NOW_MS = 1_700_000_000_000


def delayed(delay_ms, **system):
    made = outgoing(**system)
    set_ms(made.system_properties.delivery_timestamp, NOW_MS + delay_ms)
    return made


def code_of(function, *args):
    with pytest.raises(RemoteError) as caught:
        function(*args)
    return caught.value.code


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (outgoing(), MessageType.NORMAL),
        (outgoing(message_group="g"), MessageType.FIFO),
        (delayed(1), MessageType.DELAY),
        (outgoing(priority=0), MessageType.PRIORITY),
        (outgoing(message_type=MessageType.TRANSACTION), MessageType.TRANSACTION),
    ],
)
def test_type_is_what_the_message_has(sent, kind):
    assert type_of(sent) == kind


def test_message_of_two_types_is_refused():
    assert code_of(type_of, delayed(1, message_group="g")) == 40014


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"message_id": " "}, 40009),
        ({"tag": "a|b"}, 40004),
        ({"tag": " "}, 40004),
        ({"keys": ["a", ""]}, 40005),
        ({"keys": ["a\x01"]}, 40005),
        ({"keys": ["a"] * 129}, 40005),
        ({"message_group": "x" * 64}, 40006),
        ({"message_group": "\x02"}, 40006),
    ],
)
def test_bad_field_has_its_code(system, code):
    assert code_of(properties_of, outgoing(**system), "orders", NOW_MS) == code


@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", " ", "a\x01b"])
def test_property_with_a_bad_name_is_refused(name):
    sent = outgoing()
    sent.user_properties[name] = "x"
    assert code_of(properties_of, sent, "orders", NOW_MS) == 40007


def test_value_cannot_add_a_property():
    sent = outgoing()
    sent.user_properties["a"] = "x\x02TAGS\x01stolen"
    assert code_of(properties_of, sent, "orders", NOW_MS) == 40007


def test_too_many_or_too_large_properties_are_refused():
    many, large = outgoing(), outgoing()
    many.user_properties.update({f"p{number}": "x" for number in range(129)})
    large.user_properties["p"] = "x" * 16_385
    assert code_of(properties_of, many, "orders", NOW_MS) == 43101
    assert code_of(properties_of, large, "orders", NOW_MS) == 43101


@pytest.mark.parametrize(("delay_ms", "is_fine"), [(-1000, True), (MAX_DELAY_MS, True), (MAX_DELAY_MS + 1, False)])
def test_delivery_is_at_most_a_day_ahead(delay_ms, is_fine):
    if is_fine:
        assert parse(properties_of(delayed(delay_ms), "orders", NOW_MS))["TIMER_DELIVER_MS"] == str(NOW_MS + delay_ms)
    else:
        assert code_of(properties_of, delayed(delay_ms), "orders", NOW_MS) == 40012


@pytest.mark.parametrize(("body", "code"), [(b"", 41302), (b"x" * (4 * 1024 * 1024 + 1), 41301)])
def test_body_is_neither_empty_nor_too_large(body, code):
    assert code_of(body_of, outgoing(body=body)) == code


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        (1, "3610A686"),
        (2, "5D41402ABC4B2A76B9719D911017C592"),
        (3, "AAF4C61DDCC5E8A2DABEDE0F3B482CD9AEA9434D"),
    ],
)
def test_body_that_does_not_fit_its_digest_is_refused(kind, digest):
    sent = outgoing(body=b"hello")
    sent.system_properties.body_digest.type = kind
    sent.system_properties.body_digest.checksum = digest
    assert body_of(sent) == b"hello"
    sent.body = b"hallo"
    assert code_of(body_of, sent) == 40016


@pytest.mark.parametrize("digest", ["69373F6", "069373F6", "069373f6", "110326774"])
def test_clients_write_a_crc_in_different_forms(digest):
    sent = outgoing(body=b"body 32")
    sent.system_properties.body_digest.type = 1
    sent.system_properties.body_digest.checksum = digest
    assert body_of(sent) == b"body 32"


def test_gzip_body_is_unpacked_and_a_bomb_is_refused():
    assert unpack_bodies([b"plain", gzip.compress(b"hello")], [False, True]) == [b"plain", b"hello"]
    assert code_of(unpack_bodies, [gzip.compress(bytes(5 << 20))], [True]) == 41301
    assert code_of(unpack_bodies, [zlib.compress(b"x")], [True]) == 40016


def test_bombs_of_one_call_together_are_refused():
    bomb = gzip.compress(bytes(4 << 20))
    assert sum(map(len, unpack_bodies([bomb] * 4, [True] * 4))) == 16 << 20
    assert code_of(unpack_bodies, [bomb] * 1000, [True] * 1000) == 41300


def test_request_has_everything_that_the_broker_needs():
    sent = outgoing(tag="t", keys=["k1", "k2"], message_group="g", born_host="h", trace_context="c")
    sent.user_properties["a"] = "b"
    set_ms(sent.system_properties.born_timestamp, 5)
    ask = send_request(sent, "orders", ("broker-a", 3), NOW_MS)
    assert (ask.topic, ask.producer_group, ask.queue_id, ask.broker_name) == (
        "orders",
        "orders",
        3,
        "broker-a",
    )
    assert (ask.born_timestamp, ask.sys_flag) == (5, 0)
    assert parse(ask.properties or "") == {
        "a": "b",
        "UNIQ_KEY": "01AB",
        "WAIT": "true",
        "TAGS": "t",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "g",
        "__BORNHOST": "h",
        "TRACE_CONTEXT": "c",
    }


def test_half_message_is_marked():
    sent = outgoing(message_type=MessageType.TRANSACTION)
    sent.system_properties.orphaned_transaction_recovery_duration.seconds = 7
    ask = send_request(sent, "orders", ("broker-a", 0), NOW_MS)
    found = parse(ask.properties or "")
    assert ask.sys_flag == SysFlag.PREPARED
    assert ask.born_timestamp == NOW_MS
    assert (found["TRAN_MSG"], found["PGROUP"]) == ("true", "orders")
    assert found["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "7"
