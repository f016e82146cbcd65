"""The frames of HTTP/2: their kinds, flags and errors, and the bytes of those that a server sends.

    0        3      4       5            9
    +--------+------+-------+------------+- - - - - -+
    | length | kind | flags | stream     | payload   |
    +--------+------+-------+------------+- - - - - -+

Source: RFC 9113, sections 4, 6 and 7.
"""

from __future__ import annotations

import struct
from typing import Final

from sparrowmq.kernel.frame_layout import ConnectionFault as ConnectionFault
from sparrowmq.kernel.frame_layout import StreamFault as StreamFault

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
LARGEST_FRAME: Final = 16_384  # that we take, and the most that a peer takes unless its settings say more
LARGEST_WINDOW: Final = 2**31 - 1
FIRST_WINDOW: Final = 65_535  # of a connection and of a stream, until settings say otherwise

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
SETTINGS_TIMEOUT: Final = 4
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

_HEAD: Final = struct.Struct(">IBI")  # the length and the kind share four bytes
_WORD: Final = struct.Struct(">I")
_TWO_WORDS: Final = struct.Struct(">II")
_SETTING: Final = struct.Struct(">HI")


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def header_frames(stream_id: int, block: bytes, is_end: bool, largest: int) -> bytes:
    """Return a header block as HEADERS, and as CONTINUATION what does not fit into one frame."""
    flags = END_STREAM if is_end else 0
    if len(block) <= largest:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    pieces = [frame(HEADERS, flags, stream_id, block[:largest])]
    for at in range(largest, len(block), largest):
        is_last = at + largest >= len(block)
        pieces.append(frame(CONTINUATION, END_HEADERS if is_last else 0, stream_id, block[at : at + largest]))
    return b"".join(pieces)


def settings_frame(settings: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in settings.items()))


def settings_in(payload: bytes) -> dict[int, int]:
    """Return the settings of a SETTINGS frame. The last value of a name counts."""
    return dict(_SETTING.iter_unpack(payload))


def reset_frame(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _WORD.pack(code))


def goaway_frame(last_stream_id: int, code: int, why: str = "") -> bytes:
    """Return GOAWAY. Streams above `last_stream_id` were not handled."""
    return frame(GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream_id, code) + why.encode())


def window_frame(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def word(payload: bytes) -> int:
    return int.from_bytes(payload[:4], "big") & 0x7FFFFFFF


def without_padding(payload: bytes, flags: int) -> bytes:
    """Return a payload without its padding. Raises: ConnectionFault, the padding is longer than the payload."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "the padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
