"""A stream before anything has happened."""

from __future__ import annotations

from sparrowmq.http2 import stream_states as states
from sparrowmq.http2.frames import FIRST_WINDOW
from sparrowmq.http2.streams import Stream


def test_a_new_stream_is_idle_and_has_the_windows_of_its_connection():
    stream = Stream(5, 100)
    assert (stream.receive_window, stream.send_window) == (FIRST_WINDOW, 100)
    assert not stream.is_closed and not stream.has_peer_ended


def test_a_stream_knows_who_has_ended():
    stream = Stream(5, 100)
    stream.state = states.PEER_ENDED
    assert stream.has_peer_ended and not stream.is_closed
    stream.state = states.WE_ENDED
    assert not stream.has_peer_ended
    stream.state = states.CLOSED
    assert stream.has_peer_ended and stream.is_closed
