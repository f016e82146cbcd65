"""The limits that a server announces and keeps."""

from __future__ import annotations

from sparrowmq.http2 import frames
from sparrowmq.http2.connection import Connection
from sparrowmq.http2.limits import Limits
from tests.http2.peer_frames import Record, split


def test_a_new_connection_announces_its_limits():
    connection = Connection(Record(), Limits(streams=7, header_list_bytes=900), lambda: 0.0)
    kind, _, _, payload = split(connection.output.pieces[0])[0]
    assert kind == "settings"
    assert frames.settings_in(payload) == {frames.MAX_CONCURRENT_STREAMS: 7, frames.MAX_HEADER_LIST_SIZE: 900}
