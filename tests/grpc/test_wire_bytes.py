"""Fields as bytes, beside those of protobuf."""

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.grpc.wire_bytes import field, varint
from sparrowmq.grpc.wire_types import message


@given(st.binary(min_size=1, max_size=20_000), st.integers(1, 2**62))
def test_fields_have_the_bytes_of_protobuf(body, offset):
    entry = message("SendResultEntry")(offset=offset)
    assert b"\x20" + varint(offset) == entry.SerializeToString()
    assert field(4, body) == message("Message")(body=body).SerializeToString()
