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
from typing import TYPE_CHECKING, Final, NamedTuple

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_le, write_i64_le

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

# Java has no limit, and its sample SplitBatchProducer sends 14,000 messages in 1 MB. A broker stores large batches in
# parts.
MAX_COUNT: Final = 32_768
PLACE_BYTES: Final = 32  # see `places`
BODY_END_AT: Final = 8
END_AT: Final = 16
FLAG_AT: Final = 24
_HEAD: Final = struct.Struct(">iiiii")
_HEAD_BYTES: Final = 20
_SHORT: Final = struct.Struct(">h")
_FIXED_BYTES: Final = _HEAD_BYTES + 2
_PLACE: Final = struct.Struct("<qqqq")


class BatchPart(NamedTuple):
    """One message of a batch. After decoding, body and properties are views into the batch."""

    body: bytes | bytearray | memoryview
    properties: bytes | bytearray | memoryview
    flag: int = 0


def encode(parts: Iterable[BatchPart]) -> bytes:
    """Encode the body of a batch.

    Raises: InvalidMessage, there is no message, there are too many, or properties are too long.
    """
    chunks: list[bytes | bytearray | memoryview] = []
    for body, props, flag in parts:
        properties.check_size(len(props))
        chunks.append(_HEAD.pack(_FIXED_BYTES + len(body) + len(props), 0, 0, flag, len(body)))
        chunks += (body, _SHORT.pack(len(props)), props)
    if not 0 < len(chunks) <= 4 * MAX_COUNT:
        raise InvalidMessage(f"a batch holds 1 to {MAX_COUNT} messages, not {len(chunks) // 4}; send several batches")
    return b"".join(chunks)


def decode(batch: bytes | bytearray | memoryview) -> list[BatchPart]:
    """Decode the messages of a batch, without copies. Raises: RemoteProtocolError, as `places`."""
    view, parts = memoryview(batch), []
    found = places(batch if isinstance(batch, bytes) else bytes(batch))
    for at in range(0, len(found), PLACE_BYTES):
        body_at, body_end, end, flag = _PLACE.unpack_from(found, at)
        parts.append(BatchPart(view[body_at:body_end], view[body_end + 2 : end], flag))
    return parts


def places(batch: bytes) -> bytes:
    """The places of a batch's messages, PLACE_BYTES for each: four int64, little endian.

    They are the begin and the end of its body, the end of its properties, which begin two bytes after the body, and its
    flag. There is no object for each message, because a broker gets hundreds of them at once.

    Raises: RemoteProtocolError, sizes contradict each other, or there are no messages or too many.
    """
    found = BytesWriter()
    end: i64 = len(batch)
    position: i64 = 0
    count: i64 = 0
    while position < end and count <= MAX_COUNT:
        if end - position < _HEAD_BYTES:
            raise RemoteProtocolError(f"message {count} of the batch is cut off")
        body_size: int = read_i32_be(batch, position + 16)
        if body_size < 0:
            raise RemoteProtocolError(f"message {count} of the batch has a body of {body_size} bytes")
        body_end: i64 = position + _HEAD_BYTES + body_size
        if body_end + 2 > end:
            raise RemoteProtocolError(f"message {count} of the batch is cut off")
        props_size: int = read_i16_be(batch, body_end)
        following: i64 = body_end + 2 + props_size
        total: int = read_i32_be(batch, position)
        if props_size < 0 or following != position + total or following > end:
            raise RemoteProtocolError(f"message {count} of the batch has sizes that contradict each other")
        write_i64_le(found, position + _HEAD_BYTES)
        write_i64_le(found, body_end)
        write_i64_le(found, following)
        flag: int = read_i32_be(batch, position + 12)
        write_i64_le(found, flag)
        position = following
        count += 1
    if not 0 < count <= MAX_COUNT:
        raise RemoteProtocolError(f"a batch holds 1 to {MAX_COUNT} messages; this one has {count or 'none'}")
    return found.getvalue()


def property_bytes(places: bytes, begin: i64, end: i64) -> int:
    """The bytes that the properties of the messages at `places[begin:end]` have together."""
    found: i64 = 0
    at: i64 = begin
    while at < end:
        found += read_i64_le(places, at + END_AT) - read_i64_le(places, at + BODY_END_AT) - 2
        at += PLACE_BYTES
    return found


def entries(shared: Entry, batch: bytes, places: bytes) -> list[Entry]:
    """The messages at some `places` as single entries. All but body, properties and flag is as in `shared`."""
    found: list[Entry] = []
    for at in range(0, len(places), PLACE_BYTES):
        body_end: int = read_i64_le(places, at + BODY_END_AT)
        end: int = read_i64_le(places, at + END_AT)
        found.append(
            Entry(
                shared.topic,
                shared.queue_id,
                batch[read_i64_le(places, at) : body_end],
                Properties.decode(batch[body_end + 2 : end]),
                shared.born_timestamp_ms,
                shared.born_host,
                read_i64_le(places, at + FLAG_AT),
                shared.sys_flag,
            )
        )
    return found
