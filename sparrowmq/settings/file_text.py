"""The text of settings files in any encoding: UTF-8, and bytes that are no UTF-8 as Latin-1, as Java reads them.

    # <GBK>                 a comment: any bytes
    brokerName=caf<E9>      a value: the name is "café", and a warning names the file and the key

Such a byte is read as a mark, a private character that YAML allows, and only values turn marks into Latin-1. So the
parsers drop comments as always, and need no second look at the bytes.
Source: Properties.load, Java 8. Unlike Java, which reads all bytes as Latin-1: a value in UTF-8 is what it says.
"""

from __future__ import annotations

import logging
from codecs import BOM_UTF8
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_MARKED: Final = {0xDC00 + byte: 0xF700 + byte for byte in range(0x80, 0x100)}  # "surrogateescape" of each byte
_LATIN_1: Final = {0xF700 + byte: byte for byte in range(0x80, 0x100)}


def read_text(path: Path) -> str:
    """Read a file, with a mark for each byte that is no UTF-8. Raises: OSError."""
    return path.read_bytes().removeprefix(BOM_UTF8).decode("utf-8", "surrogateescape").translate(_MARKED)


def value_of(text: str, place: object) -> str:
    """Return a value of such a text with Latin-1 for its marks, and log a warning if it has some.

    Args:
        place: of the value, for the warning, which does not show the value.
    """
    value = text.translate(_LATIN_1)
    if value != text:
        log.warning("%s has bytes that are no UTF-8, read as Latin-1; save the file as UTF-8", place)
    return value
