"""Replies matched to who waits for them, without a socket."""

from typing import Any

import pytest

from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply, QueryMessage
from sparrowmq.protocol.wire.codec import encode_reply
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.frame import FrameLimits, Serializer
from sparrowmq.protocol.wire.header import Request

PULL = PullMessage("g", "t", 1, 2, 32, 6, 0, 15000, 17)


def test_replies_in_any_order_find_their_waiters() -> None:
    client: Connection[str] = Connection()
    server: Connection[str] = Connection()
    frames = [client.request(PULL, b"", name)[1] for name in ("first", "second", "third")]
    asked = server.receive(b"".join(frames))
    replies = [encode_reply(command, 0, PullMessageReply(0, 1, 0, 1)) for command in reversed(asked)]
    assert [client.claim(reply) for reply in client.receive(b"".join(replies))] == [
        "third",
        "second",
        "first",
    ]
    assert client.in_flight == 0


def test_a_reply_nobody_waits_for_is_claimed_by_nobody() -> None:
    client: Connection[str] = Connection()
    opaque, head = client.request(PULL, b"", "waiter")
    [command] = Connection[str]().receive(head)
    client.forget(opaque)
    [reply] = client.receive(encode_reply(command, 0))
    assert client.claim(reply) is None


def test_an_ended_connection_gives_back_everyone_who_waits() -> None:
    client: Connection[str] = Connection()
    client.request(PULL, b"", "one")
    client.request(PULL, b"", "two")
    assert client.abandon() == ["one", "two"]
    assert client.in_flight == 0


def test_a_request_that_cannot_be_encoded_leaves_nobody_waiting() -> None:
    client: Connection[str] = Connection()
    with pytest.raises(UnicodeEncodeError):
        client.request(PullMessage("\ud800", "t", 1, 2, 32, 6, 0, 15000, 17), b"", "waiter")
    assert client.in_flight == 0


def test_only_those_who_waited_too_long_expire() -> None:
    client: Connection[int] = Connection()
    for deadline in (1, 5, 3):
        client.request(PULL, b"", deadline)
    assert client.expired(lambda deadline: deadline <= 3) == [1, 3]
    assert client.in_flight == 1


def test_requests_are_signed_when_asked() -> None:
    client: Connection[str] = Connection(sign=lambda fields, body: {"Signature": f"{fields['topic']}:{len(body)}"})
    _, head = client.request(PULL, b"xyz", "waiter")
    [command] = Connection[str]().receive(head + b"xyz")
    assert command.ext_fields()["Signature"] == f"{PULL.topic}:3"


@pytest.mark.parametrize("serializer", Serializer)
def test_only_a_signed_query_by_key_says_that_it_is_of_an_old_client(serializer: Serializer) -> None:
    def version_of(request: Request[Any], sign: Sign | None) -> int | None:
        client: Connection[str] = Connection(serializer=serializer, sign=sign)
        [command] = Connection[str]().receive(client.request(request, b"", "waiter")[1])
        return command.version

    def sign(fields: dict[str, str], body: bytes) -> dict[str, str]:
        return {"Signature": "x"}

    query = QueryMessage("orders", "k1", 1, 0, 1)
    assert version_of(query, sign) == 399
    assert version_of(query, None) == version_of(PULL, sign) == 409


def test_oneway_requests_wait_for_nothing() -> None:
    client: Connection[str] = Connection()
    [command] = Connection[str]().receive(client.oneway(PULL, b""))
    assert command.is_oneway
    assert client.in_flight == 0


def test_commands_above_the_limit_come_with_the_next_chunk_be_it_empty() -> None:
    client: Connection[str] = Connection()
    server: Connection[str] = Connection(FrameLimits(at_once=2))
    stream = b"".join(client.request(PULL, b"", "")[1] for _ in range(3))
    assert len(server.receive(stream)) == 2 and server.has_more
    assert len(server.receive(b"")) == 1 and not server.has_more


def test_what_is_held_of_an_unfinished_frame_is_told() -> None:
    client: Connection[str] = Connection()
    server: Connection[str] = Connection()
    frame = client.request(PULL, b"", "")[1]
    server.receive(frame[:20])
    assert (server.pending_bytes, server.frame_bytes) == (20, len(frame))
