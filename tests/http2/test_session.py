"""One socket: slow, silent and hostile peers, while others are served."""

from __future__ import annotations

import asyncio
import socket

import pytest

from bench.http2_frames import frame, settings_frame, window_frame
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.server import GrpcServer
from sparrowmq.kernel import frame_layout as frames
from tests.http2.peer_frames import OPENING, call, connected, data, headers, message, path

QUICK = Limits(opening_s=0.3, partial_s=0.3, unread_s=0.3, ping_after_s=3600)


@pytest.fixture
async def quick(methods):
    """The port of a server with short limits."""
    async with GrpcServer(methods.all(), QUICK) as server:
        yield await server.start("127.0.0.1", 0)


async def test_an_answer_leaves_in_one_write(server):
    async with connected(server.port) as peer:
        assert await peer.is_served()
        peer.send(call(1, b"abc"), call(3, b"de"))
        assert await peer.answer(1) == (b"\0\0\0\0\3abc", {"grpc-status": "0"})
        assert await peer.answer(3) == (b"\0\0\0\0\2de", {"grpc-status": "0"})


@pytest.mark.parametrize(
    ("pairs", "body", "status"),
    [
        (path("/test.Test/Echo", ("grpc-timeout", "soon")), b"", "13"),
        (path("/test.Test/Echo", ("grpc-encoding", "snappy")), b"", "12"),
        (path("/nothing"), b"", "12"),
        (path("/test.Test/Echo"), b"\0\0\0\0\0\0\0\0\0\0", "13"),
        (path("/test.Test/Echo"), b"\0\0\0\0\5abc", "13"),
        (path("/test.Test/Echo"), b"\0\xff\xff\xff\xff", "8"),
        (path("/test.Test/Talk"), b"\0\0\0\0\5abc", "13"),
        (path("/test.Test/Talk"), b"\0\xff\xff\xff\xff", "8"),
    ],
)
async def test_a_wrong_call_gets_a_status_and_the_connection_goes_on(server, pairs, body, status):
    async with connected(server.port) as peer:
        peer.send(headers(1, pairs), data(1, body, frames.END_STREAM))
        assert (await peer.answer(1))[1]["grpc-status"] == status
        peer.send(call(3, b"x"))
        assert (await peer.answer(3))[1] == {"grpc-status": "0"}


async def test_the_reason_for_the_end_of_a_connection_reaches_the_peer(server):
    async with connected(server.port) as peer:
        peer.send(headers(2), bytes(4_000_000))  # a socket that is closed with unread bytes forgets its own
        goaway = await peer.until("goaway")
        assert int.from_bytes(goaway[3][4:8], "big") == frames.PROTOCOL_ERROR
        assert b"stream 2" in goaway[3]
        assert await peer.next() is None


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        frames.PREFACE[:10],
        frames.PREFACE,
        OPENING + headers(1)[:20],
        OPENING + frame(frames.HEADERS, 0, 1, b""),
    ],
    ids=["silent", "half a preface", "no settings", "half a frame", "half a header block"],
)
async def test_a_slow_peer_is_disconnected(quick, begin):
    async with connected(quick, begin) as peer:
        assert await peer.until("never") is None


@pytest.mark.parametrize("method", ["/test.Test/Echo", "/test.Test/Talk"])
async def test_a_request_that_never_becomes_whole_ends(quick, method):
    async with connected(quick) as peer:
        peer.send(headers(1, path(method)), data(1, b"\0\0\0\0\5abc"))
        assert (await peer.answer(1))[1]["grpc-status"] == "4"
        assert await peer.is_served()


async def test_a_stream_that_gets_no_first_message_ends(quick):
    async with connected(quick) as peer:
        peer.send(headers(1, path("/test.Test/Talk")))
        assert (await peer.answer(1))[1]["grpc-status"] == "4"
        assert await peer.is_served()


async def test_a_stream_that_may_be_silent_gets_its_first_message_at_any_time(quick):
    async with connected(quick) as peer:
        peer.send(headers(1, path("/test.Test/TalkLater")))
        for _ in range(10):
            await asyncio.sleep(0.1)
            assert await peer.is_served()
        peer.send(message(1, b"abc"))
        assert await peer.answer(1) == (b"\0\0\0\0\x013", {"grpc-status": "0"})


async def test_a_stream_that_waits_between_messages_goes_on(quick):
    async with connected(quick) as peer:
        peer.send(headers(1, path("/test.Test/Talk")), message(1, b"abc", 0))
        assert (await peer.until("data", 1))[3][5:] == b"3"
        for _ in range(10):
            await asyncio.sleep(0.1)
            assert await peer.is_served()
        peer.send(message(1, b"abcd"))
        assert await peer.answer(1) == (b"\0\0\0\0\x014", {"grpc-status": "0"})


async def test_a_peer_that_gives_no_window_for_its_answers_is_disconnected(quick):
    async with connected(quick, frames.PREFACE + settings_frame({4: 0})) as peer:
        peer.send(call(1, b"abc"))
        assert (await peer.until("headers"))[2] == 1
        assert await peer.until("never") is None


async def test_a_peer_that_does_not_read_its_socket_is_disconnected(quick):
    """It gives windows without end, and reads nothing: what waits for it is bounded, and it loses its connection."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", quick))
    raw.setblocking(False)
    opening = frames.PREFACE + settings_frame({4: 2**31 - 1}) + window_frame(0, 2**30)
    reader, writer = await asyncio.open_connection(sock=raw, limit=1)
    writer.write(opening + call(1, b"100000 10000", path("/test.Test/Count")))
    async with connected(quick) as other:
        while not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(0.05)
            assert await other.is_served()
            if await is_gone(writer):
                break
    writer.close()


async def is_gone(writer):
    """Whether the server has closed its side: writing fails then."""
    writer.write(frame(frames.PRIORITY, 0, 1, bytes(5)))
    try:
        await asyncio.wait_for(writer.drain(), 0.05)
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return writer.transport.is_closing()


async def test_a_silent_peer_is_asked_and_then_disconnected(methods):
    limits = Limits(ping_after_s=0.2, partial_s=0.3)
    async with GrpcServer(methods.all(), limits) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as silent, connected(port) as lively:
            for peer in (silent, lively):
                peer.send(headers(1, path("/test.Test/Listen")))
            while (found := await lively.until("ping")) and not methods.cancelled.is_set():
                lively.send(frame(frames.PING, frames.ACK, 0, found[3]))
            assert found is not None
            assert await silent.until("never") is None
            assert len(server.sessions) == 1


async def test_an_idle_connection_ends(methods):
    async with GrpcServer(methods.all(), Limits(idle_s=0.2)) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port) as peer:
            assert int.from_bytes((await peer.until("goaway"))[3][4:8], "big") == frames.NO_ERROR
            assert await peer.next() is None
