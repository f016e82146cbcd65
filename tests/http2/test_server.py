"""The server: its socket, its limits for all, and its end."""

from __future__ import annotations

import asyncio
import socket
import ssl

import grpc
import pytest

from bench.http2_frames import settings_frame, window_frame
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.http2 import session
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.server import GrpcServer
from sparrowmq.kernel import frame_layout as frames
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.quota_rules import parse
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.tls_settings import ClientAuth, ServerTlsSettings
from tests import certificates
from tests.http2.peer_frames import OPENING, Peer, call, connected, data, headers, path


async def test_a_server_starts_inside_its_context_only(methods):
    with pytest.raises(ClientClosed):
        await GrpcServer(methods.all()).start("127.0.0.1", 0)


async def test_a_port_in_use_is_refused_with_the_setting_to_change(server, methods):
    async with GrpcServer(methods.all()) as other:
        with pytest.raises(ConfigError, match="grpcServerPort"):
            await other.start("127.0.0.1", server.port)


async def test_above_the_limit_connections_without_an_allowed_call_end_and_the_oldest_goes_first(methods):
    def allowed(call, request):
        call.peer.is_known = lambda: True
        return request

    served = {**methods.all(), "/test.Test/Echo": allowed}
    async with GrpcServer(served, Limits(connections=2)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as first, connected(port) as second:
            first.send(call(1, b"x"))
            assert (await first.answer(1))[1] == {"grpc-status": "0"}
            second.send(call(1, b"x", path("/test.Test/SlowEcho")))
            assert (await second.answer(1))[1] == {"grpc-status": "0"}
            async with connected(port) as third:
                assert await second.next() is None
                third.send(call(1, b"x"))
                assert (await third.answer(1))[1] == {"grpc-status": "0"}
                async with connected(port) as fourth:
                    assert await fourth.next() is None
                assert await first.is_served() and await third.is_served()


async def test_connections_of_an_address_above_its_quota_end(methods):
    quotas = Quotas(SystemClock(), parse("address:127.0.0.0/8 connections=1"))
    async with GrpcServer(methods.all(), quotas=quotas) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as first:
            assert await first.is_served()
            async with connected(port) as second:
                assert await second.next() is None
            assert await first.is_served()
        async with asyncio.timeout(60):
            while server.sessions:
                await asyncio.sleep(0.01)
        async with connected(port) as third:
            assert await third.is_served()


async def test_the_end_waits_only_so_long_for_a_peer_that_does_not_read(methods, monkeypatch):
    monkeypatch.setattr(session, "CLOSE_S", 0.1)
    async with GrpcServer(methods.all()) as server:
        port = await server.start("127.0.0.1", 0)
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", port))
        raw.sendall(frames.PREFACE + settings_frame({4: 2**20}) + window_frame(0, 2**20))
        async with asyncio.timeout(60):
            while not server.sessions:
                await asyncio.sleep(0.01)
        [left] = server.sessions
        assert left._transport is not None
        left._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        raw.sendall(call(1, b"15 10000", path("/test.Test/Count")))
        async with asyncio.timeout(60):
            while left.http2.sent_bytes < 150_000:
                await asyncio.sleep(0.01)
        assert not left.http2.is_stopped
        assert left._transport.get_write_buffer_size() > 0
    async with asyncio.timeout(60):
        while server.sessions:
            await asyncio.sleep(0.01)
    raw.close()


async def test_draining_finishes_open_calls_and_takes_no_new_connection(server, methods):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        talk = channel.stream_stream("/test.Test/Talk")()
        await talk.write(b"abc")
        assert await talk.read() == b"3"
        draining = asyncio.ensure_future(server.drain(60))
        await talk.write(b"abcd")
        assert await talk.read() == b"4"
        assert not draining.done()
        await talk.done_writing()
        assert await talk.code() is grpc.StatusCode.OK
        await draining
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_draining_ends_after_its_time(server, methods):
    async with connected(server.port) as peer:
        peer.send(call(1, pairs=path("/test.Test/Hang")))
        await asyncio.wait_for(methods.begun.wait(), 60)
        await server.drain(0.05)
        assert await peer.until("never") is None
    await asyncio.wait_for(methods.cancelled.wait(), 60)


async def test_the_end_of_the_server_cancels_calls_and_closes_connections(methods):
    async with GrpcServer(methods.all()) as server:
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with connected(port) as peer:
            peer.send(call(1, pairs=path("/test.Test/Hang")))
            await asyncio.wait_for(methods.begun.wait(), 60)
    assert methods.cancelled.is_set()
    await reader.read()
    writer.close()


async def test_the_connection_that_holds_most_ends_when_all_hold_too_much(methods):
    async with GrpcServer(methods.all(), Limits(occupied_bytes=50_000)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as small, connected(port) as large:
            small.send(headers(1), data(1, bytes(10_000)))
            assert await small.is_served()
            large.send(*[headers(at) + data(at, bytes(10_000)) for at in (1, 3, 5, 7, 9)])
            assert await large.until("never") is None
            assert await small.is_served()
            assert 10_000 < server._occupied_bytes < 15_000
        async with connected(port) as again:
            assert await again.is_served()


NO_WINDOW = frames.PREFACE + settings_frame({4: 0})


@pytest.mark.parametrize(
    "pieces",
    [
        [call(1, b"1 60000", path("/test.Test/Count"))],
        [call(at, b"1 7000", path("/test.Test/Count")) for at in range(1, 19, 2)],
        [headers(at, path("/test.Test/Talk")) for at in range(1, 27, 2)],
        [headers(at, path("/test.Test/Talk", ("a", "x" * 8000))) for at in range(1, 11, 2)],
    ],
    ids=["an answer", "answers", "calls without a message", "headers"],
)
async def test_unread_answers_and_open_calls_occupy_memory_that_all_connections_share(methods, pieces):
    async with GrpcServer(methods.all(), Limits(occupied_bytes=50_000)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as small, connected(port, NO_WINDOW) as large:
            small.send(headers(1, path("/test.Test/Talk")))
            assert await small.is_served()
            large.send(*pieces)
            while len(server.sessions) > 1:
                await asyncio.sleep(0)
                assert server._occupied_bytes <= 50_000
            assert await large.until("never") is None
            assert await small.is_served()


async def test_what_waits_in_front_of_a_socket_that_is_not_read_occupies_memory(methods):
    async with GrpcServer(methods.all(), Limits(unread_s=3600)) as server:
        port = await server.start("127.0.0.1", 0)
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", port))
        windows = frames.PREFACE + settings_frame({4: 2**31 - 1}) + window_frame(0, 2**30)
        raw.sendall(windows + call(1, b"100 100000", path("/test.Test/Count")))
        async with asyncio.timeout(60):
            while not any(each.http2.is_stopped for each in server.sessions):
                await asyncio.sleep(0.01)
        (session,) = server.sessions
        assert session._transport is not None
        in_front = session._transport.get_write_buffer_size()
        assert in_front > 100_000
        assert session.occupied_bytes >= in_front + session.http2.pending_bytes
        raw.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certificates.authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def encrypting(methods, authority, tmp_path):
    own = certificates.signed(tmp_path, "server", authority)
    settings = ServerTlsSettings(
        certificate=own.certificate,
        key=own.key,
        trust=authority.certificate,
        client_auth=ClientAuth.OPTIONAL,
    )
    async with GrpcServer(methods.all(), tls=ServerTls(settings, SystemClock())) as server:
        yield await server.start("127.0.0.1", 0)


async def test_one_port_takes_tls_and_plain_text(encrypting, authority, tmp_path, methods):
    client = certificates.signed(tmp_path, "client", authority)
    credentials = grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(), client.key.read_bytes(), client.certificate.read_bytes()
    )
    large = bytes(1_000_000)
    async with grpc.aio.secure_channel(f"127.0.0.1:{encrypting}", credentials) as channel:
        assert await channel.unary_unary("/test.Test/Echo")(large) == large
    async with grpc.aio.insecure_channel(f"127.0.0.1:{encrypting}") as channel:
        assert await channel.unary_unary("/test.Test/Echo")(large) == large
    assert [call.peer.certificate for call in methods.calls] == ["client", None]


async def test_tls_and_a_proxy_go_together(methods, authority, tmp_path):
    own = certificates.signed(tmp_path, "server", authority)
    tls = ServerTls(ServerTlsSettings(certificate=own.certificate, key=own.key), SystemClock())
    async with GrpcServer(methods.all(), tls=tls, is_behind_proxy=True) as server:
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 8081\r\n")
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.set_alpn_protocols(["h2"])
        await writer.start_tls(context, server_hostname="127.0.0.1")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        peer = Peer(reader, writer)
        peer.send(OPENING, call(1, b"x"))
        assert (await peer.answer(1))[1] == {"grpc-status": "0"}
        assert methods.calls[0].peer.host == "192.0.2.1"
        writer.close()


async def test_quotas_count_the_addresses_behind_a_proxy(methods):
    quotas = Quotas(SystemClock(), parse("address:192.0.2.0/24 connections=1; address:127.0.0.0/8 connections=1"))
    one, other = (b"PROXY TCP4 192.0.2.%d 198.51.100.1 5632 8081\r\n" % number for number in (1, 2))
    async with GrpcServer(methods.all(), is_behind_proxy=True, quotas=quotas) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port, one + OPENING) as first, connected(port, other + OPENING) as second:
            for number, peer in enumerate((first, second)):
                peer.send(call(1, b"x"))
                assert (await peer.answer(1))[1] == {"grpc-status": "0"}
                assert methods.calls[number].peer.host == f"192.0.2.{number + 1}"
            async with connected(port, one + OPENING + call(1, b"in the first chunk")) as third:
                assert await third.next() is None
            assert len(methods.calls) == 2


async def test_a_handshake_that_stops_ends_with_the_server(methods, authority, tmp_path):
    own = certificates.signed(tmp_path, "server", authority)
    tls = ServerTls(ServerTlsSettings(certificate=own.certificate, key=own.key), SystemClock())
    async with GrpcServer(methods.all(), tls=tls) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port, b"\x16\3\1") as peer:
            while not server.sessions:
                await asyncio.sleep(0.01)
            await server.drain(0.1)
            assert await peer.next() is None


async def test_a_look_at_many_calls_may_pause_after_each_call_and_each_connection(methods, monkeypatch):
    steps: list[int] = []

    async def counted(work):
        steps.append(len(list(work)))

    monkeypatch.setattr("sparrowmq.http2.server.run_to_end", counted)
    async with GrpcServer(methods.all(), Limits(partial_s=0.1)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as peer, connected(port) as idle:
            peer.send(*[headers(at, path("/test.Test/Talk")) for at in range(1, 41, 2)])
            assert await peer.is_served() and await idle.is_served()
            async with asyncio.timeout(60):
                while 22 not in steps:
                    await asyncio.sleep(0.01)
