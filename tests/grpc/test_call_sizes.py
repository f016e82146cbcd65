"""The largest calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.grpc.call_limits import (
    MAX_CALL_BYTES,
    MAX_ENTRIES,
    MAX_OTHER_BYTES,
    MAX_ROUTE_CALL_BYTES,
    MAX_TELEMETRY_BYTES,
    check_call,
    check_count,
    count_other_bytes,
)
from sparrowmq.grpc.wire_types import message_class
from sparrowmq.kernel.grpc_messages import field
from tests.grpc.scripted import outgoing

EMPTY = b"\x0a\x00"  # a message without fields
VARINT = b"\x78\x01"  # a field that no message has
GROUP = b"\x7b\x7c"


def send_of(*messages):
    return message_class("SendMessageRequest")(messages=messages).SerializeToString()


def refusal(name, raw):
    with pytest.raises(RemoteError) as caught:
        check_call(name, raw)
    return caught.value.code


@given(st.lists(st.tuples(st.binary(max_size=300), st.text(max_size=200)), max_size=5))
def test_bytes_besides_bodies_are_those_of_protobuf(parts):
    sent = [outgoing(body=body, tag=tag) for body, tag in parts]
    assert count_other_bytes(send_of(*sent), 1, 4) == len(send_of(*sent)) - sum(len(body) for body, _ in parts)


def test_large_bodies_may_be_sent_and_other_large_fields_not():
    check_call("SendMessage", send_of(*[outgoing(body=bytes(4 << 20))] * 3))
    check_call("SendMessage", send_of(*[outgoing(body=bytes(4_000))] * MAX_ENTRIES))
    assert refusal("SendMessage", send_of(outgoing(keys=["a"] * 200_000))) == 41300
    assert refusal("SendMessage", field(2, bytes(MAX_OTHER_BYTES))) == 41300


@pytest.mark.parametrize("raw", [EMPTY, VARINT, field(1, VARINT * 40)])
def test_a_call_of_very_many_small_fields_is_refused_before_it_is_read(raw):
    assert refusal("SendMessage", raw * (4_000_000 // len(raw))) == 41300


LIMITS = [
    ("AckMessage", MAX_CALL_BYTES),
    ("Telemetry", MAX_CALL_BYTES),
    ("QueryRoute", MAX_ROUTE_CALL_BYTES),
    ("QueryAssignment", MAX_ROUTE_CALL_BYTES),
]


@pytest.mark.parametrize(("name", "most"), LIMITS)
def test_other_calls_have_a_limit(name, most):
    check_call(name, bytes(most))
    assert refusal(name, bytes(most + 1)) == 41300


def test_stacks_of_threads_may_be_large_and_settings_not():
    command, stacks = message_class("TelemetryCommand"), message_class("ThreadStackTrace")
    text = "main RUNNABLE\n" * (MAX_TELEMETRY_BYTES // 14 - 100)
    check_call(
        "Telemetry",
        command(thread_stack_trace=stacks(nonce="1", thread_stack_trace=text)).SerializeToString(),
    )
    assert refusal("Telemetry", field(3, field(2, bytes(MAX_TELEMETRY_BYTES)))) == 41300
    assert refusal("Telemetry", field(2, field(6, field(2, b"") * (MAX_CALL_BYTES // 2)))) == 41300


@pytest.mark.parametrize("end", [GROUP, b"\xff" * 11, b"\x0a"])
def test_bytes_that_are_no_call_are_refused(end):
    with pytest.raises(RemoteProtocolError):
        check_call("SendMessage", EMPTY * 10 + field(1, field(4, bytes(MAX_CALL_BYTES))) + end)


def test_a_call_has_a_limited_number_of_entries():
    check_count([None] * MAX_ENTRIES)
    with pytest.raises(RemoteError) as caught:
        check_count([None] * (MAX_ENTRIES + 1))
    assert caught.value.code == 41300
