"""The body of a batch: several messages of one topic end to end; kernel/batches.py has its layout."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.kernel import batches as kernel
from sparrowmq.kernel.batch_layout import HEAD_BYTES, MAX_COUNT
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties

_HEAD: Final = struct.Struct(">iiiii")
_SHORT: Final = struct.Struct(">h")
_FIXED_BYTES: Final = HEAD_BYTES + 2
_PLACE: Final = struct.Struct(">qqqq")


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
    for body_at, body_end, end, flag in _PLACE.iter_unpack(found):
        parts.append(BatchPart(view[body_at:body_end], view[body_end + 2 : end], flag))
    return parts


def places(batch: bytes) -> bytes:
    """The places of a batch's messages, PLACE_BYTES for each.

    There is no object for each message, because a broker gets hundreds of them at once.

    Raises: RemoteProtocolError, sizes contradict each other, or there are no messages or too many.
    """
    try:
        return kernel.find_places(batch)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from None


def entries(shared: Entry, batch: bytes, places: bytes) -> list[Entry]:
    """The messages at some `places` as single entries. All but body, properties and flag is as in `shared`."""
    return [
        Entry(
            shared.topic,
            shared.queue_id,
            batch[body_at:body_end],
            Properties.decode(batch[body_end + 2 : end]),
            shared.born_timestamp_ms,
            shared.born_host,
            flag,
            shared.sys_flag,
        )
        for body_at, body_end, end, flag in _PLACE.iter_unpack(places)
    ]
