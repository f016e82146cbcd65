"""The pieces of a reply."""

import pytest

from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.wire.codec import encode_request
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.protocol.wire.reply import Buffer, add_reply, take_first

PULL = PullMessage("g", "t", 1, 0, 32, 6, 0, 15000, 17)


def asked(*, oneway: bool = False) -> Command:
    (request,) = Connection[None]().receive(encode_request(PULL, PullMessage.code, 7, oneway=oneway))
    return request


@pytest.mark.parametrize("body", [b"", b"onetwo", [memoryview(b"one"), memoryview(b"two")]])
def test_a_reply_is_whole_once_its_pieces_are_joined(body: Buffer | list[memoryview]) -> None:
    pieces: list[Buffer] = []
    size = add_reply(pieces, asked(), 3, None, "why", body)
    (reply,) = Connection[None]().receive(b"".join(pieces))
    assert (reply.opaque, reply.code, reply.remark) == (7, 3, "why")
    assert reply.body == (b"onetwo" if body else b"") and size == len(reply.body)


def test_a_request_that_wants_no_reply_gets_none() -> None:
    pieces: list[Buffer] = []
    assert add_reply(pieces, asked(oneway=True), 0, None, None, b"body") == 0
    assert not pieces


@pytest.mark.parametrize("size", [0, 1, 3, 4, 6, 8])
def test_the_first_bytes_are_taken_and_the_others_stay(size: int) -> None:
    pieces: list[Buffer] = [b"one", memoryview(b"two"), bytearray(b"three")]
    assert take_first(pieces, size) == b"onetwothree"[:size]
    assert b"".join(pieces) == b"onetwothree"[size:]
