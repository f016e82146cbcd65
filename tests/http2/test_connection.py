"""The receiving side, with frames that clients send and with those that they never send.

The rules are those of RFC 9113; the program h2spec has about the same list.
"""

from __future__ import annotations

import hpack
import pytest

from sparrowmq.http2 import frames
from sparrowmq.http2 import stream_states as states
from sparrowmq.http2.connection import CONNECTION_WINDOW, EARNED_BY_FRAME, REMEMBERED_RESETS, Connection
from sparrowmq.http2.frames import frame
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.response_headers import GRPC_HEADERS, OK_TRAILERS
from tests.http2.peer_frames import CALL, OPENING, Record, block, call, data, headers, message, path, split

END = frames.END_STREAM
WHOLE = frames.END_STREAM | frames.END_HEADERS


class Served:
    """A connection that has begun, and what came of it."""

    def __init__(self, limits=None, opening=OPENING):
        self.record = Record()
        self.now = 100.0
        self.connection = Connection(self.record, limits or Limits(), lambda: self.now)
        self.connection.receive(opening)
        self.connection.output.pieces.clear()

    def receive(self, *pieces):
        self.connection.receive(b"".join(pieces))
        while self.connection.has_more:
            self.connection.go_on()
        return self

    @property
    def events(self):
        return self.record.events

    def sent(self):
        raw = b"".join(self.connection.output.pieces)
        self.connection.output.pieces.clear()
        return split(raw)

    def resets(self):
        return [
            (stream_id, int.from_bytes(payload, "big"))
            for kind, _, stream_id, payload in self.sent()
            if kind == "reset"
        ]

    @property
    def code(self):
        return None if self.connection.fault is None else self.connection.fault.code

    def answer(self, stream_id):
        stream = self.connection.streams[stream_id]
        self.connection.output.headers(stream, GRPC_HEADERS)
        self.connection.output.end(stream, OK_TRAILERS)


def test_a_request_arrives():
    assert Served().receive(call(1, b"hello")).events == [
        ("request", 1, "/test.Test/Echo", False),
        ("body", 1, b"\0\0\0\0\5hello", True),
    ]


def test_bytes_may_arrive_one_by_one():
    served = Served(opening=b"")
    whole = OPENING + call(1, b"hello") + headers(3, flags=WHOLE)
    for at in range(len(whole)):
        served.receive(whole[at : at + 1])
    assert served.events == Served().receive(call(1, b"hello"), headers(3, flags=WHOLE)).events
    assert not served.connection.is_partial


@pytest.mark.parametrize("part", [headers(1)[:5], headers(1)[:20], frame(frames.HEADERS, 0, 1, b"")])
def test_an_unfinished_frame_or_header_block_is_noticed(part):
    assert Served().receive(part).connection.is_partial


@pytest.mark.parametrize(
    "opening", [b"GET / HTTP/1.1\r\n\r\n", b"X", frames.PREFACE[:20] + b"SM\r\nxxxxxxxx", b"\0" * 30]
)
def test_what_is_no_http2_ends_at_its_first_wrong_byte(opening):
    assert Served(opening=opening).code == frames.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "first", [headers(1), frame(frames.PING, 0, 0, bytes(8)), frame(frames.SETTINGS, frames.ACK, 0, b"")]
)
def test_the_first_frame_must_be_settings(first):
    assert Served(opening=frames.PREFACE + first).code == frames.PROTOCOL_ERROR


def test_settings_and_pings_are_acknowledged():
    served = Served().receive(frames.settings_frame({99: 1}), frame(frames.PING, 0, 0, b"12345678"))
    assert [(kind, flags, payload) for kind, flags, _, payload in served.sent()] == [
        ("settings", frames.ACK, b""),
        ("ping", frames.ACK, b"12345678"),
    ]
    served.receive(frame(frames.PING, frames.ACK, 0, bytes(8)), frame(frames.SETTINGS, frames.ACK, 0, b""))
    assert served.sent() == []


LARGE = frames.LARGEST_FRAME + 1
P, F, C, S = frames.PROTOCOL_ERROR, frames.FRAME_SIZE_ERROR, frames.COMPRESSION_ERROR, frames.STREAM_CLOSED


