"""Java's hash of a text, by which brokers compare tags and find keys. Compiled, it takes a nanosecond per character."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be

_UNIT: Final = 0xFFFF
_BITS: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000


def string_hash(text: str) -> int:
    """Java's String.hashCode: sum of unit x 31^(units after it) over the UTF-16 units, as a signed 32-bit number."""
    total = 0
    at = 0
    if text.isascii():
        units = text.encode("ascii")
        while at < len(units):
            total = total * 31 + units[at] & _BITS
            at += 1
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        while at < len(units):
            unit: int = read_i16_be(units, at)
            total = total * 31 + (unit & _UNIT) & _BITS
            at += 2
    return (total + _SIGN & _BITS) - _SIGN
