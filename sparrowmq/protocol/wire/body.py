"""The base class of JSON bodies: a struct that reads any dialect leniently, and writes what peers expect.

Absent members have a default, because old and new peers leave out different ones. Names are those of the wire in snake
case. Members are written in the order of their names, as fastjson does, without those that are None.
"""

from __future__ import annotations

from typing import Self

import msgspec

from sparrowmq.protocol.wire import json


class Body(msgspec.Struct, rename="camel"):
    """The body of a request or reply, or a part of one."""

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Parse a body. Raises: RemoteProtocolError, the bytes are no JSON, or a member does not fit."""
        return json.decode(raw, cls)

    def encode(self, *, bare_integers: bool = False) -> bytes:
        """Write the JSON. `bare_integers` leaves integer keys unquoted, as Java's servers do for old clients."""
        return json.dumps(self, bare_integers=bare_integers)
