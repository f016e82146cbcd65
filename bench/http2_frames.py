"""The frames of HTTP/2 that clients send, for benchmarks and tests."""

from __future__ import annotations

import struct

from sparrowmq.kernel import frame_layout as layout

_SETTING = struct.Struct(">HI")


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream_id) + payload


def settings_frame(settings: dict[int, int]) -> bytes:
    return frame(layout.SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings.items()))


def settings_in(payload: bytes) -> dict[int, int]:
    """Return the settings of a SETTINGS frame."""
    return dict(_SETTING.iter_unpack(payload))


def reset_frame(stream_id: int, code: int) -> bytes:
    return frame(layout.RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def window_frame(stream_id: int, increment: int) -> bytes:
    return frame(layout.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))
