"""The sending side: windows, turns between streams, ends."""

from __future__ import annotations

import tracemalloc

import hpack
import pytest

from bench.http2_frames import reset_frame, settings_frame, window_frame
from sparrowmq.kernel import frame_layout as frames
from sparrowmq.kernel.answers import Stream
from sparrowmq.kernel.frame_layout import READY_BYTES
from tests.http2.peer_frames import OPENING, Served, call, headers, headers_in, message, path

TALK = path("/test.Test/Talk")
PREFIX = 5


def served_with(*stream_ids, stream_window=frames.FIRST_WINDOW, connection_window=frames.FIRST_WINDOW):
    """A connection whose peer gives these windows, and streams on it that take answers."""
    opening = OPENING + settings_frame({frames.INITIAL_WINDOW_SIZE: stream_window})
    if connection_window > frames.FIRST_WINDOW:
        opening += window_frame(0, connection_window - frames.FIRST_WINDOW)
    served = Served(opening=opening)
    if connection_window < frames.FIRST_WINDOW:  # an answer uses the rest
        size = frames.FIRST_WINDOW - connection_window
        served.receive(headers(999, TALK), window_frame(999, frames.FIRST_WINDOW))
        while size:
            piece = min(size, frames.LARGEST_FRAME)
            served.http2.send(served.stream(999), (bytes(piece - PREFIX),))
            size -= piece
        served.receive(reset_frame(999, frames.CANCEL))
        served.http2.take()
        stream_ids = tuple(stream_id + 1000 for stream_id in stream_ids)
    for stream_id in stream_ids:
        served.receive(headers(stream_id, TALK))
    return served, *map(served.stream, stream_ids)


def send(served, stream, size):
    """Send a message that takes so many bytes, with its prefix."""
    served.http2.send(stream, (bytes(size - PREFIX),))


def test_an_answer_that_fits_leaves_at_once():
    served = Served().receive(call(1))
    stream = served.stream()
    served.answer(1, b"body")
    assert [(kind, flags) for kind, flags, _, _ in served.sent()] == [
        ("headers", frames.END_HEADERS),
        ("data", 0),
        ("headers", frames.END_HEADERS | frames.END_STREAM),
    ]
    assert stream.is_closed and served.http2.streams == {}


def test_messages_of_one_send_share_a_frame():
    served, stream = served_with(1)
    served.http2.send(stream, (b"a", b"", b"bc"))
    [payload] = [payload for kind, _, _, payload in served.sent() if kind == "data"]
    assert payload == b"\0\0\0\0\1a\0\0\0\0\0\0\0\0\0\2bc"


def test_no_byte_leaves_beyond_a_window_and_trailers_wait_behind_the_data():
    served, stream = served_with(1, stream_window=60)
    send(served, stream, 90)
    served.http2.finish(stream)
    assert served.data_sizes() == [(1, 60)]
    assert served.http2.pending_bytes == 30 == stream.pending_bytes and served.http2.is_waiting
    [data, trailers, _] = served.receive(window_frame(1, 1000)).sent()
    assert len(data[3]) == 30
    assert trailers[0] == "headers"
    assert stream.is_closed
    assert served.http2.pending_bytes == 0


def test_the_window_of_the_connection_is_shared():
    served, first, second = served_with(1, 3, connection_window=100)
    send(served, first, 80)
    send(served, second, 80)
    assert served.data_sizes() == [(1001, 80), (1003, 20)]
    assert served.receive(window_frame(0, 60)).data_sizes() == [(1003, 60)]
    assert second.pending_bytes == 0


def test_a_window_that_opens_only_for_one_stream_leaves_others_waiting():
    served, blocked, free = served_with(1, 3, stream_window=0)
    send(served, blocked, 6)
    send(served, free, 7)
    assert served.receive(window_frame(3, 10)).data_sizes() == [(3, 7)]
    assert not served.http2.has_output and blocked.pending_bytes == 6


def test_large_answers_take_turns_frame_by_frame():
    served, *streams = served_with(1, 3, connection_window=10)
    for stream in streams:
        send(served, stream, 40_000)
    served.sent()
    sizes = served.receive(window_frame(0, 10**6)).data_sizes()
    assert [stream_id for stream_id, _ in sizes] == [1001, 1003, 1001, 1003, 1001, 1003]


def test_one_write_has_only_so_much():
    served, *streams = served_with(1, 3, stream_window=10**8, connection_window=10**8)
    for _ in range(100):
        for stream in streams:
            send(served, stream, 16_000)
    total = 0
    while True:
        size = sum(size for _, size in served.data_sizes())
        total += size
        if not served.http2.has_output:
            break
        assert READY_BYTES <= size <= READY_BYTES + frames.LARGEST_FRAME
    assert total == 2 * 100 * 16_000


def test_data_waits_while_the_socket_takes_nothing():
    served, stream = served_with(1)
    served.http2.is_stopped = True
    send(served, stream, 9)
    assert served.data_sizes() == [] and not served.http2.has_output
    served.http2.is_stopped = False
    assert served.data_sizes() == [(1, 9)]


def test_an_answer_before_the_end_of_the_request_stops_the_client():
    served, stream = served_with(1)
    served.http2.finish(stream)
    [_, _, reset] = served.sent()
    assert reset[0] == "reset" and reset[3] == bytes(4)
    send(served, stream, 9)
    served.http2.finish(stream)
    served.http2.fail(stream, 13, "again")
    assert served.sent() == []


