"""Length-prefixed frames, whatever pieces they arrive in."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.wire.frame import FrameLimits, FrameReader, Serializer, lengths


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    return lengths(serializer, len(header), len(body)) + header + body


def test_the_prefix_counts_header_length_header_and_body() -> None:
    assert frame(b"{}", b"abc") == bytes.fromhex("00000009 00000002") + b"{}abc"


def test_the_serializer_stands_in_the_top_byte_of_the_header_length() -> None:
    assert FrameReader().feed(frame(b"hh", b"b", Serializer.ROCKETMQ)) == [(1, b"hh", b"b")]


def test_many_frames_in_one_chunk_come_in_order() -> None:
    chunk = b"".join(frame(b"h%d" % number, b"b" * number) for number in range(20))
    assert FrameReader().feed(chunk) == [(0, b"h%d" % number, b"b" * number) for number in range(20)]


def test_a_frame_byte_by_byte_comes_with_its_last_byte() -> None:
    reader, stream = FrameReader(), frame(b'{"code":1}', b"body") * 2
    found = [got for position in range(len(stream)) for got in reader.feed(stream[position : position + 1])]
    assert found == [(0, b'{"code":1}', b"body")] * 2
    assert reader.pending_bytes == 0


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=300)), max_size=8),
    st.lists(st.integers(1, 64), min_size=1, max_size=50),
)
def test_any_split_gives_the_same_frames(parts: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    stream = b"".join(frame(header, body) for header, body in parts)
    reader, found, position, turn = FrameReader(), [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        found += reader.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert found == [(0, header, body) for header, body in parts]


BAD = [
    (struct.pack(">i", -5), "negative frame length -5"),
    (struct.pack(">ii", -1, 4), "negative frame length"),
    (struct.pack(">ii", 3, 0), "no room for the header length"),
    (struct.pack(">ii", 0, 0), "no room"),
    (struct.pack(">ii", 17 * 1024 * 1024, 10), "at most 16777216"),
    (struct.pack(">i", 17 * 1024 * 1024), "at most 16777216"),
    (struct.pack(">ii", 20, 17), "header of 17 bytes in a frame of 20"),
    (struct.pack(">ii", 1024 * 1024, 512 * 1024), "header of 524288 bytes; at most"),
    (b"GET / HTTP/1.1\r\n\r\n", "at most 16777216"),
    (b"\x16\x03\x01\x02\x00\x01\x00", "at most 16777216"),
]


@pytest.mark.parametrize(("stream", "words"), BAD)
def test_a_broken_length_ends_the_stream_with_a_clear_error(stream: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        FrameReader().feed(stream)


@pytest.mark.parametrize(("stream", "words"), BAD)
def test_a_broken_length_byte_by_byte_is_seen_too(stream: bytes, words: str) -> None:
    reader = FrameReader()
    with pytest.raises(RemoteProtocolError):
        for position in range(len(stream)):
            reader.feed(stream[position : position + 1])


def test_limits_are_the_readers_own() -> None:
    with pytest.raises(RemoteProtocolError, match="at most 100"):
        FrameReader(FrameLimits(frame_bytes=100)).feed(frame(b"h" * 100, b"b"))


def test_a_large_frame_in_small_chunks_is_joined_once() -> None:
    reader, body = FrameReader(), bytes(1_000_000)
    stream = frame(b"{}", body)
    found = []
    for position in range(0, len(stream), 4096):
        found += reader.feed(stream[position : position + 4096])
    assert found == [(0, b"{}", body)]


@pytest.mark.parametrize("size", [7, 1000, 20_000, 300_000])
@pytest.mark.parametrize("header", [b"{}", b"h" * 200_000])
def test_large_frames_and_those_behind_them_come_whole_from_any_pieces(header: bytes, size: int) -> None:
    given = [(0, header, b"abc" * 50_000), (1, b"small", b""), (0, header, b"def" * 40_000), (0, header, b"")]
    stream = b"".join(frame(head, body, serializer) for serializer, head, body in given)
    reader = FrameReader()
    found = [got for at in range(0, len(stream), size) for got in reader.feed(stream[at : at + size])]
    assert found == given
    assert reader.pending_bytes == 0 and not reader.has_more


@pytest.mark.parametrize("size", [7, 20_000, 70_000, 300_000])
def test_what_a_large_frame_lacks_may_be_received_into_its_place(size: int) -> None:
    given = [(0, b"h" * 20, bytes(range(256)) * 600), (1, b"small", b"x"), (0, b"{}", b"def" * 40_000)]
    stream = b"".join(frame(head, body, serializer) for serializer, head, body in given)
    reader, found, at, filled = FrameReader(), [], 0, 0
    while at < len(stream):
        room = reader.room()
        if room is None:
            chunk = stream[at : at + size]
            found += reader.feed(chunk)
        else:
            assert len(room) == reader.frame_bytes - reader.pending_bytes
            chunk = stream[at : at + min(size, len(room))]
            room[: len(chunk)] = chunk
            room.release()
            found += reader.filled(len(chunk))
            filled += len(chunk)
        at += len(chunk)
    assert found == given
    assert reader.pending_bytes == 0 and reader.frame_bytes == 0 and reader.room() is None
    assert filled > 80_000 or size == 300_000, "a large frame was copied"


def test_more_than_the_room_is_never_taken() -> None:
    reader, stream = FrameReader(), frame(b"{}", bytes(40_000))
    with pytest.raises(ValueError, match="1 bytes are more than the room"):
        reader.filled(1)
    reader.feed(stream[:30_000])
    assert reader.room() is not None
    with pytest.raises(ValueError, match="room"):
        reader.filled(len(stream) - 30_000 + 1)


def test_a_large_frame_takes_its_memory_once() -> None:
    """Its last chunk would else copy all of it twice: 10 ms for 10 MB, in one step of the loop."""
    reader, stream, found = FrameReader(), frame(b"{}", bytes(8 << 20)), []
    tracemalloc.start()
    try:
        for at in range(0, len(stream), 1 << 18):
            found = reader.feed(stream[at : at + (1 << 18)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [(0, b"{}", bytes(8 << 20))]
    assert peak < 9 << 20


def test_a_large_frame_takes_no_memory_before_there_is_room_for_it() -> None:
    reader, stream = FrameReader(), frame(b"{}", bytes(8 << 20))
    tracemalloc.start()
    try:
        reader.feed(stream[: 1 << 14])
        reader.feed(stream[1 << 14 : 1 << 18])
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_so_many_frames_come_at_once_and_the_rest_with_the_next_feed() -> None:
    frames = [(0, b"h%d" % number, b"b" * number) for number in range(7)]
    stream = b"".join(frame(header, body) for _, header, body in frames)
    reader = FrameReader(FrameLimits(at_once=3))
    assert reader.feed(stream[:-2]) == frames[:3] and reader.has_more
    assert reader.feed(b"") == frames[3:6] and not reader.has_more
    assert reader.pending_bytes == len(frame(b"h6", b"b" * 6)) - 2
    assert reader.feed(stream[-2:]) == frames[6:] and reader.pending_bytes == 0


def test_so_many_bytes_of_headers_come_at_once_and_binary_ones_count_four_times() -> None:
    texts = [(0, b"h" * 30, b"")] * 4
    binaries = [(1, b"h" * 30, b"body")] * 2
    reader = FrameReader(FrameLimits(headers_at_once=100))
    assert reader.feed(b"".join(frame(header, body, kind) for kind, header, body in texts + binaries)) == texts[:3]
    assert reader.has_more and reader.feed(b"") == texts[3:]
    assert reader.feed(b"") == binaries[:1] and reader.has_more  # larger than the limit, but the first
    assert reader.feed(b"") == binaries[1:] and not reader.has_more


def test_bytes_that_come_while_frames_wait_are_kept_behind_them() -> None:
    frames = [(0, b"h%d" % number, b"") for number in range(4)]
    one, two, three, four = (frame(header) for _, header, _ in frames)
    reader = FrameReader(FrameLimits(at_once=1))
    assert reader.feed(one + two + three[:5]) == frames[:1]
    assert reader.feed(three[5:] + four) == frames[1:2]
    assert reader.feed(b"") + reader.feed(b"") == frames[2:] and not reader.has_more


def test_the_size_of_an_unfinished_frame_is_known() -> None:
    reader, stream = FrameReader(), frame(b"{}", bytes(1000))
    reader.feed(stream[:10])
    assert (reader.pending_bytes, reader.frame_bytes) == (10, len(stream))
    reader.feed(stream[10:300])
    assert (reader.pending_bytes, reader.frame_bytes) == (300, len(stream))


@pytest.mark.slow
def test_frames_in_tiny_pieces_cost_little_more_than_they_hold() -> None:
    reader, stream = FrameReader(), frame(b"{}", bytes(400_000))
    for _ in range(2):
        tracemalloc.start()
        for position in range(0, 400_000, 2):
            reader.feed(stream[position : position + 2])
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held_bytes < 600_000
        assert reader.feed(stream[400_000:]) == [(0, b"{}", bytes(400_000))]
