"""Calls, as Google's client makes them."""

from __future__ import annotations

import asyncio
import gc
import gzip

import grpc
import pytest

from sparrowmq.http2 import frames
from tests.http2.peer_frames import call, connected, data, headers, path


async def status_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize("method", ["Echo", "SlowEcho"])
@pytest.mark.parametrize("size", [0, 1, 16_384, 70_000, 3_000_000])
async def test_a_unary_call_returns_the_answer(channel, method, size):
    body = bytes(range(256)) * (size // 256 + 1)
    assert await channel.unary_unary(f"/test.Test/{method}")(body[:size]) == body[:size]


async def test_many_calls_at_the_same_time_each_get_their_answer(channel):
    echo = channel.unary_unary("/test.Test/SlowEcho")
    bodies = [b"%d" % at * (at + 1) for at in range(300)]
    assert await asyncio.gather(*map(echo, bodies)) == bodies


async def test_a_method_sees_metadata_peer_and_time_left(channel, methods):
    metadata = (("x-mq-client-id", "me"), ("x-twice", "a"), ("x-twice", "b"))
    await channel.unary_unary("/test.Test/Echo")(b"", metadata=metadata, timeout=50)
    call = methods.calls[0]
    assert call.metadata["x-mq-client-id"] == "me"
    assert call.metadata["x-twice"] == "a,b"
    assert call.method == "/test.Test/Echo"
    assert call.peer.host == "127.0.0.1" and call.peer.port > 0
    assert 0 < call.time_left_s <= 50
    await channel.unary_unary("/test.Test/Echo")(b"")
    assert methods.calls[1].time_left_s is None


async def test_an_error_of_a_method_reaches_the_client(channel):
    assert await status_of(channel.unary_unary("/test.Test/Refuse")(b"")) == (
        grpc.StatusCode.NOT_FOUND,
        "no é here: 100%",
    )
    assert await status_of(channel.unary_unary("/test.Test/RefuseLater")(b"")) == (
        grpc.StatusCode.ABORTED,
        "later",
    )


async def test_an_exception_of_a_method_becomes_internal_and_other_calls_go_on(channel, caplog):
    code, details = await status_of(channel.unary_unary("/test.Test/Broken")(b""))
    assert code is grpc.StatusCode.INTERNAL
    assert "a fault of ours" not in details
    assert "a fault of ours" in caplog.text
    assert await channel.unary_unary("/test.Test/Echo")(b"x") == b"x"


async def test_an_unknown_method_is_unimplemented(channel):
    code, details = await status_of(channel.unary_unary("/test.Test/Nothing")(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "/test.Test/Nothing" in details


async def test_a_call_whose_time_is_over_ends_and_its_method_is_cancelled(channel, methods):
    code, _ = await status_of(channel.unary_unary("/test.Test/Hang")(b"", timeout=0.2))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(methods.cancelled.wait(), 30)


@pytest.mark.parametrize("method", ["Hang", "Listen"])
async def test_a_cancelled_call_cancels_its_method(channel, methods, method):
    kind = channel.unary_unary if method == "Hang" else channel.stream_stream
    call = kind(f"/test.Test/{method}")(b"" if method == "Hang" else None)
    if method == "Hang":
        asyncio.ensure_future(call)  # noqa: RUF006  # it is cancelled below
    else:
        await call.write(b"x")
    await asyncio.wait_for(methods.begun.wait(), 30)
    call.cancel()
    await asyncio.wait_for(methods.cancelled.wait(), 30)


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
        assert all(session.connection.held_bytes < 10_000 for session in server.sessions)
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


GZIP = ("grpc-encoding", "gzip")


def compressed(stream_id, size, flags=frames.END_STREAM):
    """A message of zeros."""
    raw = gzip.compress(bytes(size))
    return data(stream_id, b"\1" + len(raw).to_bytes(4, "big") + raw, flags)


@pytest.mark.guards(
    "Exchange._decompressed: await asyncio.to_thread(self._reader.decompressed, message)"
    " -> self._reader.decompressed(message)"
)
async def test_the_loop_goes_on_while_a_message_is_decompressed(server, methods):
    async with connected(server.port) as peer:
        peer.send(headers(1, path("/test.Test/Echo", GZIP)), compressed(1, 15_000_000))
        turns = 0
        while not methods.calls:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 50


@pytest.mark.guards("Exchange._decompressed: drop keep")
async def test_a_decompressed_message_counts_while_its_call_is_open(server, methods):
    async with connected(server.port) as peer:
        peer.send(headers(1, path("/test.Test/Hang", GZIP)), compressed(1, 100_000))
        await asyncio.wait_for(methods.begun.wait(), 60)
        [session] = server.sessions
        assert 100_000 < session.connection.held_bytes < 110_000


@pytest.mark.guards("StreamExchange._requests: drop keep")
async def test_a_decompressed_message_of_a_stream_counts_until_the_method_wants_the_next(server):
    async with connected(server.port) as peer:
        peer.send(headers(1, path("/test.Test/Talk", GZIP)), compressed(1, 100_000, 0))
        assert (await peer.until("data"))[3][5:] == b"100000"
        [session] = server.sessions
        assert session.connection.held_bytes < 10_000


async def test_a_call_that_cannot_be_decompressed_gets_a_status(server):
    async with connected(server.port) as peer:
        for stream_id, name in [(1, "/test.Test/Echo"), (3, "/test.Test/Talk")]:
            peer.send(headers(stream_id, path(name, GZIP)), data(stream_id, b"\1\0\0\0\3abc", 1))
            assert (await peer.answer(stream_id))[1]["grpc-status"] == "13"


async def test_a_message_above_the_limit_is_refused(channel):
    code, details = await status_of(channel.unary_unary("/test.Test/Echo")(bytes(17 * 1024 * 1024)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "16777216" in details
    assert await channel.unary_unary("/test.Test/Echo")(b"x") == b"x"


async def test_a_call_that_ends_before_its_method_began_leaves_nothing_behind(server, methods):
    """The request and its reset come in one chunk, so the task of the method is cancelled before its first step."""
    async with connected(server.port) as peer:
        peer.send(*[call(at, b"", path("/test.Test/Hang")) + frames.reset_frame(at, 8) for at in (1, 3)])
        assert await peer.is_served()
        gc.collect()  # a coroutine that was never awaited would warn now, and warnings are errors
    assert not methods.begun.is_set()
