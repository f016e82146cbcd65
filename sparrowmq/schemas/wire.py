"""Confluent's wire format: a body begins with the id of its schema.

    Avro       00  id: 4 bytes, big endian  body
    Protobuf   00  id: 4 bytes, big endian  which message of the file  body

The message is a path of indexes, as zigzag varints behind their count: 2 1 0 is the first message inside of the second
one. The first message, 1 0, is written as a single 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparrowmq.errors import InvalidBody

MAGIC: Final = 0
_HEAD: Final = 5
_DEEPEST: Final = 32
_LONGEST_VARINT: Final = 5


def framed(schema_id: int, body: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """Return a body behind its schema's id, and, for Protobuf, behind its message's indexes."""
    return b"".join((b"\0", schema_id.to_bytes(4, "big"), _of_indexes(indexes), body))


def schema_id(body: bytes | None) -> int:
    """Return the id of a body's schema. Raises: InvalidBody."""
    if not body:
        raise InvalidBody("the body is empty")
    if body[0] != MAGIC:
        raise InvalidBody(f"the body begins with the byte {body[0]}, not with 0 and the id of a schema")
    if len(body) < _HEAD:
        raise InvalidBody("the body ends within the id of its schema")
    return int.from_bytes(body[1:_HEAD], "big")


def avro_body(body: bytes) -> bytes:
    """Return what follows the id, which `schema_id` has read."""
    return body[_HEAD:]


def protobuf_body(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of the message, and what follows them. Raises: InvalidBody."""
    count, at = _varint(body, _HEAD)
    if count == 0:
        return (0,), body[at:]
    if not 0 < count <= _DEEPEST:
        raise InvalidBody(f"the body names its message by {count} indexes; the most is {_DEEPEST}")
    found = []
    for _ in range(count):
        index, at = _varint(body, at)
        if index < 0:
            raise InvalidBody(f"the body names a message by the index {index}")
        found.append(index)
    return tuple(found), body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and the place behind it. Raises: InvalidBody."""
    found = 0
    for place in range(_LONGEST_VARINT):
        if at >= len(body):
            raise InvalidBody("the body ends within the indexes of its message")
        byte = body[at]
        at += 1
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise InvalidBody("an index of the body's message is too large")


def _of_indexes(indexes: Sequence[int] | None) -> bytes:
    if indexes is None:
        return b""
    if tuple(indexes) == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _zigzag(number: int) -> bytes:
    rest = number << 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
