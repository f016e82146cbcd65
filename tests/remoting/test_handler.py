"""What a handler may return, without a dispatcher: a later reply, a body in pieces, the requests of a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.handler import REQUESTS_BY_METHOD, PendingReply, PendingRequest, Reply, encode_in_steps, handles
from sparrowmq.remoting.session import Session

Told = list[tuple[Reply | None, Exception | None]]


class Pieces(Body):
    """A body of some pieces."""

    pieces: list[bytes]

    def encoding(self) -> Steps[list[bytes]]:
        yield
        return self.pieces


def later_of(told: Told) -> PendingReply:
    later = PendingReply()
    later.request = request_of(lambda answer, error: told.append((answer, error)))
    return later


def request_of(finish: Callable[..., object] = print, accounts: list[object] | None = None) -> PendingRequest:
    """A request without a connection. The last of the accounts are those of now."""
    accounts = accounts or [None]
    return PendingRequest(cast(Session, None), Command(11), lambda: accounts[-1], accounts[0], finish)


def test_a_later_reply_waits_until_there_is_an_answer() -> None:
    told: Told = []
    later, answer = later_of(told), Reply()
    assert not later.attempt(lambda asked, is_over: answer if is_over else None, 7, False)
    assert told == []
    assert later.attempt(lambda asked, is_over: answer if is_over else None, 7, True)
    assert told == [(answer, None)]


def test_a_later_reply_may_be_an_error() -> None:
    told: Told = []
    error = RemoteError(1, "gone")

    def serve(asked: object, is_over: bool) -> Reply:
        raise error

    assert later_of(told).attempt(serve, None, False)
    assert told == [(None, error)]


def test_a_later_reply_without_a_connection_is_dropped() -> None:
    later = PendingReply()
    later.answer(Reply(), None)
    assert not later.is_full
    assert not later.is_doubtful


def test_a_later_reply_is_doubtful_once_the_accounts_have_changed() -> None:
    later = PendingReply()
    accounts = [object()]
    later.request = request_of(accounts=accounts)
    assert not later.is_doubtful
    accounts.append(object())
    assert later.is_doubtful


@pytest.mark.parametrize(
    ("pieces", "body"),
    [((b"whole",), b"whole"), ((b"in ", b"two"), [memoryview(b"in "), memoryview(b"two")])],
)
def test_a_body_is_encoded_in_steps(pieces: tuple[bytes, ...], body: object) -> None:
    steps = encode_in_steps(Pieces(list(pieces)))
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.body == body


def test_a_method_is_bound_to_its_requests() -> None:
    class Pulls:
        @handles(PullMessage)
        def pull(self, header: PullMessage, body: bytes, peer: object) -> None: ...

    assert REQUESTS_BY_METHOD[Pulls.pull] == (PullMessage,)
