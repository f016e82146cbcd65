"""Listening, limits, silence, graceful stop."""

import asyncio
import signal
import socket
import struct
import sys
from contextlib import suppress

import pytest

from sparrowmq.errors import ConfigError, ConnectionClosed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.budget import BudgetLimits
from sparrowmq.remoting.server import Server, ServerLimits
from sparrowmq.remoting.session import Session
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import Serve, until

PULL = PullMessage("g", "t", 1, 0, 32, 6, 0, 15000, 17)


def answer(session: Session, command: Command) -> None:
    session.introduce(command)
    session.reply(command, 0, PullMessageReply(0, 1, 0, 0))


async def test_a_taken_port_is_a_clear_error(serve: Serve) -> None:
    async with serve(answer) as (server, _):
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{server.port}.*another listenPort"):
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


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_is_accepted_just_before_the_stop_ends_too(serve: Serve, turns: int) -> None:
    loop = asyncio.get_running_loop()
    async with serve(answer) as (server, _):
        peer = socket.create_connection(("127.0.0.1", server.port))
        with peer:
            peer.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            with suppress(ConnectionError):
                assert await asyncio.wait_for(loop.sock_recv(peer, 1), 10) == b""


async def test_a_session_that_ended_is_forgotten(serve: Serve) -> None:
    async with serve(answer) as (server, session):
        await session.call(PULL)
        assert len(server.sessions) == 1
        session.close()
        while server.sessions:
            await asyncio.sleep(0)


async def test_connections_above_the_limit_are_closed(serve: Serve) -> None:
    async with serve(answer, limits=ServerLimits(connections=1)) as (server, session):
        await session.call(PULL)
        second_reader, second = await asyncio.open_connection("127.0.0.1", server.port)
        assert await second_reader.read() == b""
        await session.call(PULL)
        second.close()


async def test_connections_without_a_request_give_their_places_at_once(serve: Serve) -> None:
    async with serve(answer, limits=ServerLimits(connections=20)) as (server, session):
        await session.call(PULL)
        strangers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(19)]
        for _, writer in strangers:
            writer.write(b"\0")
        await until(lambda: sum(peer.pending_bytes for peer in server.sessions) == 19)
        late = Session(lambda session, command: None, SystemClock())
        await asyncio.get_running_loop().create_connection(lambda: late, "127.0.0.1", server.port)
        await late.call(PULL)
        assert await strangers[0][0].read() == b"", "the oldest of them"
        more = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(100)]
        await late.call(PULL)
        await session.call(PULL)
        late.close()
        for _, writer in (*strangers, *more):
            writer.close()


