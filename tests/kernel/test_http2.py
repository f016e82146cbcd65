"""The receiving side, with frames that clients send and with those that they never send.

The rules are those of RFC 9113; the program h2spec has about the same list.
"""

from __future__ import annotations

import hpack
import pytest

from bench.http2_frames import frame, reset_frame, settings_frame, settings_in, window_frame
from sparrowmq.http2.limits import Limits
from sparrowmq.kernel import frame_layout as frames
from sparrowmq.kernel.frame_layout import CONNECTION_WINDOW, EARNED_BY_FRAME, REMEMBERED_RESETS, GrpcError
from sparrowmq.kernel.http2 import Http2
from tests.http2.peer_frames import CALL, OPENING, Served, block, call, data, headers, headers_in, message, path, split

END = frames.END_STREAM
WHOLE = frames.END_STREAM | frames.END_HEADERS


def test_a_request_arrives():
    assert Served().receive(call(1, b"hello")).events == [(1, b"hello")]


def test_bytes_may_arrive_one_by_one():
    served = Served(opening=b"")
    whole = OPENING + call(1, b"hello") + call(3)
    for at in range(len(whole)):
        served.receive(whole[at : at + 1])
    assert served.events == [(1, b"hello"), (3, b"")]
    assert not served.http2.is_partial


