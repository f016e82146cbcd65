"""The body of a batch: several messages of one topic laid end to end.

    0   total size   int32
    4   magic        int32, 0
    8   body CRC     int32, 0
    12  flag         int32
    16  body         int32 + n
        properties   int16 + n, as in properties.py

It is the body of SEND_BATCH_MESSAGE, and of SEND_MESSAGE with `batch` set (C++ sends that one). A broker stores each
message as a record of its own, at consecutive queue offsets. Source: MessageDecoder.encodeMessage, Java 4.9.8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.protocol.messages import properties

# Java counts no messages, and its sample that cuts a megabyte off (SplitBatchProducer) has 14,000 of them. This many
# keep a broker's loop for 0.2 s.
MAX_COUNT = 32_768
_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_FIXED_BYTES = _HEAD.size + _SHORT.size


class BatchPart(NamedTuple):
    """One message of a batch; both texts are views into the batch when it was decoded."""

    body: bytes | bytearray | memoryview
    properties: bytes | bytearray | memoryview
    flag: int = 0


def encode(parts: Iterable[BatchPart]) -> bytes:
    """The body of a batch.

    Raises:
        InvalidMessage: no message, too many of them, or properties that are too long.
    """
    chunks: list[bytes | bytearray | memoryview] = []
    for body, props, flag in parts:
        properties.check_size(len(props))
        chunks.append(_HEAD.pack(_FIXED_BYTES + len(body) + len(props), 0, 0, flag, len(body)))
        chunks += (body, _SHORT.pack(len(props)), props)
    if not 0 < len(chunks) <= 4 * MAX_COUNT:
        raise InvalidMessage(
            f"a batch holds 1 to {MAX_COUNT} messages, not {len(chunks) // 4}; send several batches"
        )
    return b"".join(chunks)


def decode(batch: bytes | bytearray | memoryview) -> list[BatchPart]:
    """The messages of a batch, uncopied.

    Raises:
        RemoteProtocolError: sizes contradict each other, or there are none or too many messages.
    """
    view, position = memoryview(batch), 0
    parts: list[BatchPart] = []
    try:
        while position < len(view) and len(parts) <= MAX_COUNT:
            total, _, _, flag, body_bytes = _HEAD.unpack_from(view, position)
            body_end = position + _HEAD.size + body_bytes
            if body_bytes < 0:
                raise RemoteProtocolError(
                    f"message {len(parts)} of the batch has a body of {body_bytes} bytes"
                )
            (props_bytes,) = _SHORT.unpack_from(view, body_end)
            end = body_end + _SHORT.size + props_bytes
            if props_bytes < 0 or end != position + total or end > len(view):
                raise RemoteProtocolError(
                    f"message {len(parts)} of the batch has sizes that contradict each other"
                )
            body = view[position + _HEAD.size : body_end]
            parts.append(BatchPart(body, view[body_end + _SHORT.size : end], flag))
            position = end
    except struct.error:
        raise RemoteProtocolError(f"message {len(parts)} of the batch is cut off") from None
    if not 0 < len(parts) <= MAX_COUNT:
        raise RemoteProtocolError(
            f"a batch holds 1 to {MAX_COUNT} messages; this one has {len(parts) or 'none'}"
        )
    return parts
