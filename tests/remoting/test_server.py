"""Listening, limits, silence, graceful stop."""

import asyncio

import pytest

from sparrowmq.clock import SystemClock
from sparrowmq.errors import ConfigError, ConnectionClosed
from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.server import Server, ServerLimits
from sparrowmq.remoting.session import Session
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import Serve

PULL = PullMessage("g", "t", 1, 0, 32, 6, 0, 15000, 17)


def answer(session: Session, command: Command) -> None:
    session.reply(command, 0, PullMessageReply(0, 1, 0, 0))


async def test_a_taken_port_is_a_clear_error(serve: Serve) -> None:
    async with serve(answer) as (server, _):
        with pytest.raises(
            ConfigError, match=f"cannot listen on 127.0.0.1:{server.port}.*another listenPort"
        ):
            await Server(answer, SystemClock(), "127.0.0.1", server.port).start()


async def test_stopping_sends_what_was_answered_and_ends_every_session(serve: Serve) -> None:
    async with serve(answer) as (server, session):
        asked = [session.call(PULL) for _ in range(10)]
        await asked[0]
        await server.stop()
        results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(not isinstance(result, BaseException) for result in results)
    with pytest.raises(ConnectionClosed):
        await session.call(PULL)


async def test_connections_above_the_limit_are_closed(serve: Serve) -> None:
    async with serve(answer, limits=ServerLimits(connections=2)) as (server, session):
        await session.call(PULL)
        _, second = await asyncio.open_connection("127.0.0.1", server.port)
        third_reader, third = await asyncio.open_connection("127.0.0.1", server.port)
        assert await third_reader.read() == b""
        await session.call(PULL)
        for writer in (second, third):
            writer.close()


async def test_a_silent_peer_is_dropped_after_the_idle_time(serve: Serve) -> None:
    clock = ManualClock()
    async with serve(answer, clock=clock) as (server, session):
        await session.call(PULL)
        watching = asyncio.ensure_future(server.drop_silent_peers())
        await clock.advance(minutes=1)
        await session.call(PULL)
        await clock.advance(minutes=1.5)
        assert not session.closed
        await clock.advance(minutes=1)
        with pytest.raises(ConnectionClosed):
            await session.call(PULL, timeout_s=1000)
        watching.cancel()


async def test_an_unfinished_frame_is_given_thirty_seconds(serve: Serve) -> None:
    clock = ManualClock()
    async with serve(answer, clock=clock) as (server, session):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\0\0\1\0\0\0")
        await session.call(PULL)
        while not any(peer.pending_bytes for peer in server.sessions):
            await asyncio.sleep(0)
        watching = asyncio.ensure_future(server.drop_silent_peers())
        await clock.advance(29)
        await session.call(PULL)
        await clock.advance(12)
        assert await reader.read() == b""
        await session.call(PULL)
        watching.cancel()
        writer.close()
