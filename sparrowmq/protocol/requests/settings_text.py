"""Settings as Java properties text: the bodies of the requests for a broker's or name server's configuration.

Java writes `key=value` lines as they are and reads them back with its escape rules, byte by byte as Latin-1. So what
those rules would change is escaped here, and only that: addresses keep their colons.
Source: MixAll.properties2String and string2Properties, Java 4.9.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.settings.settings_files import parse_properties

_ESCAPED_IN_VALUE = re.compile(r"^[ \t\f]|[\\\n\r]|[^\x00-\x7f]")
_ESCAPED_IN_KEY = re.compile(r"[ \t\f\\\n\r=:#!]|[^\x00-\x7f]")
# A server reads a request's settings in one piece, at 1 us a byte.
REQUEST_BYTES: Final = 3 * 1024
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def render(settings: Mapping[str, str]) -> bytes:
    lines = [
        f"{_ESCAPED_IN_KEY.sub(_escape, key)}={_ESCAPED_IN_VALUE.sub(_escape, value)}\n"
        for key, value in settings.items()
    ]
    return "".join(lines).encode("ascii")


def of_request(raw: bytes | bytearray | memoryview) -> dict[str, str]:
    """The settings by key in the body of a request, at a server. Raises: RemoteProtocolError, as `parse`, or the text
    is too large.
    """
    if len(raw) > REQUEST_BYTES:
        raise RemoteProtocolError(
            f"the settings take {len(raw)} bytes, and one request may have {REQUEST_BYTES}; change fewer at once"
        )
    return parse(raw)


def parse(raw: bytes | bytearray | memoryview) -> dict[str, str]:
    """The settings by key. Raises: RemoteProtocolError, an escape is broken."""
    try:
        return parse_properties(str(raw, "utf-8", "replace"))
    except ValueError as error:
        raise RemoteProtocolError(f"the properties text has a broken escape: {error}") from None


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isascii():
        return _SHORT_ESCAPES.get(character, "\\" + character)
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
