"""The ends of connections inside the process."""

import asyncio

import pytest

from sparrowmq.broker.grpc_port import connect_sessions
from sparrowmq.errors import ConnectionClosed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import GetMaxOffset, OffsetReply
from sparrowmq.remoting.linked_session import LinkedSession

CLIENT, BROKER = ("10.0.0.7", 5000), ("10.0.0.1", 10911)


def pair(dispatch):
    clock = SystemClock()
    client = LinkedSession(lambda session, command: None, clock)
    return client, connect_sessions(client, lambda: LinkedSession(dispatch, clock), CLIENT, BROKER)


async def test_each_end_knows_the_address_of_the_other():
    client, served = pair(lambda session, command: None)
    assert (served.address, client.address) == ("10.0.0.7:5000", "10.0.0.1:10911")


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
        assert [session.other for session in sessions] == [None, None]


async def test_commands_that_are_on_their_way_arrive_before_the_end():
    def answer(session, command):
        session.reply(command, 0, OffsetReply(command.header(GetMaxOffset).queue_id))
        session.close()

    client, _ = pair(answer)
    assert (await client.call(GetMaxOffset(topic="orders", queue_id=7))).header.offset == 7
