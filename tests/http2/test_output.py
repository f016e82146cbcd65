"""The sending side: windows, turns between streams, ends."""

from __future__ import annotations

import tracemalloc

import hpack
import pytest

from sparrowmq.http2 import frames
from sparrowmq.http2 import stream_states as states
from sparrowmq.http2.frames import ConnectionFault, StreamFault
from sparrowmq.http2.output import READY_BYTES, Output
from sparrowmq.http2.response_headers import GRPC_HEADERS, OK_TRAILERS
from sparrowmq.http2.streams import Stream
from tests.http2.peer_frames import split


class Sender:
    """An output, and what it reports."""

    def __init__(self, window=frames.FIRST_WINDOW):
        self.closed = []
        self.drained: list[Stream] = []
        self.output = Output(self._close, self.drained.append)
        self.output.window = window

    def _close(self, stream, is_answered):
        stream.state = states.CLOSED
        self.closed.append((stream.stream_id, is_answered))

    def stream(self, stream_id, window=frames.FIRST_WINDOW, state=states.PEER_ENDED):
        stream = Stream(stream_id, window)
        stream.state = state
        return stream

    def sent(self):
        raw = b"".join(self.output.pieces)
        self.output.written()
        return split(raw)


def data_sizes(found):
    return [(stream_id, len(payload)) for kind, _, stream_id, payload in found if kind == "data"]


def test_an_answer_that_fits_leaves_at_once():
    sender = Sender()
    stream = sender.stream(1)
    sender.output.headers(stream, b"head")
    sender.output.message(stream, b"body")
    sender.output.end(stream, b"tail")
    assert [(kind, flags) for kind, flags, _, _ in sender.sent()] == [
        ("headers", frames.END_HEADERS),
        ("data", 0),
        ("headers", frames.END_HEADERS | frames.END_STREAM),
    ]
    assert sender.closed == [(1, True)]


def test_no_byte_leaves_beyond_a_window_and_trailers_wait_behind_the_data():
    sender = Sender(window=100)
    stream = sender.stream(1, window=60)
    sender.output.message(stream, bytes(90))
    sender.output.end(stream, b"tail")
    assert data_sizes(sender.sent()) == [(1, 60)]
    assert sender.output.pending_bytes == 30
    sender.output.widen(stream, 1000)
    sender.output.flush()
    [data, trailers] = sender.sent()
    assert len(data[3]) == 30
    assert trailers[0] == "headers"
    assert sender.closed == [(1, True)]
    assert sender.output.pending_bytes == 0


def test_the_window_of_the_connection_is_shared():
    sender = Sender(window=100)
    first, second = sender.stream(1), sender.stream(3)
    sender.output.message(first, bytes(80))
    sender.output.message(second, bytes(80))
    assert data_sizes(sender.sent()) == [(1, 80), (3, 20)]
    sender.output.widen(None, 60)
    sender.output.flush()
    assert data_sizes(sender.sent()) == [(3, 60)]
    assert sender.drained == [second]


def test_a_window_that_opens_only_for_one_stream_leaves_others_waiting():
    sender = Sender()
    blocked, free = sender.stream(1, window=0), sender.stream(3, window=0)
    sender.output.message(blocked, b"aa")
    sender.output.message(free, b"bbb")
    sender.output.widen(free, 10)
    assert sender.output.flush() is False
    assert data_sizes(sender.sent()) == [(3, 3)]


def test_large_answers_take_turns_frame_by_frame():
    sender = Sender(window=10)
    streams = [sender.stream(1), sender.stream(3)]
    for stream in streams:
        sender.output.message(stream, bytes(40_000))
    sender.sent()
    sender.output.widen(None, 10**6)
    sender.output.flush()
    assert [stream_id for stream_id, _ in data_sizes(sender.sent())] == [1, 3, 1, 3, 1, 3]


def test_one_write_has_only_so_much():
    sender = Sender()
    sender.output.window = 10**8
    streams = [sender.stream(at, window=10**8) for at in (1, 3)]
    for _ in range(100):
        for stream in streams:
            sender.output.message(stream, bytes(16_000))
    assert READY_BYTES <= sender.output.ready_bytes <= READY_BYTES + 16_384
    total = 0
    while sender.output.flush():
        sizes = data_sizes(sender.sent())
        assert READY_BYTES <= sum(size for _, size in sizes) <= READY_BYTES + 16_384
        total += sum(size for _, size in sizes)
    assert total + sum(size for _, size in data_sizes(sender.sent())) == 2 * 100 * 16_000