@pytest.mark.parametrize("part", [headers(1)[:5], headers(1)[:20], frame(frames.HEADERS, 0, 1, b"")])
def test_an_unfinished_frame_or_header_block_is_noticed(part):
    assert Served().receive(part).http2.is_partial


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
    served = Served().receive(settings_frame({99: 1}), frame(frames.PING, 0, 0, b"12345678"))
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
        (settings_frame({frames.ENABLE_PUSH: 2}), P),
        (settings_frame({frames.INITIAL_WINDOW_SIZE: 2**31}), frames.FLOW_CONTROL_ERROR),
        (settings_frame({frames.MAX_FRAME_SIZE: 16_383}), P),
        (settings_frame({frames.MAX_FRAME_SIZE: 2**24}), P),
        (frame(frames.PING, 0, 1, bytes(8)), P),
        (frame(frames.PING, 0, 0, bytes(7)), F),
        (frame(frames.GOAWAY, 0, 1, bytes(8)), P),
        (frame(frames.GOAWAY, 0, 0, bytes(4)), F),
        (frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), P),
        (frame(frames.PRIORITY, 0, 0, bytes(5)), P),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), P),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), F),
        (window_frame(1, 1), P),
        (window_frame(0, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
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
        (headers(1) + window_frame(1, 0), P),
        (headers(1) + window_frame(1, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
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
    assert 1 not in served.http2.streams
    assert served.receive(call(3)).events[-1] == (3, b"")


def test_headers_may_go_on_in_continuation_frames_and_have_padding_and_priority():
    raw = block()
    served = Served().receive(
        frame(
            frames.HEADERS,
            frames.PADDED | frames.HAS_PRIORITY,
            1,
            b"\3" + bytes(5) + raw[:9] + bytes(3),
        ),
        frame(frames.CONTINUATION, 0, 1, raw[9:20]),
        frame(frames.CONTINUATION, frames.END_HEADERS, 1, raw[20:]),
    )
    assert served.stream().headers["te"] == "trailers"


def test_trailers_end_a_request():
    served = Served().receive(headers(1), message(1, b"abc", 0), headers(1, [("x-last", "1")], WHOLE))
    assert served.events == [(1, b"abc")]


def test_frames_of_unknown_kinds_and_priorities_are_ignored():
    served = Served().receive(frame(77, 255, 1, b"abc"), frame(frames.PRIORITY, 0, 9, bytes(5)), call(1))
    assert served.code is None and served.events == [(1, b"")]


def test_frames_for_a_stream_that_we_reset_are_ignored():
    served = Served().receive(headers(1, path("/test.Test/Talk")), window_frame(1, 0))
    served.receive(data(1, b"late"), headers(1, [("x", "1")], WHOLE), window_frame(1, 5))
    assert served.resets() == [(1, P)]
    assert served.code is None
    assert served.events == [(1, "ended")]


def test_frames_behind_an_answer_that_came_before_the_end_of_the_request_are_ignored():
    served = Served().receive(headers(1))
    served.http2.fail(served.stream(), 13, "no")
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
    served = Served().receive(headers(1, path("/test.Test/Talk"))).receive(reset_frame(1, frames.CANCEL))
    assert served.events == [(1, "begun"), (1, "ended")]
    assert served.http2.streams == {}
    assert served.sent() == []


def test_calls_above_the_limit_are_refused_and_the_others_go_on():
    served = Served(Limits(streams=2)).receive(headers(1), headers(3), headers(5))
    assert served.resets() == [(5, frames.REFUSED_STREAM)]
    served.receive(message(1, b"x"))
    served.answer(1)
    assert list(served.receive(headers(7)).http2.streams) == [3, 7]


@pytest.mark.parametrize(("table_bytes", "size"), [(4095, 68), (4096, 3), (65_536, 3)])
def test_only_a_peer_with_a_smaller_table_gets_whole_headers(table_bytes, size):
    served = Served().receive(settings_frame({frames.HEADER_TABLE_SIZE: table_bytes}))
    for stream_id in (1, 3):
        served.receive(call(stream_id)).answer(stream_id)
    assert [len(payload) for kind, *_, payload in served.sent() if kind == "headers"][2] == size


def test_a_refused_header_block_still_counts_for_the_table():
    encoder = hpack.Encoder()
    first = encoder.encode(CALL)
    refused, again = [encoder.encode(path("/test.Test/Echo", ("x-new", "value"))) for _ in range(2)]
    assert len(again) < len(refused)
    served = Served(Limits(streams=1))
    served.receive(frame(frames.HEADERS, 4, 1, first), message(1, b""), frame(frames.HEADERS, WHOLE, 3, refused))
    assert served.resets() == [(3, frames.REFUSED_STREAM)]
    served.answer(1)
    served.receive(frame(frames.HEADERS, 4, 5, again))
    assert served.code is None
    assert served.stream(5).headers["x-new"] == "value"


def test_no_new_calls_while_too_many_answers_are_unsent():
    served = Served(Limits(unsent_bytes=1000)).receive(settings_frame({4: 0}), call(1))
    served.answer(1, bytes(1001))
    assert served.receive(headers(3)).resets() == [(3, frames.REFUSED_STREAM)]


def test_draining_refuses_new_calls_and_finishes_open_ones():
    served = Served().receive(headers(1))
    served.http2.drain()
    served.http2.drain()
    [(kind, _, _, payload)] = served.sent()
    assert kind == "goaway" and payload[:8] == b"\0\0\0\1\0\0\0\0"
    assert served.receive(headers(3)).resets() == [(3, frames.REFUSED_STREAM)]
    assert served.receive(message(1, b"x")).events == [(1, b"x")]


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
    served = Served().receive(headers(1, path("/test.Test/TalkLater")), data(1, b"\xff" + bytes(255), frames.PADDED))
    assert served.stream().receive_window == frames.FIRST_WINDOW - 256
    assert served.stream().held_bytes == 0


def test_more_data_than_the_window_of_the_connection_ends_it():
    """Padding counts, and a large chunk may have more of it than the window, before it is filled up again."""
    served = Served(Limits(streams=1_000)).receive(*map(headers, range(1, 601, 2)))
    chunk = [data(stream_id, bytes(16_384)) for stream_id in range(1, 601, 2)]
    assert served.receive(*chunk[:256]).code is None
    assert Served().receive(*map(headers, range(1, 601, 2)), *chunk[:257]).code == frames.FLOW_CONTROL_ERROR


def test_a_stream_gets_its_window_back_only_when_its_data_is_consumed():
    served = Served().receive(headers(1, path("/test.Test/Talk")), *[message(1, bytes(15_995), 0)] * 3)
    stream = served.stream()
    assert served.sent() == []
    assert served.http2.held_bytes == 48_000 + stream.kept_bytes
    assert [served.http2.next_message(stream) for _ in range(4)] == [bytes(15_995)] * 3 + [None]
    assert served.sent() == []
    served.http2.release(stream)
    [(kind, _, stream_id, payload)] = served.sent()
    assert (kind, stream_id, int.from_bytes(payload, "big")) == ("window", 1, 48_000)
    assert served.http2.held_bytes == stream.kept_bytes


def test_a_large_message_gets_the_window_that_it_needs():
    served = Served().receive(headers(1), data(1, b"\0" + (1_000_000).to_bytes(4, "big") + bytes(995)))
    [(kind, _, _, payload)] = served.sent()
    assert kind == "window"
    assert served.stream().receive_window == 1_000_005 - 1000
    assert int.from_bytes(payload, "big") == 1_000_005 - frames.FIRST_WINDOW


def test_held_bytes_are_forgotten_with_their_stream():
    served = Served().receive(headers(1, path("/test.Test/Talk")), message(1, bytes(1000), 0))
    stream = served.stream()
    assert served.http2.next_message(stream) == bytes(1000)
    served.receive(reset_frame(1, 8))
    served.http2.keep(stream, 1000)
    served.http2.release(stream)
    assert served.http2.held_bytes == 0
    served.receive(headers(3), data(3, bytes(1000)))
    served.http2.end()
    assert served.http2.held_bytes == 0 and served.http2.streams == {}


def test_a_first_window_of_the_peer_holds_for_open_and_new_streams():
    served = Served().receive(call(1), settings_frame({4: 10}), call(3))
    assert [stream.send_window for stream in served.http2.streams.values()] == [10, 10]


# Floods -------------------------------------------------------------------------------------------------------------

FLOODS = {
    "pings": lambda at: frame(frames.PING, 0, 0, bytes(8)),
    "settings": lambda at: settings_frame({}),
    "windows": lambda at: window_frame(0, 1),
    "priorities": lambda at: frame(frames.PRIORITY, 0, 1, bytes(5)),
    "unknown": lambda at: frame(99, 0, 0, b""),
    "rapid resets": lambda at: headers(2 * at + 3) + reset_frame(2 * at + 3, 8),
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
        served.receive(call(stream_id)).answer(stream_id)
        served.receive(*[window_frame(0, 1)] * EARNED_BY_FRAME)
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


def test_a_chunk_is_handled_in_parts():
    served = Served().receive(*[call(stream_id) for stream_id in range(1, 101, 2)], most=8)
    assert served.http2.has_more and not served.http2.is_partial
    assert served.events == [(stream_id, b"") for stream_id in (1, 3, 5, 7)]
    served.receive(call(101), most=2)  # keeps its place behind the others
    assert served.events[4:] == [(9, b"")]
    served.receive()
    assert not served.http2.has_more
    assert [stream_id for stream_id, _ in served.events] == list(range(1, 102, 2))


def test_a_large_frame_counts_as_many():
    large = [*CALL, ("a", "x" * 8_000)]
    served = Served().receive(*[headers(stream_id, large) for stream_id in range(1, 9, 2)], most=2)
    assert list(served.http2.streams) == [1]
    assert list(served.receive(most=2).http2.streams) == [1, 3]


def test_a_new_connection_announces_its_limits():
    http2 = Http2({}, Limits(streams=7, header_list_bytes=900).of_connection)
    kind, _, _, payload = split(http2.take())[0]
    assert kind == "settings"
    assert settings_in(payload) == {frames.MAX_CONCURRENT_STREAMS: 7, frames.MAX_HEADER_LIST_SIZE: 900}


# Headers of requests ------------------------------------------------------------------------------------------------


def without(name):
    return [pair for pair in CALL if pair[0] != name]


def test_a_request_is_read():
    more = [("x-a", "1"), ("x-a", "2"), ("content-length", "12"), ("x-b", "é")]
    stream = Served().receive(headers(1, [*CALL, *more])).stream()
    assert (stream.method, stream.path, stream.authority) == ("POST", "/test.Test/Echo", "here")
    assert stream.headers["x-a"] == "2"
    assert stream.headers["x-b"] == "é".encode().decode("latin-1")
    assert stream.body_bytes == 12
    assert stream.list_bytes == sum(len(name) + len(value.encode()) + 32 for name, value in [*CALL, *more])


@pytest.mark.parametrize(
    "pairs",
    [
        without(":method"),
        without(":path"),
        without(":scheme"),
        [(name, "" if name == ":path" else value) for name, value in CALL],
        [*CALL, (":path", "/other")],
        [*CALL[:1], *CALL],
        [(":status", "200"), *CALL],
        [*CALL, ("X-Upper", "1")],
        [*CALL, ("", "1")],
        [*CALL, ("a b", "1")],
        [*CALL, ("connection", "close")],
        [*CALL, ("transfer-encoding", "chunked")],
        [*CALL, ("te", "gzip")],
        [*CALL, ("x", "a\nb")],
        [*CALL, ("x", "a\rb")],
        [*CALL, ("x", "a\0b")],
        [*CALL, ("content-length", "-1")],
        [*CALL, ("content-length", "1,1")],
        [*CALL, ("content-length", "1"), ("content-length", "1")],
        [*CALL, ("content-length", "²")],
    ],
)
def test_wrong_headers_are_refused_each_time(pairs):
    """Also when they come out of the table."""
    encoder = hpack.Encoder()
    served = Served()
    for stream_id in (1, 3):
        served.receive(frame(frames.HEADERS, frames.END_HEADERS, stream_id, encoder.encode(pairs)))
        assert served.resets() == [(stream_id, P)]


def test_headers_above_the_limit_are_counted_and_not_kept():
    served = Served(Limits(header_list_bytes=500))
    stream = served.receive(headers(1, [*CALL, ("x-a", "1"), ("x-b", "x" * 1000), ("x-c", "1")])).stream()
    assert stream.list_bytes > 1300 and stream.status == 431
    assert "x-a" in stream.headers and "x-b" not in stream.headers and "x-c" not in stream.headers
    assert served.receive(headers(3, [*CALL, ("x-b", "x" * 1000), ("X", "1")])).resets() == [(3, P)]


# Messages and time limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 20))
def test_messages_come_back_however_they_are_cut(size):
    messages = [b"", b"a", b"bc" * 9, b"", bytes(50)]
    raw = b"".join(b"\0" + len(each).to_bytes(4, "big") + each for each in messages)
    served = Served().receive(headers(1, path("/test.Test/Talk")))
    found = []
    for at in range(0, len(raw), size):
        served.receive(data(1, raw[at : at + size]))
        while (each := served.http2.next_message(served.stream())) is not None:
            found.append(each)
            served.http2.release(served.stream())
    assert found == messages
    assert served.stream().held_bytes == 0


def test_a_unary_message_may_come_in_pieces():
    raw = b"\0\0\0\0\5hello"
    served = Served().receive(headers(1), *[data(1, raw[at : at + 1]) for at in range(9)])
    assert served.events == []
    assert served.receive(data(1, raw[9:], END)).events == [(1, b"hello")]


def status(served):
    """The status of a call that was just refused."""
    [text] = [payload for kind, _, _, payload in served.sent() if kind == "headers"]
    return int(headers_in(text)["grpc-status"])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 13),
        (b"\0\0\0\0", 13),
        (b"\0\0\0\0\1", 13),
        (b"\0\0\0\0\0\0", 13),
        (b"\1\0\0\0\0", 13),
        (b"\2\0\0\0\0", 13),
        (b"\0\0\0\x03\xe9", 8),
        (b"\0\xff\xff\xff\xff", 8),
    ],
)
def test_a_request_that_is_not_one_message_gets_a_status(body, code):
    served = Served(Limits(message_bytes=1000)).receive(headers(1), data(1, body, END))
    assert served.events == [] and served.http2.streams == {}
    assert status(served) == code


@pytest.mark.parametrize(("prefix", "code"), [(b"\0\0\0\x03\xe9", 8), (b"\1\0\0\0\0", 13)])
def test_a_wrong_message_of_a_stream_is_refused(prefix, code):
    served = Served(Limits(message_bytes=1000)).receive(headers(1, path("/test.Test/Talk")))
    stream = served.stream()
    served.receive(data(1, prefix))
    if code == 8:
        assert stream.is_closed and status(served) == code
        return
    with pytest.raises(GrpcError) as caught:
        served.http2.next_message(stream)
    assert caught.value.code == code


def test_a_message_that_is_too_large_behind_another_one_waits_for_its_turn():
    served = Served(Limits(message_bytes=1000)).receive(headers(1, path("/test.Test/Talk")))
    served.receive(message(1, b"x", 0) + data(1, b"\0\0\0\x03\xe9"))
    assert served.http2.next_message(served.stream()) == b"x"
    assert served.http2.unfinished() == [served.stream()]
    with pytest.raises(GrpcError):
        served.http2.next_message(served.stream())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1H", 3600.0), ("2M", 120.0), ("3S", 3.0), ("250m", 0.25), ("5u", 5e-6), ("99999999n", 0.099999999)],
)
def test_time_limits_have_their_units(text, expected):
    served = Served().receive(headers(1, path("/test.Test/Echo", ("grpc-timeout", text))))
    assert served.stream().deadline - 100.0 == pytest.approx(expected)
    assert served.http2.due == served.stream().deadline


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "-1S", "1.5S", "999999999S", "²S"])
def test_a_wrong_time_limit_is_refused(text):
    assert status(Served().receive(headers(1, path("/test.Test/Echo", ("grpc-timeout", text))))) == 13


def test_calls_end_at_their_time_limits():
    served = Served()
    for stream_id, name, limit in ((1, "Talk", "3S"), (3, "Echo", "1S"), (5, "Talk", "2S"), (7, "Talk", "")):
        served.receive(headers(stream_id, path(f"/test.Test/{name}", *[("grpc-timeout", limit)] * bool(limit))))
    assert served.http2.due == 101.0
    assert served.http2.overdue(100.5) == [] and served.http2.due == 101.0
    assert [stream.stream_id for stream in served.http2.overdue(102.0)] == [5]  # nobody knows of 3 yet
    assert list(served.http2.streams) == [1, 7] and served.http2.due == 103.0
    assert [stream.stream_id for stream in served.http2.overdue(103.0)] == [1] and served.http2.due == 0.0


def test_a_thousand_calls_do_not_end_at_once():
    served = Served()
    for stream_id in range(1, 401, 2):
        served.receive(headers(stream_id, path("/test.Test/Talk", ("grpc-timeout", "1S"))))
    ended = 0
    while served.http2.due:
        ended_now = len(served.http2.overdue(102.0))
        assert ended_now <= 64
        ended += ended_now
    assert ended == 200