@pytest.mark.parametrize(
    ("received", "code"),
    [
        (data(0, b"x"), P),
        (data(1, b"x"), P),
        (headers(0), P),
        (headers(2), P),
        (headers(3) + headers(1), S),
        (call(1) + headers(1), S),
        (data(1, bytes(LARGE)), F),
        (headers(1) + data(1, b"\5abc", frames.PADDED), P),
        (headers(1) + data(1, b"", frames.PADDED), P),
        (frame(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, b"\xff" + block()), P),
        (frame(frames.HEADERS, frames.END_HEADERS | frames.HAS_PRIORITY, 1, b"abc"), F),
        (frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff"), C),
        (frame(frames.HEADERS, 0, 1, block()[:5]) + headers(3), P),
        (frame(frames.HEADERS, 0, 1, block()[:5]) + data(1, b"x"), P),
        (frame(frames.HEADERS, 0, 1, block()[:5]) + frame(200, 0, 1, b"x"), P),
        (frame(frames.HEADERS, 0, 1, block()[:5]) + frame(frames.CONTINUATION, 4, 3, block()[5:]), P),
        (frame(frames.CONTINUATION, 4, 1, block()), P),
        (headers(1) + frame(frames.CONTINUATION, 4, 1, block()), P),
        (frame(frames.RST_STREAM, 0, 0, bytes(4)), P),
        (frame(frames.RST_STREAM, 0, 1, bytes(4)), P),
        (headers(1) + frame(frames.RST_STREAM, 0, 1, bytes(3)), F),
        (frame(frames.SETTINGS, 0, 1, b""), P),
        (frame(frames.SETTINGS, 0, 0, b"abc"), F),
        (frame(frames.SETTINGS, frames.ACK, 0, bytes(6)), F),
        (frames.settings_frame({frames.ENABLE_PUSH: 2}), P),
        (frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 2**31}), frames.FLOW_CONTROL_ERROR),
        (frames.settings_frame({frames.MAX_FRAME_SIZE: 16_383}), P),
        (frames.settings_frame({frames.MAX_FRAME_SIZE: 2**24}), P),
        (frame(frames.PING, 0, 1, bytes(8)), P),
        (frame(frames.PING, 0, 0, bytes(7)), F),
        (frame(frames.GOAWAY, 0, 1, bytes(8)), P),
        (frame(frames.GOAWAY, 0, 0, bytes(4)), F),
        (frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), P),
        (frame(frames.PRIORITY, 0, 0, bytes(5)), P),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), P),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), F),
        (frames.window_frame(1, 1), P),
        (frames.window_frame(0, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
    ],
)
def test_a_broken_rule_of_the_connection_ends_it(received, code):
    served = Served().receive(received)
    assert served.code == code
    [goaway] = [payload for kind, _, _, payload in served.sent() if kind == "goaway"]
    assert int.from_bytes(goaway[4:8], "big") == code
    assert served.receive(call(101)).events == Served().receive(received).events  # nothing more is handled