async def test_refusals_are_told_once_a_minute(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with serve(answer, clock=clock, limits=ServerLimits(connections=1)) as (server, session):

        async def refused() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            assert await reader.read() == b""
            writer.close()

        await clock.advance(0.5)
        await session.call(PULL)
        assert server.problem.endswith("which is the limit: others are closed; 1 of them come from 127.0.0.1")
        for _ in range(3):
            await refused()
        await clock.advance(minutes=1)
        await refused()
        session.close()
        while server.sessions:
            await asyncio.sleep(0)
        assert server.problem == "connections above 1 were closed a moment ago"
        await clock.advance(minutes=1)
        assert server.problem == ""
    told = [record.getMessage() for record in caplog.records if "the limit is" in record.message]
    assert len(told) == 2 and "ulimit -n" in told[0] and "left out" not in told[0]
    assert told[1].endswith(" (2 more such lines were left out before)")


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


async def test_a_pause_of_the_process_is_no_silence_of_its_peers(serve: Serve) -> None:
    clock = ManualClock()
    async with serve(answer, clock=clock) as (server, session):
        await session.call(PULL)
        _, half = await asyncio.open_connection("127.0.0.1", server.port)
        half.write(struct.pack(">i", 100))
        await until(lambda: any(peer.pending_bytes for peer in server.sessions))
        watching = asyncio.ensure_future(server.drop_silent_peers())
        await clock.advance(5)
        await clock.pause(125)
        await clock.advance(10)
        assert len(server.sessions) == 2
        await clock.advance(110)
        assert not server.sessions, "silence counts again"
        watching.cancel()
        half.close()


async def test_a_look_for_silent_peers_may_pause_after_each_of_them(serve: Serve, monkeypatch) -> None:
    steps: list[int] = []

    async def counted(work):
        steps.append(len(list(work)))

    monkeypatch.setattr("sparrowmq.remoting.server.run_to_end", counted)
    clock = ManualClock()
    async with serve(answer, clock=clock) as (server, session):
        await session.call(PULL)
        watching = asyncio.ensure_future(server.drop_silent_peers())
        await clock.advance(minutes=1)
        watching.cancel()
    assert steps and set(steps) == {1}


STOPPED = """
import asyncio, sys
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import PullMessageReply
from sparrowmq.remoting.server import Server, ServerLimits

async def main():
    def answer(session, command):
        session.reply(command, 0, PullMessageReply(0, 1, 0, 0))
    limits = ServerLimits(idle_s=2.5, partial_frame_s=2.5)
    async with Server(answer, SystemClock(), "127.0.0.1", 0, limits) as server:
        print(server.port, flush=True)
        await server.drop_silent_peers()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_stopped_server_reads_its_peers_before_it_judges_them() -> None:
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", STOPPED, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        session = Session(lambda session, command: None, SystemClock())
        await asyncio.get_running_loop().create_connection(lambda: session, "127.0.0.1", port)
        await session.call(PULL, timeout_s=30)
        server.send_signal(signal.SIGSTOP)
        asked = session.call(PULL, timeout_s=30)
        await asyncio.sleep(4)  # real time of another process, longer than its limit
        server.send_signal(signal.SIGCONT)
        await asked
        session.close()
    finally:
        server.kill()
        await server.wait()


async def test_a_frame_that_comes_byte_by_byte_must_be_whole_in_its_time(serve: Serve) -> None:
    clock = ManualClock()
    async with serve(answer, clock=clock) as (server, session):
        await session.call(PULL)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        watching = asyncio.ensure_future(server.drop_silent_peers())
        trickle = (640 * 1024).to_bytes(4) + bytes(20)  # 640 KiB: 10 s at the slowest rate, after 30
        for sent, byte in enumerate(trickle, 1):
            writer.write(bytes([byte]))
            async with asyncio.timeout(10):
                while not reader.at_eof() and max(peer.pending_bytes for peer in server.sessions) < sent:
                    await asyncio.sleep(0)
            if reader.at_eof():
                break
            await clock.advance(5)
        assert reader.at_eof() and 45 <= clock.monotonic() <= 60
        await session.call(PULL)
        watching.cancel()
        writer.close()


async def test_a_peer_that_reads_no_answers_is_ended_after_the_idle_time(serve: Serve) -> None:
    def much(session: Session, command: Command) -> None:
        session.reply(command, 0, PullMessageReply(0, 1, 0, 0), None, bytes(30_000_000))

    clock = ManualClock()
    async with serve(much, clock=clock) as (server, session):
        session.call(PULL).cancel()
        while not any(peer.is_backed_up for peer in server.sessions):
            session._transport.pause_reading()  # type: ignore[union-attr]
            await asyncio.sleep(0)
        watching = asyncio.ensure_future(server.drop_silent_peers())
        await clock.advance(minutes=1)
        assert server.sessions
        await clock.advance(minutes=1.5)
        await until(lambda: not server.sessions)
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


async def test_large_requests_wait_for_room_and_all_come_through(serve: Serve) -> None:
    sizes: list[int] = []

    def count(session: Session, command: Command) -> None:
        sizes.append(len(command.body))
        answer(session, command)

    limits = ServerLimits(together=BudgetLimits(frame_bytes=1_000_000))
    async with serve(count, limits=limits) as (server, _):
        loop, clock = asyncio.get_running_loop(), SystemClock()
        made = [
            await loop.create_connection(lambda: Session(answer, clock), "127.0.0.1", server.port) for _ in range(6)
        ]
        sessions = [session for _, session in made]
        calls = [session.call(PULL, bytes(900_000), timeout_s=30) for _ in range(3) for session in sessions]
        await asyncio.gather(*calls)
        assert not any(session.closed for session in sessions)
        for session in sessions:
            session.close()
    assert sizes == [900_000] * 18


async def test_who_stalls_in_a_large_request_does_not_keep_others_from_theirs(serve: Serve) -> None:
    limits = ServerLimits(together=BudgetLimits(frame_bytes=10_000_000))
    async with serve(answer, limits=limits) as (server, session):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(struct.pack(">ii", 9_000_000, 100) + bytes(100_000))
        await until(lambda: any(peer.pending_bytes > 50_000 for peer in server.sessions))
        await session.call(PULL, bytes(5_000_000), timeout_s=30)
        assert await reader.read() == b""
        writer.close()


async def test_answers_that_are_too_few_to_stop_the_reading_count_for_what_all_may_hold(serve: Serve) -> None:
    def big(session: Session, command: Command) -> None:
        session.reply(command, 0, None, None, bytes(200_000))

    async with serve(big) as (server, session):
        session._transport.pause_reading()  # type: ignore[union-attr]
        [served] = server.sessions
        while not served.unread_bytes:
            session.call(PULL).cancel()
            await asyncio.sleep(0.001)
        assert not served.is_backed_up
        await until(lambda: server.budget._unread_bytes)
