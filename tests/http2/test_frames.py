"""The bytes of frames."""

from __future__ import annotations

import pytest

from sparrowmq.http2 import frames
from sparrowmq.http2.frames import ConnectionFault
from tests.http2.peer_frames import split


def test_frames_have_their_layout():
    assert frames.frame(frames.DATA, frames.END_STREAM, 5, b"abc") == b"\0\0\3\0\1\0\0\0\5abc"
    assert frames.reset_frame(3, 8) == b"\0\0\4\3\0\0\0\0\3\0\0\0\x08"
    assert frames.window_frame(1, 65535) == b"\0\0\4\x08\0\0\0\0\1\0\0\xff\xff"
    assert frames.goaway_frame(7, 2, "why") == b"\0\0\x0b\7\0\0\0\0\0\0\0\0\7\0\0\0\2why"


def test_settings_come_back():
    settings = {frames.INITIAL_WINDOW_SIZE: 1, frames.MAX_CONCURRENT_STREAMS: 2**32 - 1}
    [(kind, flags, stream_id, payload)] = split(frames.settings_frame(settings))
    assert (kind, flags, stream_id) == ("settings", 0, 0)
    assert frames.settings_in(payload) == settings


def test_a_large_header_block_goes_on_in_continuation_frames():
    block = bytes(range(256)) * 10
    found = split(frames.header_frames(9, block, True, 1000))
    assert [(kind, flags) for kind, flags, _, _ in found] == [
        ("headers", frames.END_STREAM),
        ("continuation", 0),
        ("continuation", frames.END_HEADERS),
    ]
    assert b"".join(payload for *_, payload in found) == block
    [(kind, flags, _, _)] = split(frames.header_frames(9, block, False, len(block)))
    assert (kind, flags) == ("headers", frames.END_HEADERS)


def test_padding_is_removed():
    assert frames.without_padding(b"\2abc\0\0", frames.PADDED) == b"abc"
    assert frames.without_padding(b"\0", frames.PADDED) == b""
    assert frames.without_padding(b"\2abc", 0) == b"\2abc"


@pytest.mark.parametrize("payload", [b"", b"\1", b"\4abc"])
def test_padding_longer_than_its_frame_is_a_fault(payload):
    with pytest.raises(ConnectionFault) as caught:
        frames.without_padding(payload, frames.PADDED)
    assert caught.value.code == frames.PROTOCOL_ERROR


def test_the_reserved_bit_is_ignored():
    assert frames.word(b"\x80\0\0\1") == 1
