"""Fields as bytes, beside those of protobuf."""

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.message_out import field, put_number, put_text, time_of, varint
from sparrowmq.grpc.wire_types import message_class


@given(st.binary(min_size=1, max_size=20_000), st.integers(1, 2**62))
def test_fields_have_the_bytes_of_protobuf(body, offset):
    entry = message_class("SendResultEntry")(offset=offset)
    assert b"\x20" + varint(offset) == entry.SerializeToString()
    assert field(4, body) == message_class("Message")(body=body).SerializeToString()


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.text(max_size=300))
def test_numbers_and_texts_have_the_bytes_of_protobuf(attempt, offset, context):
    out = BytesWriter()
    put_number(out, 14, offset)
    put_number(out, 16, attempt)
    put_text(out, 18, context)
    made = message_class("SystemProperties")(queue_offset=offset, delivery_attempt=attempt)
    if context:
        made.trace_context = context
    assert out.getvalue() == made.SerializeToString()


@given(st.integers(0, 253_402_300_799_999))
def test_times_have_the_bytes_of_protobuf(ms):
    made = message_class("SystemProperties")()
    set_ms(made.born_timestamp, ms)
    assert field(7, time_of(ms)) == made.SerializeToString()
