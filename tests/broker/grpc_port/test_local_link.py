"""The end of clients inside the process."""

import asyncio

import pytest

from sparrowmq.errors import ConnectionClosed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import GetMaxOffset, OffsetReply
from sparrowmq.remoting.local_peer import LocalPeer, LocalServer


def peer(dispatch):
    return LocalPeer(LocalServer(dispatch, SystemClock(), "10.0.0.1:10911"), ("10.0.0.7", 5000), print)


async def test_each_end_knows_the_address_of_the_other():
    client = peer(lambda session, command: None)
    assert (client.address, client.local_address) == ("10.0.0.7:5000", "10.0.0.1:10911")


async def test_the_end_ends_what_waits():
    client, ended = peer(lambda session, command: None), list[LocalPeer]()
    client.on_end(ended.append)
    waiting = client.call(GetMaxOffset(topic="orders", queue_id=0), timeout_s=3.0)
    client.close()
    with pytest.raises(ConnectionClosed, match=r"10\.0\.0\.1:10911"):
        await waiting
    assert client.closed and ended == [client]
    with pytest.raises(ConnectionClosed):
        await client.call(GetMaxOffset(topic="orders", queue_id=0), timeout_s=3.0)


async def test_answers_that_are_on_their_way_arrive_before_the_end():
    def answer(session, command):
        session.reply(command, 0, OffsetReply(command.header(GetMaxOffset).queue_id))
        session.close()

    answered = await peer(answer).call(GetMaxOffset(topic="orders", queue_id=7), timeout_s=3.0)
    assert answered.header.offset == 7


async def test_an_answer_that_is_made_at_once_comes_later():
    answers = []
    client = peer(lambda session, command: session.reply(command, 0, OffsetReply(7)))
    client.ask(GetMaxOffset(topic="orders", queue_id=7), b"", lambda *answer: answers.append(answer), timeout_s=3.0)
    assert not answers
    await asyncio.sleep(0)
    assert answers[0][0].header.offset == 7
