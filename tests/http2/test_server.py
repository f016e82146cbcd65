"""The server: its socket, its limits for all, and its end."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.server import GrpcServer
from tests.http2.peer_frames import call, connected, data, headers, path


async def test_a_server_starts_inside_its_context_only(methods):
    with pytest.raises(ClientClosed):
        await GrpcServer(methods.all()).start("127.0.0.1", 0)


async def test_a_port_in_use_is_refused_with_the_setting_to_change(server, methods):
    async with GrpcServer(methods.all()) as other:
        with pytest.raises(ConfigError, match="grpcServerPort"):
            await other.start("127.0.0.1", server.port)


async def test_a_connection_above_the_limit_is_closed(methods):
    async with GrpcServer(methods.all(), Limits(connections=1)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as first:
            assert await first.is_served()
            async with connected(port) as second:
                assert await second.next() is None
            assert server.refused == 1
            assert await first.is_served()


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
    async with GrpcServer(methods.all(), Limits(held_bytes=50_000)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as small, connected(port) as large:
            small.send(headers(1), data(1, bytes(10_000)))
            assert await small.is_served()
            large.send(*[headers(at) + data(at, bytes(10_000)) for at in (1, 3, 5, 7, 9)])
            assert await large.until("never") is None
            assert await small.is_served()
            assert server._held_bytes == 10_000
        async with connected(port) as again:
            assert await again.is_served()
