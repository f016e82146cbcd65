"""The base class of JSON bodies: a struct that reads any dialect leniently, and writes what peers expect.

Absent members have a default, because old and new peers leave out different ones. Names are those of the wire in snake
case. Members are written in the order of their names, as fastjson does, without those that are None.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

import msgspec

from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.wire import json

# The limits of a request's body. A server reads it in one piece, and a dialect takes up to 0.2 us a byte.
REQUEST_BYTES: Final = 512 * 1024
DIALECT_BYTES: Final = 8 * 1024


class Body(msgspec.Struct, rename="camel"):
    """The body of a request or reply, or a part of one."""

    MOST_BYTES: ClassVar[int] = REQUEST_BYTES  # the limit of a request's body

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Parse a body. Raises: RemoteProtocolError, the bytes are no JSON, or a member does not fit."""
        return json.decode(raw, cls)

    @classmethod
    def of_request(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Parse the body of a request, at a server. Only a small one may be in a dialect.

        Raises: RemoteProtocolError, as `decode`, or it is too large.
        """
        if len(raw) <= DIALECT_BYTES:
            return json.decode_quickly(raw, cls)
        if len(raw) > cls.MOST_BYTES:
            raise json.NotJson(f"the body takes {len(raw)} bytes, and this request may have {cls.MOST_BYTES}; split it")
        return json.decode_standard(raw, cls)

    def encode(self, *, bare_integers: bool = False) -> bytes:
        """Write the JSON. `bare_integers` leaves integer keys unquoted, as Java's servers do for old clients."""
        return json.dumps(self, bare_integers=bare_integers)

    def encoding(self) -> Steps[list[bytes]]:
        """Do `encode` in steps, for a table that may have thousands of members. Return the pieces.

        Raises: RemoteError, there is more than a frame may have.
        """
        return json.dumping(self)
