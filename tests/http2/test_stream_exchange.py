"""Calls with streams of requests or answers, as Google's client makes them."""

from __future__ import annotations

import asyncio

import grpc

from sparrowmq.http2.calls import Streaming
from sparrowmq.http2.server import GrpcServer
from tests.http2.peer_frames import GZIP, call, compressed, connected, data, headers, path
from tests.turns import Turns


async def test_answers_of_one_send_share_a_frame(server):
    async with connected(server.port) as peer:
        peer.send(call(1, b"3", path("/test.Test/Together")))
        assert (await peer.until("data"))[3] == b"\0\0\0\0\1x" * 3
        assert await peer.answer(1) == (b"", {"grpc-status": "0"})


async def test_a_stream_of_answers_arrives_in_order(channel):
    answers = [answer async for answer in channel.unary_stream("/test.Test/Count")(b"200 5000")]
    assert answers == [b"%d" % at + bytes(5000) for at in range(200)]


async def test_a_stream_without_answers_ends_well(channel):
    assert [answer async for answer in channel.unary_stream("/test.Test/Count")(b"0 0")] == []


async def test_a_talk_goes_back_and_forth(channel, server):
    call = channel.stream_stream("/test.Test/Talk")()
    for size in [1, 100_000, 0, 2_000_000, 3]:
        await call.write(bytes(size))
        assert await call.read() == b"%d" % size
        assert all(session.http2.held_bytes < 10_000 for session in server.sessions)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_stream_of_many_requests_passes_the_window(channel):
    async def requests():
        for _ in range(2000):
            yield bytes(1000)

    answers = [answer async for answer in channel.stream_stream("/test.Test/Talk")(requests())]
    assert answers == [b"1000"] * 2000


async def test_a_refused_stream_has_its_status(channel):
    call = channel.stream_stream("/test.Test/RefuseStream")()
    assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
    assert await call.details() == "not you"


async def test_a_decompressed_message_of_a_stream_counts_until_the_method_wants_the_next(server):
    async with connected(server.port) as peer:
        peer.send(headers(1, path("/test.Test/Talk", GZIP)), compressed(1, 100_000, 0))
        assert (await peer.until("data"))[3][5:] == b"100000"
        [session] = server.sessions
        assert session.http2.held_bytes < 10_000


async def test_a_window_full_of_tiny_requests_leaves_other_clients_their_turns():
    turns, seen, all_seen = Turns(), [], asyncio.Event()

    async def take(call, requests, send):
        async for request in requests:
            turns.note()
            seen.append(request)
            if len(seen) == 5_000:
                all_seen.set()

    async with GrpcServer({"/test.Test/Take": Streaming(take)}) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as peer:
            peer.send(headers(1, path("/test.Test/Take")), *[data(1, bytes(5_000))] * 5)
            await asyncio.wait_for(all_seen.wait(), 60)
    assert seen == [b""] * 5_000 and turns.most_in_one == 1
