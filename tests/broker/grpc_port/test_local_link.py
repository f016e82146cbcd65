"""Connections inside the process."""

import asyncio

import pytest

from sparrowmq.broker.grpc_port.local_link import End, linked
from sparrowmq.errors import ConnectionClosed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import GetMaxOffset, OffsetReply
from sparrowmq.remoting.session import Session

CLIENT, BROKER = ("10.0.0.7", 5000), ("10.0.0.1", 10911)


def pair(dispatch):
    clock = SystemClock()
    client = Session(lambda session, command: None, clock)
    return client, linked(client, lambda: Session(dispatch, clock), CLIENT, BROKER)


def answer(session, command):
    session.reply(command, 0, OffsetReply(command.header(GetMaxOffset).queue_id))


async def test_requests_are_answered_in_their_order():
    client, served = pair(answer)
    assert (served.address, client.address) == ("10.0.0.7:5000", "10.0.0.1:10911")
    calls = [client.call(GetMaxOffset(topic="orders", queue_id=number)) for number in range(100)]
    assert [reply.header.offset for reply in await asyncio.gather(*calls)] == list(range(100))


async def test_either_side_ends_the_connection_for_both():
    for ends in (0, 1):
        sessions = pair(lambda session, command: None)
        waiting = sessions[0].call(GetMaxOffset(topic="orders", queue_id=0))
        sessions[ends].close()
        with pytest.raises(ConnectionClosed):
            await waiting
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [session.closed for session in sessions] == [True, True]


async def test_bytes_wait_while_their_session_does_not_read():
    arrived = []

    class Reader:
        closed = False

        def data_received(self, data):
            arrived.append(data)

        def connection_lost(self, error):
            pass

    here, there = End(CLIENT, BROKER), End(BROKER, CLIENT)
    here.connect(Reader(), there)  # type: ignore[arg-type]
    there.connect(Reader(), here)  # type: ignore[arg-type]
    there.pause_reading()
    here.write(b"a")
    here.write(b"b")
    await asyncio.sleep(0)
    assert arrived == []
    there.resume_reading()
    await asyncio.sleep(0)
    assert arrived == [b"ab"]
    here.close()
    here.write(b"c")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert arrived == [b"ab"]
    assert there.is_closing()