def test_data_waits_while_the_socket_takes_nothing():
    sender = Sender()
    stream = sender.stream(1)
    sender.output.is_stopped = True
    sender.output.message(stream, b"body")
    assert sender.output.flush() is False
    assert sender.sent() == []
    sender.output.is_stopped = False
    sender.output.flush()
    assert data_sizes(sender.sent()) == [(1, 4)]


def test_an_answer_before_the_end_of_the_request_stops_the_client():
    sender = Sender()
    stream = sender.stream(1, state=states.OPEN)
    sender.output.end(stream, b"tail")
    [_, reset] = sender.sent()
    assert reset[0] == "reset" and reset[3] == bytes(4)
    sender.output.message(stream, b"more")
    sender.output.end(stream, b"again")
    sender.output.reset(stream, 8)
    assert sender.sent() == []


def test_a_reset_stream_drops_what_waits():
    sender = Sender(window=0)
    stream = sender.stream(1)
    sender.output.message(stream, b"body")
    sender.output.reset(stream, frames.CANCEL)
    assert [kind for kind, *_ in sender.sent()] == ["reset"]
    assert sender.output.pending_bytes == 0 and not sender.output.is_waiting
    assert sender.closed == [(1, False)]


def test_windows_may_not_grow_too_large():
    sender = Sender()
    stream = sender.stream(1)
    with pytest.raises(StreamFault):
        sender.output.widen(stream, frames.LARGEST_WINDOW)
    with pytest.raises(ConnectionFault):
        sender.output.widen(None, frames.LARGEST_WINDOW)
    other = sender.stream(3, window=frames.LARGEST_WINDOW)
    with pytest.raises(ConnectionFault):
        sender.output.set_first_window(frames.FIRST_WINDOW + 1, [other])


def test_a_smaller_first_window_may_make_windows_negative():
    sender = Sender()
    stream = sender.stream(1)
    sender.output.message(stream, bytes(1000))
    sender.output.set_first_window(0, [stream])
    assert stream.send_window == -1000
    sender.output.message(stream, b"x")
    sender.output.widen(stream, 1000)
    sender.output.flush()
    assert data_sizes(sender.sent()) == [(1, 1000)]
    sender.output.widen(stream, 1)
    sender.output.flush()
    assert data_sizes(sender.sent()) == [(1, 1)]


def test_headers_that_wait_are_numbered_in_the_order_of_their_blocks():
    sender, decoder = Sender(), hpack.Decoder()
    first, second = sender.stream(1), sender.stream(3)
    for stream in (first, second):
        sender.output.headers(stream, GRPC_HEADERS)
    sender.output.message(first, bytes(frames.FIRST_WINDOW + 1))
    sender.output.end(first, OK_TRAILERS)
    sender.output.end(second, OK_TRAILERS)
    sender.output.widen(None, 1)
    sender.output.widen(first, 1)
    sender.output.flush()
    blocks = [payload for kind, *_, payload in sender.sent() if kind == "headers"]
    values = [str(dict(decoder.decode(block)).popitem()[1]) for block in blocks]
    assert values == ["identity,gzip"] * 2 + ["0"] * 2
    assert list(map(len, blocks))[1::2] == [3, 1]


def test_a_smaller_table_is_acknowledged_in_the_next_block_only():
    sender = Sender()
    sender.output.shrink_table()
    stream = sender.stream(1)
    sender.output.headers(stream, b"head")
    sender.output.headers(stream, b"head")
    assert [payload for *_, payload in sender.sent()] == [b"\x20head", b"head"]


def test_a_window_of_one_byte_moves_one_byte():
    """A peer may give a byte at a time of each of a thousand large answers."""
    sender = Sender(window=10)
    stream = sender.stream(1, window=0)
    sender.output.message(stream, bytes(8 << 20))
    sender.output.widen(stream, 1)
    tracemalloc.start()
    try:
        sender.output.flush()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data_sizes(sender.sent()) == [(1, 1)]
    assert most_bytes < 1 << 20


def test_many_small_messages_that_wait_leave_in_few_frames():
    sender = Sender(window=10**6)
    stream = sender.stream(1, window=0)
    for at in range(10_000):
        sender.output.message(stream, at.to_bytes(4, "big"))
    sender.output.widen(stream, 10**6)
    sender.output.flush()
    found = sender.sent()
    assert data_sizes(found) == [(1, 16_384), (1, 16_384), (1, 7_232)]
    assert b"".join(payload for _, _, _, payload in found) == b"".join(at.to_bytes(4, "big") for at in range(10_000))
