"""Calls, as Google's client makes them."""

from __future__ import annotations

import asyncio
import gc

import grpc
import pytest

from bench.http2_frames import reset_frame
from sparrowmq.errors import ClientClosed
from sparrowmq.kernel import frame_layout as frames
from tests.http2.peer_frames import call, connected, path


async def status_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize("method", ["Echo", "SlowEcho", "PendingEcho"])
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
    assert call.metadata["x-twice"] == "b"
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
    assert await status_of(channel.unary_unary("/test.Test/PendingRefuse")(b"")) == (
        grpc.StatusCode.ABORTED,
        "pending",
    )


async def test_an_exception_of_a_method_becomes_internal_and_other_calls_go_on(channel, caplog):
    code, details = await status_of(channel.unary_unary("/test.Test/Broken")(b""))
    assert code is grpc.StatusCode.INTERNAL
    assert "a fault of ours" not in details
    assert "a fault of ours" in caplog.text
    assert await channel.unary_unary("/test.Test/Echo")(b"x") == b"x"


async def test_a_call_that_must_wait_is_refused_when_the_server_takes_no_more_tasks(channel, server, monkeypatch):
    def spawn(work):
        work.close()
        raise ClientClosed("a task has failed, which ends the others")

    monkeypatch.setattr(server._background, "spawn", spawn)
    refused = (grpc.StatusCode.UNAVAILABLE, "the server is stopping")
    assert await status_of(channel.unary_unary("/test.Test/SlowEcho")(b"")) == refused
    assert await status_of(channel.unary_unary("/test.Test/RefuseLater")(b"")) == refused
    talk = channel.stream_stream("/test.Test/Talk")()
    with pytest.raises(grpc.aio.AioRpcError, match="the server is stopping"):
        await talk.read()
    assert await channel.unary_unary("/test.Test/Echo")(b"x") == b"x"


async def test_an_unknown_method_is_unimplemented(channel):
    code, details = await status_of(channel.unary_unary("/test.Test/Nothing")(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "/test.Test/Nothing" in details


async def test_a_call_whose_time_is_over_ends_and_its_method_is_cancelled(channel, methods):
    code, _ = await status_of(channel.unary_unary("/test.Test/Hang")(b"", timeout=0.2))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(methods.cancelled.wait(), 30)


async def test_an_answer_to_a_call_that_has_ended_is_dropped(server, methods):
    async with connected(server.port) as peer:
        peer.send(call(1, b"late", path("/test.Test/HeldEcho")), reset_frame(1, frames.CANCEL))
        assert await peer.is_served()
        methods.held.answer(b"late")
        peer.send(call(5, b"x"))
        assert (await peer.answer(5))[0] == b"\0\0\0\0\1x"


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


async def test_a_message_above_the_limit_is_refused(channel):
    code, details = await status_of(channel.unary_unary("/test.Test/Echo")(bytes(17 * 1024 * 1024)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "16777216" in details
    assert await channel.unary_unary("/test.Test/Echo")(b"x") == b"x"


async def test_a_call_that_ends_before_its_method_began_leaves_nothing_behind(server, methods):
    """The request and its reset come in one chunk, so the task of the method is cancelled before its first step."""
    async with connected(server.port) as peer:
        peer.send(*[call(at, b"", path("/test.Test/Hang")) + reset_frame(at, 8) for at in (1, 3)])
        assert await peer.is_served()
        gc.collect()  # a coroutine that was never awaited would warn now, and warnings are errors
    assert not methods.begun.is_set()
