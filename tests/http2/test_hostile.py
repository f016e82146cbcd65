"""Random and hostile input: nothing escapes, what it occupies is bounded, and other clients are served meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from bench.http2_frames import frame, reset_frame, settings_frame, window_frame
from sparrowmq.http2.limits import Limits
from sparrowmq.kernel import frame_layout as frames
from sparrowmq.kernel.frame_layout import FIRST_WINDOW, GrpcError
from tests.http2.peer_frames import CALL, OPENING, Served, block, call, connected, data, headers, message, path

LIMITS = Limits(streams=20, control_frames=200)

STREAM_IDS = some.sampled_from([0, 1, 2, 3, 5, 7, 9, 11, 2**31 - 1])
PAYLOADS = some.one_of(
    some.binary(max_size=30),
    some.sampled_from(
        [
            block(),
            block()[:9],
            block()[9:],
            bytes(4),
            bytes(5),
            bytes(6),
            bytes(8),
            b"\x7f\xff\xff\xff",
            bytes(16_384),
        ]
    ),
)
FRAMES = some.builds(
    frame,
    some.sampled_from([*range(10), *range(10), 77]),
    some.sampled_from([0, 1, 4, 5, 8, 12, 0x20, 0x24, 0xFF]),
    STREAM_IDS,
    PAYLOADS,
)
PLAUSIBLE = some.one_of(
    FRAMES,
    some.builds(headers, STREAM_IDS, some.just(CALL), some.sampled_from([4, 5, 0])),
    some.builds(data, STREAM_IDS, some.binary(max_size=20), some.sampled_from([0, 1])),
    some.builds(window_frame, STREAM_IDS, some.integers(0, 2**31 - 1)),
    some.builds(settings_frame, some.dictionaries(some.integers(0, 8), some.integers(0, 2**32 - 1))),
)


@settings(max_examples=400, deadline=None)
@given(some.lists(PLAUSIBLE, max_size=40), some.integers(1, 60), some.randoms(use_true_random=False))
def test_any_frames_keep_the_connection_consistent(received, size, chance):
    served = Served(LIMITS)
    raw = b"".join(received)
    for at in range(0, len(raw), size * 100):
        served.receive(raw[at : at + size * 100])
        http2 = served.http2
        for stream in list(http2.streams.values()):
            if stream.kind != frames.UNARY and stream.kind and chance.random() < 0.2:
                take_messages(http2, stream)
            if chance.random() < 0.2:
                http2.send(stream, (bytes(chance.randrange(40_000)),))
            if chance.random() < 0.2:
                http2.finish(stream)
        http2.take()
        check(served)
    served.http2.end()
    assert served.http2.held_bytes == 0 == served.http2.pending_bytes
    assert not served.http2.streams and not served.http2.is_waiting


def take_messages(http2, stream):
    try:
        while http2.next_message(stream) is not None:
            http2.release(stream)
    except GrpcError as error:
        http2.fail(stream, error.code, error.message)


def check(served):
    """The sums are right, and no limit is passed."""
    http2 = served.http2
    streams = http2.streams.values()
    assert len(streams) <= LIMITS.streams
    assert http2.held_bytes == sum(stream.held_bytes + stream.kept_bytes for stream in streams)
    assert http2.pending_bytes == sum(stream.pending_bytes for stream in streams)
    assert all(not stream.is_closed and stream.held_bytes <= FIRST_WINDOW for stream in streams)
    assert all(stream.held_bytes >= len(stream.body or b"") + stream.handed_bytes for stream in streams)


@settings(max_examples=300, deadline=None)
@given(some.binary(max_size=200), some.booleans())
def test_any_bytes_are_handled(raw, is_open):
    served = Served(LIMITS, opening=OPENING if is_open else b"").receive(raw)
    assert served.http2.fault is not None or not served.http2.streams or is_open


def nonsense(chance):
    """A connection's worth of frames, most of them right, some damaged."""
    pieces = []
    for stream_id in range(1, 2 * chance.randrange(1, 40), 2):
        name = chance.choice(["Echo", "SlowEcho", "Refuse", "Hang", "Count", "Talk", "Listen", "Nothing"])
        more = [("grpc-timeout", chance.choice(["1m", "5S", "x"]))] if chance.random() < 0.2 else []
        pieces.append(headers(stream_id, path(f"/test.Test/{name}", *more), chance.choice([4, 4, 4, 5])))
        pieces.append(message(stream_id, chance.choice([b"3 10", b"", b"x" * 3000]), chance.choice([0, 1, 1])))
        if chance.random() < 0.3:
            pieces.append(reset_frame(stream_id, 8))
        if chance.random() < 0.3:
            pieces.append(frame(chance.randrange(12), chance.randrange(256), stream_id, chance.randbytes(9)))
    raw = bytearray(b"".join(pieces))
    for _ in range(chance.choice([0, 0, 1, 5])):
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(raw)


