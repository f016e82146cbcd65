"""Requests and answers that go on through mqproxy.

All fields and the body stay, so the signature of a client stays valid, and brokers check it as well. Only the opaque
changes, because each connection counts its own. No signature covers it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from sparrowmq.protocol.wire.command import Command, language_name

_LENGTHS: Final = struct.Struct(">ii")  # the second one has serialiser 0, JSON, in its first byte


def forwarded(command: Command, opaque: int, fields: Mapping[str, str] | None = None) -> bytes:
    """The frame of a command with another opaque, and with `fields` in the place of its own."""
    header = {
        "code": command.code,  # first, as readers expect
        "extFields": command.ext_fields() if fields is None else fields,
        "flag": command.flag,
        "language": language_name(command.language),
        "opaque": opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version or 0,
    }
    raw = msgspec.json.encode(header)
    return _LENGTHS.pack(4 + len(raw) + len(command.body), len(raw)) + raw + command.body


def size_of(command: Command) -> int:
    """The bytes that a received command occupies, about. Words of its header that have no meaning are dropped."""
    size = len(command.body) + len(command.raw) + len(command.remark or "")
    if isinstance(command.language, str):
        size += len(command.language)
    if command.fields is not None:
        size += sum(len(name) + len(value) for name, value in command.fields.items())
    elif not command.raw:
        command.ext = command.ext.copy()  # a Raw keeps the whole header
        size += len(bytes(command.ext))
    return size
