"""A command: one frame's header and body, either a request or a reply. `codec.py` reads and writes it.

Flag bit 0 marks a reply, bit 1 a request that wants none. A reply repeats the request's `opaque` and its serialiser.
Source: RemotingCommand, Java 4.9.8.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from sparrowmq.protocol.wire.frame import Serializer
from sparrowmq.protocol.wire.header import Header, fields_of_json, from_fields, from_json

H = TypeVar("H", bound=Header)

REPLY_FLAG = 1
ONEWAY_FLAG = 2

# V4_9_8: the version that we follow. The Java client refuses SQL filters below V4_1_0 and reads routes as standard JSON
# from V4_9_4.
PROTOCOL_VERSION = 409
SIGNED_QUERY_VERSION = 399  # 4.9.3, of a signed query by key: protocol/signature.py says why
LANGUAGE = "PYTHON"
LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
_OTHER: Final = "OTHER"


def language_name(language: str | int | None) -> str:
    """A peer's language, as Java names it; numbers are Java's ordinals. A server keeps it, so none is a long text."""
    if isinstance(language, int):
        return LANGUAGES[language] if 0 <= language < len(LANGUAGES) else _OTHER
    return language if language in LANGUAGES else _OTHER


class Command(msgspec.Struct, gc=False):
    """One frame, decoded as far as all frames are alike. `header` decodes the rest into a type."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int | None = 0
    language: str | int | None = None
    remark: str | None = None
    ext: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw(b""))
    # Set by `decode`, never by a peer: no client has a field of these names, and `decode` overwrites them.
    body: bytes = msgspec.field(name="<body>", default=b"")
    fields: dict[str, str] | None = msgspec.field(name="<fields>", default=None)

    @property
    def is_reply(self) -> bool:
        return bool(self.flag & REPLY_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    @property
    def serializer(self) -> Serializer:
        return Serializer.JSON if self.fields is None else Serializer.ROCKETMQ

    def header(self, kind: type[H]) -> H:
        """The header fields as `kind`.

        Raises: RemoteProtocolError, a required field is absent or a value does not fit.
        """
        if self.fields is not None:
            return from_fields(kind, self.fields)
        ext: Any = self.ext
        if isinstance(ext, Header):  # of a peer in this process
            return ext if isinstance(ext, kind) else from_fields(kind, ext.ext_fields())
        return from_json(kind, ext or b"{}")

    def ext_fields(self) -> dict[str, str]:
        """Every extField as text, unknown ones included: request signing needs all of them."""
        if self.fields is not None:
            return self.fields
        ext: Any = self.ext
        if isinstance(ext, Header):  # of a peer in this process
            return ext.ext_fields()
        return fields_of_json(ext)

    def __str__(self) -> str:
        kind = "reply" if self.is_reply else "one-way" if self.is_oneway else "request"
        remark = (self.remark or "")[:60]
        return f"{kind} code={self.code} opaque={self.opaque} body={len(self.body)} bytes remark={remark!r}"
