"""Requests that are no gRPC calls."""

from __future__ import annotations

import pytest

from sparrowmq.kernel import frame_layout as frames
from tests.http2.peer_frames import CALL, connected, data, headers


@pytest.mark.parametrize(
    ("pairs", "status"),
    [
        ([(name, "GET" if name == ":method" else value) for name, value in CALL], "405"),
        ([(name, "text/plain" if name == "content-type" else value) for name, value in CALL], "415"),
        ([*CALL, ("x-large", "x" * 16_200)], "431"),
    ],
)
async def test_what_is_no_call_gets_a_status_and_a_reason_when_it_has_ended(server, pairs, status):
    async with connected(server.port) as peer:
        peer.send(headers(1, pairs), data(1, bytes(16_000)) * 6)
        assert (await peer.until("window", 1))[2] == 1  # its body is read, and not kept
        peer.send(data(1, bytes(16_000), frames.END_STREAM))
        assert (await peer.until("headers", 1))[3][":status"] == status
        _, _, _, text = await peer.until("data", 1)
        assert text.endswith(b"\n")
        assert (await peer.until("headers", 1))[3]["grpc-status"] == "13"
        assert all(session.http2.held_bytes == 0 for session in server.sessions)
