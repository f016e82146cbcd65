"""Calls that wait while a message of them is decompressed."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc

import grpc
import pytest

from sparrowmq.http2.calls import GrpcError, Status
from sparrowmq.http2.exchange import decompressed
from tests.http2.peer_frames import GZIP, compressed, connected, data, headers, path


async def test_a_compressed_request_is_understood(server):
    options = [("grpc.default_compression_algorithm", 2)]
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.port}", compression=grpc.Compression.Gzip, options=options
    ) as channel:
        assert await channel.unary_unary("/test.Test/Echo")(b"a" * 100_000) == b"a" * 100_000
        talk = channel.stream_stream("/test.Test/Talk")()
        for size in (100_000, 7):
            await talk.write(bytes(size))
            assert await talk.read() == b"%d" % size


async def test_the_loop_goes_on_while_a_message_is_decompressed(server, methods):
    async with connected(server.port) as peer:
        peer.send(headers(1, path("/test.Test/Echo", GZIP)), compressed(1, 15_000_000))
        turns = 0
        while not methods.calls:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 50


async def test_a_decompressed_message_counts_while_its_call_is_open(server, methods):
    async with connected(server.port) as peer:
        peer.send(headers(1, path("/test.Test/Hang", GZIP)), compressed(1, 100_000))
        await asyncio.wait_for(methods.begun.wait(), 60)
        [session] = server.sessions
        assert 100_000 < session.http2.held_bytes < 110_000


async def test_a_call_that_cannot_be_decompressed_gets_a_status(server):
    async with connected(server.port) as peer:
        for stream_id, name in [(1, "/test.Test/Echo"), (3, "/test.Test/Talk")]:
            peer.send(headers(stream_id, path(name, GZIP)), data(stream_id, b"\1\0\0\0\3abc", 1))
            assert (await peer.answer(stream_id))[1]["grpc-status"] == "13"


def test_a_message_is_decompressed():
    assert decompressed(gzip.compress(b"a" * 1000), 1000) == b"a" * 1000


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (gzip.compress(b"a" * 1001), Status.RESOURCE_EXHAUSTED),
        (gzip.compress(b"a" * 50_000), Status.RESOURCE_EXHAUSTED),
        (b"abc", Status.INTERNAL),
        (gzip.compress(b"abc", mtime=0)[:10], Status.INTERNAL),
    ],
)
def test_wrong_compression_is_refused(raw, code):
    with pytest.raises(GrpcError) as caught:
        decompressed(raw, 1000)
    assert caught.value.code == code


def test_a_small_message_does_not_become_a_large_one_in_memory():
    raw = gzip.compress(bytes(30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(GrpcError):
            decompressed(raw, 100_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
