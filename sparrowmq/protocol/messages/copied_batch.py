"""The body of COPY_BATCH: a batch whose messages have their own born times, and may be compressed.

0       count        int32
4       by message   born time int64, sysFlag int32
...     messages     as in batch.py
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel.batch_layout import MAX_COUNT, PLACE_BYTES
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import SysFlag

# Of a copy's flags only these count: they say how its body is stored.
_COUNT: Final = struct.Struct(">i")
_OWN: Final = struct.Struct(">qi")


class Copy(NamedTuple):
    born_ms: int
    sys_flag: int
    part: BatchPart


def encode(copies: Sequence[Copy]) -> bytes:
    """Encode the body. Raises: InvalidMessage, as `batch.encode`."""
    own = b"".join([_OWN.pack(copy.born_ms, copy.sys_flag & SysFlag.OF_BODY) for copy in copies])
    return _COUNT.pack(len(copies)) + own + batch.encode(copy.part for copy in copies)


def entries(shared: Entry, content: bytes, count: int = MAX_COUNT) -> Iterator[list[Entry]]:
    """The messages as entries, `count` at a time. All but body, properties, flags and born time is as in `shared`.

    Raises: RemoteProtocolError, sizes contradict each other, or there are no messages or too many.
    """
    own, messages = _divided(content)
    places = batch.places(messages)
    found, size = len(places) // PLACE_BYTES, _OWN.size
    if found * size != len(own):
        raise RemoteProtocolError(f"{found} copies have {len(own) // size} born times")
    for begin in range(0, found, count):
        end = begin + count
        few = batch.entries(shared, messages, places[begin * PLACE_BYTES : end * PLACE_BYTES])
        for entry, (born_ms, sys_flag) in zip(few, _OWN.iter_unpack(own[begin * size : end * size]), strict=True):
            entry.born_timestamp_ms, entry.sys_flag = born_ms, sys_flag & SysFlag.OF_BODY
        yield few


def _divided(content: bytes) -> tuple[bytes, bytes]:
    if len(content) < _COUNT.size:
        raise RemoteProtocolError("the batch of copies is cut off")
    count = _COUNT.unpack_from(content)[0]
    end = _COUNT.size + count * _OWN.size
    if not 0 < count <= MAX_COUNT or end > len(content):
        raise RemoteProtocolError(f"a batch of {len(content)} bytes cannot hold {count} copies")
    return content[_COUNT.size : end], content[end:]
