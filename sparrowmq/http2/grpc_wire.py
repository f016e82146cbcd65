"""The parts of gRPC inside HTTP/2: messages with a length before them, timeouts, and compression.

    0       1        5
    +-------+--------+- - - - - -+
    | flag  | length | message   |     flag 1: compressed as grpc-encoding says
    +-------+--------+- - - - - -+

Source: the protocol's description "gRPC over HTTP2".
"""

from __future__ import annotations

import zlib
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.http2.calls import GrpcError, Status

HEAD_BYTES: Final = 5
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_LONGEST_TIMEOUT: Final = 8  # digits
_GZIP: Final = 31  # zlib's number for its header
ENCODINGS: Final = ("identity", "gzip")


class MessageReader:
    """Cuts messages out of the body of a request, when they are asked for.

    Args:
        most_bytes: the largest message.
        encoding: of compressed messages.
    Attributes:
        is_compressed: the last message is, and needs `decompressed`.
    """

    __slots__ = ("_bytes", "_encoding", "_most_bytes", "is_compressed")

    def __init__(self, most_bytes: int, encoding: str = "identity") -> None:
        self._bytes = bytearray()
        self._most_bytes = most_bytes
        self.is_compressed = False
        self._encoding = encoding

    def add(self, data: bytes) -> None:
        self._bytes += data

    @property
    def held_bytes(self) -> int:
        """The bytes that belong to no message that was cut out."""
        return len(self._bytes)

    def missing_bytes(self) -> int:
        """Return the bytes that the next message still needs, as far as is known; 0 if it is whole.

        Raises: GrpcError, it is too large.
        """
        held = len(self._bytes)
        return max(0, (HEAD_BYTES if held < HEAD_BYTES else HEAD_BYTES + self._length()) - held)

    def next(self) -> bytes | None:
        """Return the next message as it was sent, or None if it is not whole.

        Raises: GrpcError, it is too large, or compressed in an unknown way.
        """
        if len(self._bytes) < HEAD_BYTES:
            return None
        end = HEAD_BYTES + self._length()
        if len(self._bytes) < end:
            return None
        flag = self._bytes[0]
        with memoryview(self._bytes) as view:  # one copy
            message = bytes(view[HEAD_BYTES:end])
        del self._bytes[:end]
        if flag and (flag != 1 or self._encoding != "gzip"):
            raise GrpcError(Status.INTERNAL, f"a message has the flag {flag} and the encoding {self._encoding}")
        self.is_compressed = flag == 1
        return message

    def _length(self) -> int:
        length = int.from_bytes(self._bytes[1:HEAD_BYTES], "big")
        if length > self._most_bytes:
            raise _too_large(self._most_bytes)
        return length

    def decompressed(self, message: bytes) -> bytes:
        """Decompress a message. 16 KB may take 20 ms, so this belongs into a thread.

        Raises: GrpcError, it cannot be decompressed, or is too large.
        """
        try:
            inflater = zlib.decompressobj(_GZIP)
            whole = inflater.decompress(message, self._most_bytes + 1)
        except zlib.error as error:
            raise GrpcError(Status.INTERNAL, f"a message cannot be decompressed: {error}") from None
        if len(whole) > self._most_bytes:
            raise _too_large(self._most_bytes)
        if not inflater.eof:
            raise GrpcError(Status.INTERNAL, "a compressed message ends too soon")
        return whole


def _too_large(most_bytes: int) -> GrpcError:
    return GrpcError(Status.RESOURCE_EXHAUSTED, f"a message is larger than {most_bytes} bytes; send smaller ones")


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def timeout_s(text: str) -> float:
    """Return the seconds in grpc-timeout. Raises: GrpcError, it is none."""
    number, unit = whole_number(text[:-1], _LONGEST_TIMEOUT), text[-1:]
    if unit not in _UNITS or number is None:
        raise GrpcError(Status.INTERNAL, f"grpc-timeout is {text[:20]!r}; it is up to 8 digits and one of H M S m u n")
    return number * _UNITS[unit]
