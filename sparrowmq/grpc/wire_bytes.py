"""Fields of protobuf as bytes, for the answers that each message needs: protobuf itself needs several times as long."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter

_BYTES: Final = 2  # the kind of a field with bytes, a text or a message in it; a number has kind 0
_ALL_BITS: Final = (1 << 64) - 1


def field(number: int, raw: bytes) -> bytes:
    """Return a field with bytes, a text or a message in it."""
    out = BytesWriter()
    put(out, number, raw)
    return out.getvalue()


def varint(number: int) -> bytes:
    out = BytesWriter()
    put_varint(out, number)
    return out.getvalue()


def time_of(ms: int) -> bytes:
    """Return a `Timestamp` or a `Duration`, in milliseconds from 0 on."""
    out = BytesWriter()
    seconds, rest_ms = ms // 1000, ms % 1000
    if seconds:
        put_number(out, 1, seconds)
    if rest_ms:
        put_number(out, 2, rest_ms * 1_000_000)
    return out.getvalue()


def put(out: BytesWriter, number: int, raw: bytes) -> None:
    """Write a field with bytes, a text or a message in it."""
    put_varint(out, number << 3 | _BYTES)
    put_varint(out, len(raw))
    out.write(raw)


def put_text(out: BytesWriter, number: int, text: str) -> None:
    """Write a field with a text, unless it is empty."""
    if text:
        put(out, number, text.encode())


def put_number(out: BytesWriter, number: int, value: int) -> None:
    """Write a field with a number."""
    put_varint(out, number << 3)
    put_varint(out, value)


def put_varint(out: BytesWriter, number: int) -> None:
    """Write a number of at most 64 bits; a negative one is written as its two's complement."""
    if number < 0:
        number &= _ALL_BITS
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
