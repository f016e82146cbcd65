"""Fields of protobuf as bytes, for the answers that each message needs: protobuf itself needs several times as long."""

from __future__ import annotations


def field(number: int, raw: bytes) -> bytes:
    """Return a field with bytes, a text or a message in it. `number` is at most 15."""
    return bytes((number << 3 | 2,)) + varint(len(raw)) + raw


def varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    pieces = bytearray()
    while number >= 0x80:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)
