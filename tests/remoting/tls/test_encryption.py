"""TLS between a socket and a session, byte by byte and with a clock of our own."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Dispatch
from sparrowmq.remoting.tls.contexts import ServerTls, client_context
from sparrowmq.remoting.tls.encryption import GOODBYE_S, HANDSHAKE_S, Encryption, name_in
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import until
from tests.remoting.test_server import PULL
from tests.remoting.tls.test_first_protocol import ANYBODY, echo


class Client:
    """A TLS client that does each step when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_context(ANYBODY).wrap_bio(self._incoming, self._outgoing)

    def send(self, piece_bytes: int = 1 << 20) -> None:
        data = self._outgoing.read()
        for at in range(0, len(data), piece_bytes):
            self.writer.write(data[at : at + piece_bytes])

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send()
                self._incoming.write(await self.reader.read(1 << 16))
            else:
                self.send()
                return

    async def read(self) -> bytes:
        """The next plain bytes; none when the server has said goodbye."""
        while True:
            try:
                return self.tls.read(1 << 16)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                self._incoming.write(await self.reader.read(1 << 16))


@asynccontextmanager
async def talking(clock: ManualClock, dispatch: Dispatch = echo) -> AsyncIterator[tuple[Server, Client]]:
    tls = ServerTls(ServerTlsSettings(), clock)
    async with Server(dispatch, clock, "127.0.0.1", 0, tls=tls) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        yield server, Client(reader, writer)
        writer.close()
        with suppress(OSError):  # It may have been cut off.
            await writer.wait_closed()


async def test_a_handshake_that_stops_half_way_is_ended_in_its_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with talking(clock) as (server, client):
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        client.send()
        await client.reader.readexactly(1)  # The server's part has come.
        await clock.advance(HANDSHAKE_S - 0.1)
        assert server.sessions
        await clock.advance(0.2)
        await until(lambda: not server.sessions)
    assert "no handshake within 10 s" in caplog.text


async def test_after_its_handshake_a_connection_has_no_such_limit() -> None:
    clock = ManualClock()
    async with talking(clock) as (server, client):
        await client.shake_hands()
        await clock.advance(HANDSHAKE_S + 1)
        assert len(server.sessions) == 1


async def test_what_was_read_before_a_pause_took_effect_waits_until_the_session_reads_again() -> None:
    """A loop may give what it has already taken from the socket although it was told to pause."""
    asked: list[Command] = []
    async with talking(ManualClock(), lambda session, command: asked.append(command)) as (server, client):
        await client.shake_hands()
        await client.reader.read(1 << 16)  # its session tickets: the server's side is open too
        (session,) = server.sessions
        encryption = session._transport
        assert isinstance(encryption, Encryption)
        encryption.pause_reading()
        assert not encryption._transport.is_reading(), "the socket is stopped"
        client.tls.write(codec.encode_request(PULL, RequestCode.PULL_MESSAGE, 7, 5) + b"hello")
        encryption.data_received(client._outgoing.read())
        assert not asked
        encryption.resume_reading()
        await until(lambda: asked)
        assert asked[0].body == b"hello"


async def test_who_says_goodbye_gets_one_back() -> None:
    async with talking(ManualClock()) as (server, client):
        await client.shake_hands()
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.send()
        assert await client.read() == b""
        await until(lambda: not server.sessions)


async def test_a_changed_byte_ends_the_connection_and_costs_one_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    async with talking(clock) as (server, first):
        for client in [
            first,
            *[Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in "23"],
        ]:
            await client.shake_hands()
            await client.reader.read(1 << 16)  # its session tickets
            client.tls.write(b"x" * 100)
            record = bytearray(client._outgoing.read())
            record[-1] ^= 1
            client.writer.write(record)
            with pytest.raises(ssl.SSLError):
                await asyncio.wait_for(client.read(), 10)
            client.writer.close()
        await clock.advance(GOODBYE_S)
        await until(lambda: not server.sessions)
    assert caplog.text.count("refused the connection of 127.0.0.1") == 1


async def test_a_refused_client_that_stays_is_cut_off() -> None:
    clock = ManualClock()
    async with talking(clock) as (server, client):
        client.writer.write(b"\x16\x03\x01\x00\x05hello")
        assert (await client.reader.read())[:1] == b"\x15", "an alert"
        client.writer.write(b"more of it")
        assert server.sessions
        await clock.advance(GOODBYE_S)
        await until(lambda: not server.sessions)


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, ""),
        ({}, ""),  # it was not verified
        ({"subject": ()}, ""),
        ({"subject": ((("organizationName", "shop"),), (("commonName", "orders"),))}, "orders"),
        ({"subject": ((("commonName", "orders"),), (("commonName", "admin"),))}, ""),
    ],
)
def test_the_name_in_a_certificate_is_its_only_name_in(certificate: Any, name: str) -> None:
    assert name_in(certificate) == name
