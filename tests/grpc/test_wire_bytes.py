"""What the kernel reads and writes of messages, beside protobuf and the long way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.message_in import body_of, is_packed, send_request, type_of
from sparrowmq.grpc.wire_types import Encoding, MessageType, message_class
from sparrowmq.kernel.grpc_messages import acked_message, field, number_field, sent_message, time_of
from sparrowmq.protocol.messages.properties import parse
from sparrowmq.protocol.messages.property_names import OPEN, RESERVED

NAMES = frozenset(name.encode() for name in RESERVED | OPEN)


@given(st.binary(min_size=1, max_size=20_000), st.integers(1, 2**62))
def test_fields_have_the_bytes_of_protobuf(body, offset):
    entry = message_class("SendResultEntry")(offset=offset)
    assert number_field(4, offset) == entry.SerializeToString()
    assert field(4, body) == message_class("Message")(body=body).SerializeToString()


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_numbers_have_the_bytes_of_protobuf(attempt, offset):
    made = message_class("SystemProperties")(queue_offset=offset, delivery_attempt=attempt)
    assert number_field(14, offset) + number_field(16, attempt) == made.SerializeToString()


@given(st.integers(0, 253_402_300_799_999))
def test_times_have_the_bytes_of_protobuf(ms):
    made = message_class("SystemProperties")()
    set_ms(made.born_timestamp, ms)
    assert field(7, time_of(ms)) == made.SerializeToString()


TEXTS = st.sampled_from(["", "a", "b c", " ", "é", "a\x01", "x|y", "KEYS", "UNIQ_KEY", "y" * 300]) | st.text(max_size=4)
SYSTEM = st.fixed_dictionaries(
    {},
    optional={
        "tag": TEXTS,
        "keys": st.lists(TEXTS, max_size=3),
        "message_id": TEXTS | st.just("01AB"),
        "body_encoding": st.sampled_from(list(Encoding)),
        "message_type": st.sampled_from(list(MessageType)),
        "born_host": TEXTS,
        "queue_id": st.integers(0, 5),
        "trace_context": TEXTS,
    },
) | st.just(
    {"message_id": "01AB", "tag": "t", "keys": ["a", "b"], "queue_id": 3, "body_encoding": 1, "message_type": 1}
)
SPECIAL = st.sampled_from([{}, {}, {"message_group": "g"}, {"priority": 0}, {"lite_topic": "x"}])


@given(SYSTEM, SPECIAL, st.dictionaries(TEXTS, TEXTS, max_size=3), st.binary(max_size=9), st.integers(0, 10**13))
def test_a_plain_message_is_read_as_the_long_way_reads_it(system, special, properties, body, born_ms):
    message = message_class("Message")(body=body, user_properties=properties)
    message.topic.name = "orders"
    message.topic.resource_namespace = "ns" if born_ms & 1 else ""
    for name, value in (system | special).items():
        if name == "keys":
            message.system_properties.keys.extend(value)
        else:
            setattr(message.system_properties, name, value)
    set_ms(message.system_properties.born_timestamp, born_ms)
    sent = sent_message(message_class("SendMessageRequest")(messages=[message]).SerializeToString(), NAMES)
    long_way = None
    try:
        long_way = send_request(message, "orders", ("b", 1), 7)
        is_plain = bool(body_of(message)) and not is_packed(message) and type_of(message) == MessageType.NORMAL
    except RemoteError:
        is_plain = False
    if sent is not None:
        assert is_plain and long_way is not None
        topic, message_id, rendered, sent_body, sent_born_ms, _, _ = sent
        assert topic == (message.topic.resource_namespace, "orders")
        assert (message_id, sent_body) == (message.system_properties.message_id, body)
        assert parse(rendered.encode()) == parse((long_way.properties or "").encode())
        assert (sent_born_ms or 7) == long_way.born_timestamp
    elif is_plain and not special:
        texts = [*properties, *properties.values(), *system.get("keys", []), *map(str, system.values())]
        assert OPEN & {*properties} or not all(
            text.isascii() and text.isprintable() and text[:1] != " " for text in texts
        )


def plain(**system):
    message = message_class("Message")(body=b"hello", user_properties={"a": "b"})
    message.topic.name = "orders"
    message.system_properties.message_id = "01AB"
    for name, value in system.items():
        setattr(message.system_properties, name, value)
    return message


def test_the_message_of_an_official_client_is_plain():
    message = plain(tag="t", message_type=1, body_encoding=1, queue_id=2, born_host="host")
    message.system_properties.keys.append("k")
    message.system_properties.body_digest.type = 1
    message.system_properties.body_digest.checksum = "3610A686"
    set_ms(message.system_properties.born_timestamp, 1_700_000_000_123)
    raw = message_class("SendMessageRequest")(messages=[message]).SerializeToString()
    properties = "a\1b\2UNIQ_KEY\x0101AB\2WAIT\1true\2TAGS\1t\2KEYS\1k\2__BORNHOST\1host\2"
    assert sent_message(raw, NAMES) == (
        ("", "orders"), "01AB", properties, b"hello", 1_700_000_000_123, 1, "3610A686"
    )  # fmt: skip


@pytest.mark.parametrize(
    "special", [{"message_group": "g"}, {"message_type": 4}, {"body_encoding": 2}, {"priority": 1}]
)
def test_other_messages_take_the_long_way(special):
    raw = message_class("SendMessageRequest")(messages=[plain(**special)]).SerializeToString()
    assert sent_message(raw, NAMES) is None
    assert sent_message(message_class("SendMessageRequest")(messages=[plain()] * 2).SerializeToString(), NAMES) is None


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_an_acknowledgement_is_read_as_protobuf_reads_it(namespace, group, message_id, handle):
    request = message_class("AckMessageRequest")()
    request.group.name, request.topic.name, request.group.resource_namespace = group, "orders", namespace
    request.entries.add(message_id=message_id, receipt_handle=handle)
    acked = acked_message(request.SerializeToString())
    assert acked is None or acked == ((namespace, group), ("", "orders"), message_id, handle)
    if all(
        text.isascii() and text.isprintable() and text[:1] != " " for text in (namespace, group, message_id, handle)
    ):
        assert (acked is not None) == bool(group and handle)
