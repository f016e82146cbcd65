"""sparrowmq.schemas.wire_format: the bytes in front of a body."""

import pytest

from sparrowmq.errors import InvalidBody
from sparrowmq.schemas import wire_format
from tests.schemas.samples import OPTION_BODY, ORDER_BODY, RANGE_BODY


def test_bodies_of_another_client_begin_with_their_ids_and_indexes():
    assert wire_format.read_schema_id(ORDER_BODY) == 1
    assert (wire_format.read_schema_id(OPTION_BODY), wire_format.protobuf_payload(OPTION_BODY)) == (
        2,
        ((4,), OPTION_BODY[7:]),
    )
    assert (wire_format.read_schema_id(RANGE_BODY), wire_format.protobuf_payload(RANGE_BODY)) == (
        3,
        ((2, 0), RANGE_BODY[8:]),
    )


@pytest.mark.parametrize("indexes", [(0,), (1,), (64,), (0, 0), (2, 0), (3, 300, 0)])
def test_a_framed_body_is_read_again(indexes):
    body = wire_format.frame_body(70_000, b"x", indexes)
    assert wire_format.read_schema_id(body) == 70_000
    assert wire_format.protobuf_payload(body) == (indexes, b"x")


def test_the_first_message_is_one_byte():
    assert wire_format.frame_body(7, b"x", (0,)) == b"\0\0\0\0\7\0x"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "the body is empty"),
        (b"", "the body is empty"),
        (b'{"a":1}', "the body begins with the byte 123, not with 0 and the id of a schema"),
        (b"\0\0\0", "the body ends within the id of its schema"),
    ],
)
def test_a_body_without_an_id_says_why(body, why):
    with pytest.raises(InvalidBody, match=why):
        wire_format.read_schema_id(body)


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        (b"", "the body ends within the indexes of its message"),
        (b"\x04\x02", "the body ends within the indexes of its message"),
        (b"\x01", "the body names its message by -1 indexes; the most is 32"),
        (b"\xff\xff\xff\xff\xff\x0f", "an index of the body's message is too large"),
        (b"\xfe\xff\xff\xff\x0f", "the body names its message by 2147483647 indexes; the most is 32"),
        (b"\x02\x01", "the body names a message by the index -1"),
    ],
)
def test_indexes_that_are_none_say_why(rest, why):
    with pytest.raises(InvalidBody, match=why):
        wire_format.protobuf_payload(b"\0\0\0\0\1" + rest)
