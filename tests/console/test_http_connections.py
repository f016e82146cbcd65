"""The connections of the console's port, by bare sockets at uvicorn."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from time import thread_time

import pytest
import uvicorn
import uvloop

from sparrowmq.console import console_server, http_connections
from sparrowmq.console.console_server import _encryption, _listen, _Server
from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.http_connections import http_protocol
from sparrowmq.console.users import Accounts
from sparrowmq.loop.clock import SystemClock
from tests import certificates

ASKED = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await receive()  # its end
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def served(most=10, pair=None):
    listening = _listen("127.0.0.1", 0)
    protocol = http_protocol(most, SystemClock())
    settings = ConsoleSettings(Accounts({}), certificate=pair and str(pair.certificate), key=pair and str(pair.key))
    config = uvicorn.Config(app, http=protocol, log_level="critical", lifespan="off")
    server = _Server(config, _encryption(settings, SystemClock()))
    running = asyncio.create_task(server.serve([listening]))
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writers.append(writer)
        return reader, writer

    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield connect
    finally:
        for writer in writers:
            writer.close()
        server.should_exit = True
        await running
        listening.close()


async def is_answered(connection):
    reader, writer = connection
    writer.write(ASKED)
    return (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


async def has_ended(connection):
    try:
        async with asyncio.timeout(20):
            while await connection[0].read(1 << 16):
                pass
    except ConnectionError:
        pass
    return True


async def test_a_head_that_does_not_come_in_time_ends_its_connection(monkeypatch):
    monkeypatch.setattr(http_connections, "HEAD_S", 0.2)
    async with served() as connect:
        slow = await connect()
        slow[1].write(ASKED[:20])
        assert await has_ended(slow)


async def test_a_tls_handshake_that_does_not_come_in_time_ends_its_connection(monkeypatch, tmp_path):
    monkeypatch.setattr(console_server, "HANDSHAKE_S", 0.2)
    made = certificates.authority(tmp_path)
    async with served(pair=made) as connect:
        slow = await connect()
        slow[1].write(b"\x16\x03\x01")
        assert await has_ended(slow)


async def test_a_connection_that_asks_again_and_again_stays(monkeypatch):
    monkeypatch.setattr(http_connections, "HEAD_S", 0.3)
    async with served() as connect:
        connection = await connect()
        for _ in range(10):
            assert await is_answered(connection)
            await asyncio.sleep(0.1)


async def test_bytes_of_a_head_or_a_body_that_come_slowly_win_no_time(monkeypatch):
    monkeypatch.setattr(http_connections, "HEAD_S", 0.5)
    async with served() as connect:
        for first in (ASKED[:-2], b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n"):
            slow = await connect()
            slow[1].write(first)

            async def drip(writer):
                while not writer.is_closing():
                    writer.write(b"a")
                    await asyncio.sleep(0.02)

            dripping = asyncio.create_task(drip(slow[1]))
            assert await has_ended(slow)
            dripping.cancel()


async def test_a_long_head_is_refused():
    async with served() as connect:
        reader, writer = await connect()
        writer.write(ASKED[:-2] + b"".join(b"x-%d: %s\r\n" % (number, b"a" * 1000) for number in range(100)))
        with suppress(ConnectionError):  # it was closed while some of the head was on its way
            assert (await reader.readline()).startswith(b"HTTP/1.1 400")


HEADS = {
    "blanks in front of a zero byte": b"a:" + b" " * 25_000 + b"\0",
    "blanks in front of a lone carriage return": b"a:" + b" " * 25_000 + b"\rb",
    "many lines that continue one": b"a:" + b"\r\n " * 9_000 + b"\r\n \f",
    "many lines": b"a:b\r\n" * 200,
    "many words": b"a:" + b" b" * 20_000,
}


@pytest.mark.parametrize("lines", HEADS.values(), ids=HEADS)
async def test_no_head_keeps_the_event_loop_from_others(lines):
    async with served() as connect:
        assert await is_answered(await connect())  # what is loaded for the first request costs more
        reader, writer = await connect()
        before_s = thread_time()
        with suppress(ConnectionError):  # it was closed while some of the head was on its way
            writer.write(ASKED[:-2] + lines + b"\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        assert thread_time() - before_s < 0.05


async def test_a_body_in_chunks_is_refused():
    async with served() as connect:
        reader, writer = await connect()
        writer.write(b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")


async def test_requests_sent_together_are_read_one_by_one():
    async with served() as connect:
        reader, writer = await connect()
        writer.write(ASKED * 300_000)
        await asyncio.sleep(0.5)
        assert writer.transport.get_write_buffer_size() > 1 << 20  # the console does not read so far ahead
        for _ in range(100):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.transport.abort()


async def test_above_the_limit_the_oldest_goes_that_has_asked_for_nothing():
    async with served(most=2) as connect:
        known = await connect()
        assert await is_answered(known)
        silent = await connect()
        await asyncio.sleep(0.05)
        late = await connect()
        assert await has_ended(silent)
        assert await is_answered(late)
        assert await is_answered(known)


async def test_web_sockets_count_until_they_end():
    async with served(most=2) as connect:
        sockets = [await connect() for _ in range(2)]
        for reader, writer in sockets:
            writer.write(UPGRADE)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        reader, writer = await connect()
        with suppress(ConnectionError):
            writer.write(ASKED)
            assert await reader.read() == b"", "it goes, as no page may lose its socket"
        sockets[0][1].transport.abort()
        await asyncio.sleep(0.05)
        assert await is_answered(await connect())


@pytest.fixture
def encrypted(tmp_path):
    """The files of a server with TLS, and what a client of it trusts."""
    authority = certificates.authority(tmp_path)
    own = certificates.signed(tmp_path, "server", authority)
    return own, ssl.create_default_context(cafile=authority.certificate)


def test_the_first_bytes_of_a_handshake_are_not_lost_on_uvloop(encrypted):
    pair, trust = encrypted

    def visit(port):
        for _ in range(40):
            with (
                socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
                trust.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
            ):
                tls.sendall(ASKED)
                assert tls.recv(100).startswith(b"HTTP/1.1 200")

    async def serve():
        async with served(pair=pair) as connect:
            _, writer = await connect()
            await asyncio.to_thread(visit, writer.get_extra_info("peername")[1])

    uvloop.run(serve())


async def test_connections_in_the_tls_handshake_count(encrypted):
    pair, trust = encrypted
    async with served(most=3, pair=pair) as connect:
        silent = [await connect() for _ in range(3)]
        await asyncio.sleep(0.05)
        known = await connect()
        assert await has_ended(silent[0]), "it goes although its handshake has not begun"
        await known[1].start_tls(trust, server_hostname="127.0.0.1")
        assert await is_answered(known)
        late = [await connect() for _ in range(3)]
        assert all([await has_ended(each) for each in (*silent[1:], late[0])])
        assert await is_answered(known)


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(encrypted):
    pair, trust = encrypted
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trust.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with served(pair=pair) as connect:
        reader, writer = await connect()
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        tls.write(ASKED)
        writer.write(outgoing.read())
        answer = b""
        while not answer.endswith(b"ok"):
            try:
                answer += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(1 << 16))
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_connection_that_ended_leaves_its_place():
    async with served(most=1) as connect:
        for _ in range(3):
            connection = await connect()
            assert await is_answered(connection)
            connection[1].close()
            await asyncio.sleep(0.05)
