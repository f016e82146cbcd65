"""Frames: the whole ones in a chunk of a connection. protocol/wire/frame.py has the layout, and joins chunks."""

from __future__ import annotations

from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.lanes import Sender

_LENGTHS_BYTES = 8
_HEADER_LENGTH_MASK = 0xFFFFFF
_COST_OF_BINARY = 4
NEEDS_MORE, HAS_MORE, REFUSED = range(3)


def cut(
    chunk: bytes, limits: tuple[int, int, int, int], sender: Sender | None
) -> tuple[list[tuple[int, bytes, bytes]], int, int]:
    """Cut the whole frames from a chunk: serialiser, header and body of each.

    Args:
        limits: the most bytes of a frame, and of a header; the most frames, and bytes of headers, at once.
        sender: takes plain frames before the first that it does not take.
    Returns: the frames, the place of the first byte behind them, and why it ends there: `NEEDS_MORE`, the next frame is
        not whole; `HAS_MORE`, these are enough at once; `REFUSED`, the lengths there are no frame's.
    """
    max_frame, max_header, max_frames, max_headers = limits
    source, at, size = In(chunk), 0, len(chunk)
    frames: list[tuple[int, bytes, bytes]] = []
    header_total = 0
    while size - at >= _LENGTHS_BYTES:
        total = source.i32(at)
        header_bytes = source.i32(at + 4) & _HEADER_LENGTH_MASK
        if total < 4 or total > max_frame or header_bytes > total - 4 or header_bytes > max_header:
            return frames, at, REFUSED
        if total > size - at - 4:
            break
        end, body_at = at + 4 + total, at + _LENGTHS_BYTES + header_bytes
        serializer = source.u8(at + 4)
        if sender is not None:
            if serializer == 0 and sender.take(source, at + _LENGTHS_BYTES, body_at, end):
                at = end
                continue
            sender = None
        header_total += header_bytes if serializer == 0 else _COST_OF_BINARY * header_bytes
        if len(frames) > 0 and (len(frames) == max_frames or header_total > max_headers):
            return frames, at, HAS_MORE
        frames.append((serializer, source.slice(at + _LENGTHS_BYTES, body_at), source.slice(body_at, end)))
        at = end
    return frames, at, NEEDS_MORE