def test_a_reset_stream_drops_what_waits():
    served, stream = served_with(1, stream_window=0)
    send(served, stream, 9)
    served.sent()
    assert served.receive(reset_frame(1, frames.CANCEL)).sent() == []
    assert served.http2.pending_bytes == 0 and not served.http2.is_waiting
    assert stream.is_closed and served.events[-1] == (1, "ended")


@pytest.mark.parametrize("first", [frames.FIRST_WINDOW + 1, frames.LARGEST_WINDOW])
def test_a_first_window_may_not_make_others_too_large(first):
    served, _ = served_with(1)
    served.receive(window_frame(1, frames.LARGEST_WINDOW - frames.FIRST_WINDOW))
    assert served.receive(settings_frame({4: first})).code == frames.FLOW_CONTROL_ERROR


def test_a_smaller_first_window_may_make_windows_negative():
    served, stream = served_with(1)
    send(served, stream, 1000)
    served.sent()
    served.receive(settings_frame({4: 0}))
    assert stream.send_window == -1000
    send(served, stream, 6)
    assert served.receive(window_frame(1, 1000)).data_sizes() == []
    assert served.receive(window_frame(1, 1)).data_sizes() == [(1, 1)]
    assert served.receive(window_frame(1, 9)).data_sizes() == [(1, 5)]


@pytest.mark.parametrize("order", ["ht", "htht", "hhtt", "hthetht", "eht"])
def test_a_client_reads_the_same_headers_when_they_are_numbers(order):
    """`h` begins a call with a message, `t` ends the oldest one, `e` is a call that fails."""
    served, decoder = Served(), hpack.Decoder()
    open_streams: list[Stream] = []
    found = []
    for number, step in enumerate(order * 2):
        if step == "t":
            served.http2.finish(open_streams.pop(0))
        else:
            stream_id = 2 * number + 1
            stream = served.receive(headers(stream_id, TALK)).receive(message(stream_id, b"")).stream(stream_id)
            if step == "e":
                served.http2.fail(stream, 5, "no é")
            else:
                served.http2.send(stream, (b"x",))
                open_streams.append(stream)
        found += [(step, payload) for kind, _, _, payload in served.sent() if kind == "headers"]
    pairs = [(step, headers_in(payload, decoder)) for step, payload in found]
    begun = {":status": "200", "content-type": "application/grpc", "grpc-accept-encoding": "identity,gzip"}
    expected = {"h": begun, "t": {"grpc-status": "0"}, "e": begun | {"grpc-status": "5", "grpc-message": "no %C3%A9"}}
    assert pairs == [(step, expected[step]) for step in order * 2]
    sizes = {(step, len(payload)) for step, payload in found[len(order) :] if step != "e"}
    assert sizes == {("h", 3), ("t", 1)}


def test_headers_that_wait_are_numbered_in_the_order_of_their_blocks():
    served, first, second = served_with(1, 3)
    decoder = hpack.Decoder()
    for _ in range(frames.FIRST_WINDOW // 15_000):
        send(served, first, 15_000)
    send(served, first, frames.FIRST_WINDOW % 15_000 + 1)
    served.http2.finish(first)
    served.http2.finish(second)
    raw = served.sent() + served.receive(window_frame(0, 1), window_frame(1, 1)).sent()
    blocks = [payload for kind, *_, payload in raw if kind == "headers"]
    values = [str(dict(decoder.decode(block)).popitem()[1]) for block in blocks]
    assert values == ["identity,gzip"] * 2 + ["0"] * 2
    assert list(map(len, blocks))[1::2] == [3, 1]


def test_a_smaller_table_is_acknowledged_in_the_next_block_only():
    served = Served().receive(settings_frame({frames.HEADER_TABLE_SIZE: 0}), call(1), call(3))
    served.answer(1)
    served.answer(3)
    blocks = [payload for kind, *_, payload in served.sent() if kind == "headers"]
    assert [block[:1] for block in blocks] == [b"\x20", b"\0", b"\x88", b"\0"]


def test_long_trailers_go_on_in_other_frames():
    served = Served().receive(call(1))
    served.http2.fail(served.stream(), 5, "x" * 40_000)
    found = served.sent()
    assert [(kind, flags) for kind, flags, *_ in found] == [("headers", 1), ("continuation", 0), ("continuation", 4)]
    pairs = headers_in(b"".join(payload for *_, payload in found))
    assert pairs["grpc-message"] == "x" * 40_000


def test_a_window_of_one_byte_moves_one_byte():
    """A peer may give a byte at a time of each of a thousand large answers."""
    served, stream = served_with(1, stream_window=0)
    send(served, stream, 8 << 20)
    served.sent()
    served.receive(window_frame(1, 1))
    tracemalloc.start()
    try:
        assert served.data_sizes() == [(1, 1)]
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 1 << 20


def test_many_small_messages_that_wait_leave_in_few_frames():
    served, stream = served_with(1, stream_window=0, connection_window=10**6)
    for at in range(10_000):
        served.http2.send(stream, (at.to_bytes(4, "big"),))
    served.sent()
    found = served.receive(window_frame(1, 10**6)).sent()
    sizes = [len(payload) for _, _, _, payload in found]
    assert sizes == [16_384] * 5 + [90_000 - 5 * 16_384]
    whole = b"".join(payload for _, _, _, payload in found)
    assert whole == b"".join(b"\0\0\0\0\4" + at.to_bytes(4, "big") for at in range(10_000))


def test_a_large_output_leaves_no_large_memory_behind():
    served, stream = served_with(1, stream_window=10**8, connection_window=10**8)
    tracemalloc.start()
    try:
        for _ in range(10):
            send(served, stream, 10**6)
            while served.http2.take():
                pass
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left_bytes < 200_000
