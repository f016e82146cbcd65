"""Length-prefixed frames: assemble whole frames from chunks of bytes, within limits.

    0        4        5            8                8+h
    +--------+--------+------------+----------------+------------------+
    | total  | serial | header len |     header     |       body       |
    | int32  |  int8  |   int24    |    h bytes     | total - 4 - h    |
    +--------+--------+------------+----------------+------------------+

`total` does not count itself. The serialiser is 0 for a JSON header and 1 for the ROCKETMQ binary header.
Source: NettyDecoder and RemotingCommand, Java 4.9.8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from io import SEEK_CUR, BytesIO
from typing import Final

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel.frames import HAS_MORE, REFUSED, cut
from sparrowmq.kernel.lanes import Sender


class Serializer(IntEnum):
    """The format of a frame's header."""

    JSON = 0
    ROCKETMQ = 1


Frame = tuple[int, bytes, bytes]  # serialiser, header, body

LARGE_FRAME_BYTES: Final = 16 * 1024  # a server has room for the whole of a larger frame before it reads more of it
_MOST_PIECES: Final = 1000
_LENGTHS: Final = struct.Struct(">ii")
_HEADER_LENGTH_BITS: Final = 24
_HEADER_LENGTH_MASK: Final = (1 << _HEADER_LENGTH_BITS) - 1


@dataclass(frozen=True)
class FrameLimits:
    """The limits of frames. A larger frame ends the connection.

    Attributes:
        frame_bytes: a whole frame after its length (Java: com.rocketmq.remoting.frameMaxLength, 16 MiB).
        header_bytes: the header alone. Java has no limit. 256 KiB have room for the longest legal properties (32,767
        bytes, each of them escaped as \\u0001).
        at_once: the most frames that one `feed` returns. `has_more` says whether there are more.
        headers_at_once: the most bytes of headers that one `feed` returns, unless the first one is larger. Binary ones
            count four times, as Python decodes their fields.
    """

    frame_bytes: int = 16 * 1024 * 1024
    header_bytes: int = 256 * 1024
    at_once: int = 1 << 30
    headers_at_once: int = 1 << 30


# Of answers: that to a batch names the id and the place of each of its messages, 80 bytes of 32,768.
ANSWER_LIMITS: Final = FrameLimits(header_bytes=4 * 1024 * 1024)


def lengths(serializer: int, header_bytes: int, body_bytes: int) -> bytes:
    """The bytes before the header of a frame."""
    return _LENGTHS.pack(4 + header_bytes + body_bytes, serializer << _HEADER_LENGTH_BITS | header_bytes)