@pytest.mark.parametrize(
    ("received", "code"),
    [
        (headers(1) + frames.window_frame(1, 0), P),
        (headers(1) + frames.window_frame(1, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
        (headers(1) + frame(frames.PRIORITY, 0, 1, bytes(4)), F),
        (headers(1) + frame(frames.PRIORITY, 0, 1, b"\0\0\0\1\0"), P),
        (frame(frames.HEADERS, WHOLE | frames.HAS_PRIORITY, 1, b"\0\0\0\1\0" + block()), P),
        (headers(1) + headers(1), P),
        (headers(1) + headers(1, [(":path", "/")], WHOLE), P),
        (headers(1, [*CALL, ("X", "1")]), P),
        (headers(1, [*CALL, ("content-length", "5")]) + data(1, b"abc", END), P),
        (headers(1, [*CALL, ("content-length", "5")]) + data(1, b"abcdef"), P),
        (headers(1, [*CALL, ("content-length", "5")], WHOLE), P),
        (headers(1, [*CALL, ("content-length", "5")]) + headers(1, [("x", "1")], WHOLE), P),
        (call(1) + data(1, b"x"), S),
    ],
)
def test_a_broken_rule_of_a_stream_ends_only_the_stream(received, code):
    served = Served().receive(received)
    assert served.code is None
    assert served.resets() == [(1, code)]
    assert 1 not in served.connection.streams
    assert ("request", 3, "/test.Test/Echo", False) in served.receive(call(3)).events


def test_headers_may_go_on_in_continuation_frames_and_have_padding_and_priority():
    raw = block()
    served = Served().receive(
        frame(
            frames.HEADERS,
            frames.PADDED | frames.HAS_PRIORITY | END,
            1,
            b"\3" + bytes(5) + raw[:9] + bytes(3),
        ),
        frame(frames.CONTINUATION, 0, 1, raw[9:20]),
        frame(frames.CONTINUATION, frames.END_HEADERS, 1, raw[20:]),
    )
    assert served.events == [("request", 1, "/test.Test/Echo", True)]


def test_trailers_end_a_request():
    served = Served().receive(headers(1), data(1, b"abc"), headers(1, [("x-last", "1")], WHOLE))
    assert served.events[1:] == [("body", 1, b"abc", False), ("body", 1, b"", True)]


def test_frames_of_unknown_kinds_and_priorities_are_ignored():
    served = Served().receive(frame(77, 255, 1, b"abc"), frame(frames.PRIORITY, 0, 9, bytes(5)), call(1))
    assert served.code is None and len(served.events) == 2


def test_frames_for_a_stream_that_we_reset_are_ignored():
    served = Served().receive(headers(1))
    served.connection.refuse(served.connection.streams[1], frames.CANCEL)
    served.receive(data(1, b"late"), headers(1, [("x", "1")], WHOLE), frames.window_frame(1, 5))
    assert served.resets() == [(1, frames.CANCEL)]
    assert served.code is None
    assert served.events == [("request", 1, "/test.Test/Echo", False), ("ended", 1)]


def test_frames_behind_an_answer_that_came_before_the_end_of_the_request_are_ignored():
    served = Served().receive(headers(1))
    served.answer(1)
    served.receive(data(1, b"late"), headers(1, [("x", "1")], WHOLE))
    assert served.code is None
    assert served.resets() == [(1, frames.NO_ERROR)]


def test_only_some_resets_are_remembered():
    served = Served(Limits(control_frames=10**6))
    for stream_id in range(1, 2 * REMEMBERED_RESETS + 5, 2):
        served.receive(headers(stream_id, [("broken", "1")]))
    served.receive(data(5, b"x"))
    assert served.resets()[-1] == (2 * REMEMBERED_RESETS + 3, P)
    served.receive(data(1, b"x"))
    assert served.resets() == [(1, S)]


def test_a_reset_of_the_peer_ends_a_call():
    served = Served().receive(headers(1), frames.reset_frame(1, frames.CANCEL))
    assert served.events[-1] == ("ended", 1)
    assert served.connection.streams == {}
    assert served.sent() == []


def test_calls_above_the_limit_are_refused_and_the_others_go_on():
    served = Served(Limits(streams=2)).receive(headers(1), headers(3), headers(5))
    assert served.resets() == [(5, frames.REFUSED_STREAM)]
    served.receive(message(1, b"x"))
    served.answer(1)
    assert ("request", 7, "/test.Test/Echo", False) in served.receive(headers(7)).events


@pytest.mark.parametrize(("table_bytes", "size"), [(4095, 68), (4096, 3), (65_536, 3)])
def test_only_a_peer_with_a_smaller_table_gets_whole_headers(table_bytes, size):
    served = Served().receive(frames.settings_frame({frames.HEADER_TABLE_SIZE: table_bytes}))
    for stream_id in (1, 3):
        served.receive(headers(stream_id, flags=WHOLE)).answer(stream_id)
    assert [len(payload) for kind, *_, payload in served.sent() if kind == "headers"][2] == size


def test_a_refused_header_block_still_counts_for_the_table():
    encoder = hpack.Encoder()
    first = encoder.encode(CALL)
    refused, again = [encoder.encode(path("/test.Test/Echo", ("x-new", "value"))) for _ in range(2)]
    assert len(again) < len(refused)
    served = Served(Limits(streams=1))
    served.receive(frame(frames.HEADERS, WHOLE, 1, first), frame(frames.HEADERS, WHOLE, 3, refused))
    assert served.resets() == [(3, frames.REFUSED_STREAM)]
    served.answer(1)
    served.receive(frame(frames.HEADERS, WHOLE, 5, again))
    assert served.code is None
    assert served.events[-1] == ("request", 5, "/test.Test/Echo", True)


def test_no_new_calls_while_too_many_answers_are_unsent():
    served = Served(Limits(unsent_bytes=1000)).receive(frames.settings_frame({4: 0}), headers(1, flags=WHOLE))
    served.connection.output.message(served.connection.streams[1], bytes(1001))
    assert served.receive(headers(3)).resets() == [(3, frames.REFUSED_STREAM)]


def test_draining_refuses_new_calls_and_finishes_open_ones():
    served = Served().receive(headers(1))
    served.connection.drain()
    served.connection.drain()
    [(kind, _, _, payload)] = served.sent()
    assert kind == "goaway" and payload[:8] == b"\0\0\0\1\0\0\0\0"
    assert served.receive(headers(3)).resets() == [(3, frames.REFUSED_STREAM)]
    assert served.receive(data(1, b"x", END)).events[-1] == ("body", 1, b"x", True)


# Windows ------------------------------------------------------------------------------------------------------------


def test_the_window_of_the_connection_is_always_filled_up():
    served = Served(Limits(streams=10_000))
    count = CONNECTION_WINDOW // 2 // 16_000 + 1
    for at in range(count):
        served.receive(headers(2 * at + 1), data(2 * at + 1, bytes(16_000)))
    [(kind, _, stream_id, payload)] = served.sent()
    assert (kind, stream_id) == ("window", 0)
    assert int.from_bytes(payload, "big") == count * 16_000


def test_more_data_than_the_window_of_a_stream_resets_it():
    served = Served().receive(headers(1), *[data(1, bytes(16_384))] * 3)
    assert served.resets() == []
    assert served.receive(data(1, bytes(16_384))).resets() == [(1, frames.FLOW_CONTROL_ERROR)]


def test_padding_counts_in_the_window():
    served = Served().receive(headers(1), data(1, b"\xff" + bytes(255), frames.PADDED))
    assert served.connection.streams[1].receive_window == frames.FIRST_WINDOW - 256
    assert served.events[-1] == ("body", 1, b"", False)


def test_more_data_than_the_window_of_the_connection_ends_it():
    served = Served()
    served.connection._window = 10
    assert served.receive(headers(1), data(1, bytes(11))).code == frames.FLOW_CONTROL_ERROR


def test_a_stream_gets_its_window_back_only_when_its_data_is_consumed():
    served = Served().receive(headers(1), *[data(1, bytes(16_000))] * 3)
    stream = served.connection.streams[1]
    assert served.sent() == []
    assert served.connection.held_bytes == 48_000 + stream.kept_bytes
    served.connection.consumed(stream, 48_000)
    [(kind, _, stream_id, payload)] = served.sent()
    assert (kind, stream_id, int.from_bytes(payload, "big")) == ("window", 1, 48_000)
    assert served.connection.held_bytes == stream.kept_bytes


def test_a_large_message_gets_the_window_that_it_needs():
    served = Served().receive(headers(1), data(1, bytes(1000)))
    served.connection.expects(served.connection.streams[1], 1_000_000)
    [(kind, _, _, payload)] = served.sent()
    assert kind == "window"
    assert served.connection.streams[1].receive_window == 1_000_000
    assert int.from_bytes(payload, "big") == 1_000_000 - frames.FIRST_WINDOW + 1000


def test_held_bytes_are_forgotten_with_their_stream():
    served = Served().receive(headers(1), data(1, bytes(1000)))
    stream = served.connection.streams[1]
    served.receive(frames.reset_frame(1, 8))
    served.connection.consumed(stream, 1000)
    assert served.connection.held_bytes == 0
    served.receive(headers(3), data(3, bytes(1000)))
    served.connection.end()
    assert served.connection.held_bytes == 0
    assert served.events[-1] == ("ended", 3)


def test_a_first_window_of_the_peer_holds_for_open_and_new_streams():
    served = Served().receive(headers(1, flags=WHOLE), frames.settings_frame({4: 10}), headers(3, flags=WHOLE))
    assert [stream.send_window for stream in served.connection.streams.values()] == [10, 10]


# Floods -------------------------------------------------------------------------------------------------------------

FLOODS = {
    "pings": lambda at: frame(frames.PING, 0, 0, bytes(8)),
    "settings": lambda at: frames.settings_frame({}),
    "windows": lambda at: frames.window_frame(0, 1),
    "priorities": lambda at: frame(frames.PRIORITY, 0, 1, bytes(5)),
    "unknown": lambda at: frame(99, 0, 0, b""),
    "rapid resets": lambda at: headers(2 * at + 3) + frames.reset_frame(2 * at + 3, 8),
    "refused": lambda at: headers(2 * at + 3, [("broken", "1")]),
    "empty data": lambda at: data(1, b""),
    "dead data": lambda at: data(5, b"x") if at > 1 else headers(2 * at + 3, [("broken", "1")]),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_ends_the_connection(flood):
    served = Served(Limits(control_frames=50, control_frames_per_s=10)).receive(headers(1))
    for at in range(45):
        served.receive(flood(at))
    assert served.code is None
    for at in range(45, 60):
        served.receive(flood(at))
    assert served.code == frames.ENHANCE_YOUR_CALM


def test_a_slow_trickle_is_no_flood():
    served = Served(Limits(control_frames=50, control_frames_per_s=10))
    for _ in range(500):
        served.now += 0.1
        served.receive(frame(frames.PING, 0, 0, bytes(8)))
    assert served.code is None


def test_answers_allow_updates_of_windows():
    served = Served(Limits(control_frames=50, control_frames_per_s=0))
    for stream_id in range(1, 401, 2):
        served.receive(headers(stream_id, flags=WHOLE))
        served.answer(stream_id)
        served.receive(*[frames.window_frame(0, 1)] * EARNED_BY_FRAME)
    assert served.code is None


def test_a_header_block_that_never_ends_ends_the_connection():
    served = Served(Limits(header_block_bytes=1000)).receive(frame(frames.HEADERS, 0, 1, b"\0"))
    for _ in range(20):
        served.receive(frame(frames.CONTINUATION, 0, 1, bytes(100)))
    assert served.code == frames.ENHANCE_YOUR_CALM


def test_empty_continuations_end_the_connection():
    served = Served(Limits(control_frames=50)).receive(frame(frames.HEADERS, 0, 1, b"\0"))
    served.receive(*[frame(frames.CONTINUATION, 0, 1, b"")] * 60)
    assert served.code == frames.ENHANCE_YOUR_CALM


def test_a_connection_without_time_in_this_turn_handles_one_call():
    served = Served()
    served.connection._until = lambda now: now - 1
    served.connection.receive(b"".join(call(stream_id) for stream_id in range(1, 101, 2)))
    assert len([event for event in served.events if event[0] == "request"]) == 1


def test_a_connection_without_time_in_this_turn_handles_one_large_frame():
    served = Served()
    served.connection._until = lambda now: now - 1
    large = [*CALL, ("a", "x" * 8_000)]
    served.connection.receive(b"".join(headers(stream_id, large, WHOLE) for stream_id in range(1, 9, 2)))
    assert len([event for event in served.events if event[0] == "request"]) == 1
    served.connection.go_on()
    assert len([event for event in served.events if event[0] == "request"]) == 2


def test_a_large_chunk_is_handled_in_parts():
    served = Served()
    ticks = iter(range(10**6))
    served.connection._now = lambda: next(ticks)
    served.connection.receive(b"".join(call(stream_id) for stream_id in range(1, 101, 2)))
    assert served.connection.has_more
    assert not served.connection.is_partial
    before = len(served.events)
    assert 0 < before < 100
    served.connection.receive(call(101))  # keeps its place behind the others
    assert len(served.events) == before
    served.receive(b"")
    while served.connection.has_more:
        served.connection.go_on()
    assert [event[1] for event in served.events if event[0] == "request"] == list(range(1, 102, 2))


def test_states_of_streams_follow_the_table():
    served = Served().receive(headers(1), headers(3, flags=WHOLE))
    assert [stream.state for stream in served.connection.streams.values()] == [states.OPEN, states.PEER_ENDED]
