"""What a JSON body is: a struct that reads any dialect leniently and writes exactly what peers expect.

All members have a value when they are absent, since old and new peers leave out different ones. Names are the wire's in
snake case; members are written in the order of their names, as fastjson does, and those that are None are left out.
"""

from __future__ import annotations

from typing import Self

import msgspec

from sparrowmq.protocol.wire import json


class Body(msgspec.Struct, rename="camel"):
    """The body of a request or reply, or a part of one."""

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Raises: RemoteProtocolError, it is no JSON, or a member does not fit."""
        return json.decode(raw, cls)

    def encode(self, *, bare_integers: bool = False) -> bytes:
        """The JSON; `bare_integers` writes integer keys without quotes, as Java's servers do for old clients."""
        return json.dumps(self, bare_integers=bare_integers)