async def test_a_server_outlives_nonsense(server, methods, caplog):
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with connected(server.port) as friend:
        for _ in range(150):
            async with connected(server.port) as peer:
                raw = nonsense(chance)
                for at in range(0, len(raw), 5_000):
                    peer.send(raw[at : at + 5_000])
                    await asyncio.sleep(0)
        assert await friend.is_served()
        async with asyncio.timeout(60):
            while len(server.sessions) > 1:
                await asyncio.sleep(0.02)
        assert server._occupied_bytes == 0
        assert len(server._background._tasks) == 1  # of calls none is left, besides the server's own
    texts = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    # A method that got nonsense as a request fails as any method does.
    assert [text for text in texts if "/test.Test/Count" not in text] == []


async def flood_of_resets(peer):
    for stream_id in range(1, 8_000, 2):
        peer.send(headers(stream_id, path("/test.Test/Hang")) + reset_frame(stream_id, 8))


async def flood_of_streams(peer):
    for stream_id in range(1, 6_001, 2):
        peer.send(headers(stream_id, path("/test.Test/Hang")))


async def flood_of_empty_data(peer):
    peer.send(headers(1, path("/test.Test/Talk")), *[data(1, b"")] * 5_000)


async def flood_of_settings(peer):
    peer.send(*[settings_frame({4: at}) for at in range(5_000)])


async def flood_of_continuations(peer):
    peer.send(frame(frames.HEADERS, 0, 1, b""), *[frame(frames.CONTINUATION, 0, 1, b"\0\1a\1b" * 100)] * 5_000)


async def bomb_of_headers(peer):
    long = b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000
    for stream_id in range(1, 2_001, 2):
        peer.send(frame(frames.HEADERS, 5, stream_id, block() + (long if stream_id == 1 else b"") + b"\xbe" * 60))


async def flood_of_tiny_calls(peer):
    for stream_id in range(1, 8_001, 2):
        peer.send(call(stream_id, b"x"))


FLOODS = [
    flood_of_resets,
    flood_of_streams,
    flood_of_empty_data,
    flood_of_settings,
    flood_of_continuations,
    bomb_of_headers,
    flood_of_tiny_calls,
]


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_other_clients_are_served_during_a_flood(server, methods, flood):
    async def keep_on():
        while True:
            async with connected(server.port) as peer:
                reading = asyncio.ensure_future(drained(peer))
                try:
                    await flood(peer)
                    await peer.writer.drain()
                    await asyncio.sleep(0.05)
                except ConnectionError:
                    pass
                finally:
                    reading.cancel()

    async with (
        connected(server.port) as friend,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        assert await friend.is_served()
        echo = channel.unary_unary("/test.Test/SlowEcho")
        flooding = asyncio.ensure_future(keep_on())
        try:
            for at in range(10):
                assert await echo(b"%d" % at, timeout=30) == b"%d" % at
        finally:
            flooding.cancel()
        most = max(len(session.http2.streams) for session in server.sessions)
        assert most <= Limits().streams


async def drained(peer):
    while await peer.next() is not None:
        pass


@pytest.mark.slow
async def test_many_connections_and_streams_at_once_are_served(server):
    """Ten thousand streams: fifty connections with two hundred calls each, all open at the same time."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(server.port)) for _ in range(50)]
        for peer in peers:
            peer.send(*[headers(at, path("/test.Test/Talk")) for at in range(1, 401, 2)])
        async with asyncio.timeout(100):
            while sum(len(session.http2.streams) for session in server.sessions) < 10_000:
                await asyncio.sleep(0.02)
        began = time.monotonic()
        async with connected(server.port) as other:
            other.send(call(1, b"x"))
            assert (await other.answer(1))[1] == {"grpc-status": "0"}
        print(f"a call among 10,000 streams took {time.monotonic() - began:.3f} s")
        for peer in peers:
            peer.send(*[message(at, b"abc") for at in range(1, 401, 2)])
        for peer in peers:
            assert (await peer.answer(399))[1] == {"grpc-status": "0"}
