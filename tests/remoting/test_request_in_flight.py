"""A request in flight ends once: with a response, with an error, or unnoticed because no caller waits any more."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.protocol.requests.headers import HeartBeat, PullMessage, PullMessageReply
from sparrowmq.protocol.requests.pop_headers import PopMessage
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.request_in_flight import RequestInFlight

POP = PopMessage("g", "t", -1, 32, 30_000, 20_000, 0, 0)
PULL = PullMessage("g", "t", 1, 0, 32, 6, 0, 15000, 17)
FOUND = PullMessageReply(0, 7, 0, 0).ext_fields()


def settled(reply: Command, accept: tuple[int, ...] = ()):
    """The answer and the error that a reply to a pull ends in."""
    ends = []
    RequestInFlight(PULL, accept, lambda answer, error: ends.append((answer, error)), 3.0, 3.0).settle(reply)
    [end] = ends
    return end


def test_a_reply_becomes_a_response_with_its_header():
    answer, error = settled(Command(code=0, fields=FOUND, body=b"messages", version=409))
    assert error is None
    assert (answer.header.next_begin_offset, answer.body, answer.version) == (7, b"messages", 409)


@pytest.mark.parametrize("accept", [(), (19,)])
def test_another_code_is_an_error_unless_it_is_accepted(accept):
    answer, error = settled(Command(code=19, fields=FOUND, remark="none"), accept)
    assert (answer is not None) == bool(accept) and isinstance(error, RemoteError) == (not accept)


def test_a_reply_without_its_fields_is_an_error():
    assert isinstance(settled(Command(code=0))[1], RemoteProtocolError)


async def test_an_answer_that_is_not_awaited_any_more_is_dropped():
    future = asyncio.get_running_loop().create_future()
    waiting = RequestInFlight(PULL, (), future, 3.0, 3.0)
    future.cancel()
    assert waiting.is_abandoned
    waiting.settle(Command(code=0, fields=FOUND))


def test_only_a_pull_may_be_answered_late():
    assert RequestInFlight(PULL, (), print, 3.0, 3.0).is_long_poll
    assert RequestInFlight(POP, (), print, 3.0, 3.0).is_long_poll
    assert not RequestInFlight(HeartBeat(), (), print, 3.0, 3.0).is_long_poll