class FrameReader:
    """Cuts a byte stream into frames.

    A list holds the chunks of an unfinished frame, joined once when the last one arrives. A thousand small chunks are
    joined earlier, because each costs about 50 extra bytes. The body of a large frame gets its memory once more than
    LARGE_FRAME_BYTES are there. Each further chunk is copied to its place, so the last one costs no more than others.

    Attributes:
        has_more: whole frames may wait for the next `feed`, even of no bytes.
        pending_bytes: the number of buffered bytes, of an unfinished frame or of waiting frames.
        frame_bytes: the size of the unfinished frame, as far as it is known.
    """

    __slots__ = (
        "_body",
        "_head",
        "_head_serializer",
        "_joined",
        "_limits",
        "_limits_of_cut",
        "_missing_bytes",
        "_parts",
        "has_more",
        "pending_bytes",
    )

    def __init__(self, limits: FrameLimits | None = None) -> None:
        self._limits = limits = limits or FrameLimits()
        self._limits_of_cut = limits.frame_bytes, limits.header_bytes, limits.at_once, limits.headers_at_once
        self._parts: list[bytes] = []
        self._joined = 0  # parts that are thousands of pieces each
        self._missing_bytes = 0
        self._body: BytesIO | None = None  # of a large frame, whose header is in `_head`
        self._head = b""
        self._head_serializer = 0
        self.has_more = False
        self.pending_bytes = 0

    @property
    def frame_bytes(self) -> int:
        return self.pending_bytes + self._missing_bytes

    def feed(self, chunk: bytes, sender: Sender | None = None) -> list[Frame]:
        """The frames that `chunk` completes, in order, without those that `sender` takes.

        Raises: RemoteProtocolError, a length is negative, contradictory or over the limits. The stream cannot go on.
        """
        if self._body is None and self.pending_bytes > LARGE_FRAME_BYTES and not self.has_more:
            self._begin_body()
        if self._body is not None:
            return self._fill(self._body, chunk)
        if self._parts:
            self._parts.append(chunk)
            self._missing_bytes -= len(chunk)
            self.pending_bytes += len(chunk)
            if self._missing_bytes > 0:
                if len(self._parts) - self._joined > _MOST_PIECES:
                    self._parts[self._joined :] = [b"".join(self._parts[self._joined :])]
                    self._joined += 1
                return []
            chunk = b"".join(self._parts)
            self._parts.clear()
            self._joined = 0
            self.pending_bytes = 0
        return self._cut(chunk, [], sender)

    def room(self) -> memoryview | None:
        """The place of the bytes that an unfinished large frame lacks; None without one.

        Who receives into it, with nothing fed in between, drops the view and calls `filled`. That saves a copy.
        """
        if self._body is None and self.pending_bytes > LARGE_FRAME_BYTES and not self.has_more:
            self._begin_body()
        return None if self._body is None else self._body.getbuffer()[self._body.tell() :]

    def filled(self, size_bytes: int) -> list[Frame]:
        """Take so many bytes of the `room` as received. Returns the frame, if it is complete now."""
        body = self._body
        if body is None or size_bytes > self._missing_bytes:
            raise ValueError(f"{size_bytes} bytes are more than the room that there was")
        body.seek(size_bytes, SEEK_CUR)
        if size_bytes < self._missing_bytes:
            self._missing_bytes -= size_bytes
            self.pending_bytes += size_bytes
            return []
        return [self._finished(body)]

    def _begin_body(self) -> None:
        """Take memory for the body of the unfinished frame, if its header is there."""
        total, tagged = _LENGTHS.unpack_from(self._parts[0])
        begin = 8 + (tagged & _HEADER_LENGTH_MASK)
        if begin > self.pending_bytes:
            return
        received = b"".join(self._parts)
        self._head_serializer = tagged >> _HEADER_LENGTH_BITS & 0xFF
        self._head = received[8:begin]
        # Nothing else has these bytes, so they are written in place, and `getvalue` returns them without a copy.
        self._body = BytesIO(bytes(4 + total - begin))
        self._body.write(received[begin:])
        self._parts.clear()
        self._joined = 0

    def _fill(self, body: BytesIO, chunk: bytes) -> list[Frame]:
        missing = self._missing_bytes
        if len(chunk) < missing:
            body.write(chunk)
            self._missing_bytes -= len(chunk)
            self.pending_bytes += len(chunk)
            return []
        body.write(memoryview(chunk)[:missing])
        return self._cut(chunk[missing:], [self._finished(body)])

    def _finished(self, body: BytesIO) -> Frame:
        frame = self._head_serializer, self._head, body.getvalue()
        self._body = None
        self._head = b""
        self.pending_bytes = self._missing_bytes = 0
        return frame

    def _cut(self, chunk: bytes, frames: list[Frame], sender: Sender | None = None) -> list[Frame]:
        more_frames, position, reason = cut(chunk, self._limits_of_cut, None if frames else sender)
        if reason == REFUSED:
            total, tagged = _LENGTHS.unpack_from(chunk, position)
            raise self._refusal(total, tagged & _HEADER_LENGTH_MASK)
        self.has_more = reason == HAS_MORE
        if position < len(chunk):
            self._keep(chunk[position:])
        return frames + more_frames if frames else more_frames

    def _keep(self, rest: bytes) -> None:
        self._parts.append(rest)
        self.pending_bytes = len(rest)
        if self.has_more:
            self._missing_bytes = 0
            return
        if len(rest) < 4:
            self._missing_bytes = 4 - len(rest)
            return
        total = int.from_bytes(rest[:4], "big", signed=True)
        if total > self._limits.frame_bytes or total < 4:
            raise self._refusal(total, 0)
        # Before its first eight bytes, ask only for those: the header length is checked before the rest arrives.
        self._missing_bytes = (4 + total if len(rest) >= 8 else 8) - len(rest)

    def _refusal(self, total: int, header_bytes: int) -> RemoteProtocolError:
        if total < 0:
            return RemoteProtocolError(f"negative frame length {total}")
        if total > self._limits.frame_bytes:
            return RemoteProtocolError(f"frame of {total} bytes; at most {self._limits.frame_bytes} are allowed")
        if total < 4:
            return RemoteProtocolError(f"frame length {total} leaves no room for the header length")
        if header_bytes > total - 4:
            return RemoteProtocolError(f"header of {header_bytes} bytes in a frame of {total}")
        return RemoteProtocolError(f"header of {header_bytes} bytes; at most {self._limits.header_bytes} are allowed")
