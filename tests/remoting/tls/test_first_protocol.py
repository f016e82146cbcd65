"""TLS and plain text on one port."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparrowmq.errors import BrokerUnreachable, ConnectionClosed, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import PullMessageReply
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.budget import SessionLimits
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.server import Server, ServerLimits
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.tls.contexts import ServerTls, client_context
from sparrowmq.remoting.tls.tls_settings import ClientTlsSettings, ServerTlsSettings, TlsMode
from tests.remoting.conftest import until
from tests.remoting.test_server import PULL

ANYBODY = ClientTlsSettings(checks_server=False)


def echo(session: Session, command: Command) -> None:
    session.reply(command, 0, PullMessageReply(0, 1, 0, 0), body=command.body)


@asynccontextmanager
async def serving(limits: ServerLimits | None = None, **settings: object) -> AsyncIterator[Server]:
    clock = SystemClock()
    tls = ServerTls(ServerTlsSettings(**settings), clock)  # type: ignore[arg-type]
    async with Server(echo, clock, "127.0.0.1", 0, limits, tls=tls) as server:
        yield server


@asynccontextmanager
async def connected(server: Server, tls: ssl.SSLContext | None) -> AsyncIterator[Session]:
    pool = Pool(SystemClock(), tls=tls)
    try:
        yield await pool.session(f"127.0.0.1:{server.port}")
    finally:
        pool.close()
        await pool.wait_until_ended()


async def test_one_port_takes_both_as_the_first_byte_says() -> None:
    async with serving() as server:
        for tls in (None, client_context(ANYBODY), None):
            async with connected(server, tls) as session:
                assert (await session.call(PULL, b"hello")).body == b"hello"
            await until(lambda: not server.sessions)


async def test_a_plain_session_reads_from_the_socket_itself() -> None:
    async with serving() as server, connected(server, None) as session:
        await session.call(PULL)
        (far,) = server.sessions
        assert far._transport is not None and far._transport.get_protocol() is far


async def test_without_a_certificate_one_is_made_once_for_all_that_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:

        async def ask() -> bytes:
            async with connected(server, client_context(ANYBODY)) as session:
                return (await session.call(PULL, b"x")).body

        assert await asyncio.gather(*[ask() for _ in range(8)]) == [b"x"] * 8
    assert caplog.text.count("new self-signed certificate") == 1


async def test_where_none_can_be_made_tls_is_refused_and_plain_text_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with serving() as server:
        with pytest.raises(BrokerUnreachable, match="if it does not speak TLS"):
            async with connected(server, client_context(ANYBODY)):
                pass
        async with connected(server, None) as session:
            await session.call(PULL)
    assert "install the program openssl" in caplog.text


@pytest.mark.parametrize("settings", [{"tls_mode": TlsMode.DISABLED}, {"tls_test_mode": False}])
async def test_who_speaks_tls_where_there_is_none_is_told_of_once(
    settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(None, **settings) as server:
        for _ in range(3):
            with pytest.raises(BrokerUnreachable):
                async with connected(server, client_context(ANYBODY)):
                    pass
        async with connected(server, None) as session:
            await session.call(PULL)
    assert caplog.text.count("it speaks TLS, and ") == 1


async def test_plain_text_is_refused_with_an_answer_where_tls_is_enforced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(tls_mode=TlsMode.ENFORCING) as server:
        async with connected(server, None) as session:
            with pytest.raises(RemoteError, match="takes encrypted connections only: connect by TLS"):
                await session.call(PULL)
            await until(lambda: session.closed)
        async with connected(server, None) as session:
            session.tell(PULL)  # It wants no answer, and gets none.
            await until(lambda: session.closed)
        async with connected(server, client_context(ANYBODY)) as session:
            await session.call(PULL)
    assert caplog.text.count("it speaks plain text, and tls.server.mode is enforcing here") == 1


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x00", b"\x00\x00\x00\x00"])
async def test_who_speaks_something_else_to_a_server_of_tls_is_parted_with(first: bytes) -> None:
    async with serving(tls_mode=TlsMode.ENFORCING) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(first)
        assert await reader.read() == b""
        writer.close()
        await until(lambda: not server.sessions)


async def test_large_frames_travel_by_tls_in_both_directions() -> None:
    body = bytes(range(256)) * 16_384
    async with serving() as server, connected(server, client_context(ANYBODY)) as session:
        answers = await asyncio.gather(*[session.call(PULL, body, timeout_s=30) for _ in range(3)])
        assert all(answer.body == body for answer in answers)


async def test_a_peer_that_does_not_read_is_not_read_from_by_tls_either() -> None:
    """Back-pressure is the session's own, through the transport that encrypts."""
    limits = ServerLimits(session=SessionLimits(unsent_bytes=64 * 1024))
    async with serving(limits) as server, connected(server, client_context(ANYBODY)) as session:
        await session.call(PULL)
        (far,) = server.sessions
        assert session._transport is not None
        session._transport.pause_reading()
        waiting = [session.call(PULL, bytes(256 * 1024), timeout_s=30) for _ in range(40)]
        await until(lambda: far.is_backed_up)
        assert far._transport is not None
        held = far._transport.get_write_buffer_size()
        assert held < 2 << 20, "not all that was asked for is waiting in memory"
        session._transport.resume_reading()
        assert all(len(answer.body) == 256 * 1024 for answer in await asyncio.gather(*waiting))


async def test_a_handshake_that_comes_byte_by_byte_succeeds() -> None:
    context = client_context(ANYBODY)
    async with serving() as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

        async def shake() -> None:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for byte in outgoing.read():
                        writer.write(bytes([byte]))
                        await asyncio.sleep(0)
                    incoming.write(await reader.read(1 << 16))

        async with asyncio.timeout(20):
            await shake()
        writer.close()
        await until(lambda: not server.sessions)


async def test_who_leaves_or_talks_nonsense_in_a_handshake_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        async with connected(server, client_context(ANYBODY)) as session:
            await session.call(PULL)  # There is a certificate now.
        for rest in (b"", b"\x03\x01\x00\x05hello"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\x16" + rest)
            await until(lambda: len(server.sessions) == 1)
            if rest:
                await reader.read()
            writer.close()
            await until(lambda: not server.sessions)
    assert "refused the connection of 127.0.0.1:" in caplog.text


async def test_a_server_stops_though_a_handshake_is_under_way() -> None:
    async with asyncio.timeout(5):
        async with serving() as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\x16\x03\x01")
            async with connected(server, client_context(ANYBODY)) as session:
                await session.call(PULL)
        writer.close()


async def test_a_server_that_stops_sends_by_tls_what_was_answered() -> None:
    async with serving() as server, connected(server, client_context(ANYBODY)) as session:
        asked = [session.call(PULL, b"x" * 1000) for _ in range(10)]
        await asked[0]
        await server.stop()
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(not isinstance(result, BaseException) for result in results)
        with pytest.raises(ConnectionClosed):
            await session.call(PULL)
