"""The largest calls, checked before protobuf makes objects of them.

An empty field takes two bytes of a call, and its object 150 bytes and a microsecond. So only the bodies of messages may
be large, and the stacks of a client's threads:

    SendMessage                     up to MAX_OTHER_BYTES besides the bodies
    Telemetry                       up to MAX_CALL_BYTES besides the stacks, and MAX_TELEMETRY_BYTES with them
    QueryRoute, QueryAssignment     up to MAX_ROUTE_CALL_BYTES: the answer repeats the call's endpoints for each queue
    another call                    up to MAX_CALL_BYTES; Java's proxy reads up to 130 MB
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.grpc.statuses import Status, refusal

MAX_CALL_BYTES: Final = 256 * 1024
MAX_ROUTE_CALL_BYTES: Final = 4 * 1024  # a hundred addresses
MAX_TELEMETRY_BYTES: Final = 1024 * 1024
MAX_OTHER_BYTES: Final = 512 * 1024
MAX_ENTRIES: Final = 1_000  # messages of a send, or handles of an acknowledgement; the official clients send one
_MAX_BYTES_BY_METHOD: Final = {
    "SendMessage": MAX_OTHER_BYTES,
    "QueryRoute": MAX_ROUTE_CALL_BYTES,
    "QueryAssignment": MAX_ROUTE_CALL_BYTES,
}
_MAX_FIELDS: Final = 8_192
# The numbers of the fields that may be large: of a field of the call, and of the large one in it.
_LARGE_FIELDS: Final = {"SendMessage": (1, 4), "Telemetry": (3, 2)}


def check_call(name: str, raw: bytes) -> None:
    """Check the size of a call. Raises: RemoteProtocolError, RemoteError, it is too large."""
    size = len(raw)
    if size <= MAX_ROUTE_CALL_BYTES:
        return
    max_bytes = _MAX_BYTES_BY_METHOD.get(name, MAX_CALL_BYTES)
    if name in _LARGE_FIELDS and size > MAX_CALL_BYTES:
        size = count_other_bytes(raw, *_LARGE_FIELDS[name])
    if name == "Telemetry" and len(raw) > MAX_TELEMETRY_BYTES:
        size, max_bytes = len(raw), MAX_TELEMETRY_BYTES
    if size > max_bytes:
        raise _too_large(f"the call has {size:,} bytes besides bodies and stacks, and {max_bytes:,} are allowed")


def check_count(entries: Sized) -> None:
    if len(entries) > MAX_ENTRIES:
        raise _too_large(f"the call has {len(entries):,} entries, and {MAX_ENTRIES:,} are allowed; make several")


def count_other_bytes(raw: bytes, outer: int, large: int) -> int:
    """Return the bytes of a call besides those of the fields `large` in its fields `outer`. Raises:
    RemoteProtocolError, RemoteError, it is no message of protobuf, or has too many fields."""
    position, inner_end, large_bytes = 0, 0, 0
    end = len(raw)
    for _ in range(_MAX_FIELDS):
        if position >= end:
            return end - large_bytes
        key, position = _varint(raw, position)
        kind = key & 7
        if kind == 2:
            size, position = _varint(raw, position)
            if position >= inner_end and key >> 3 == outer:
                inner_end = position + size  # its own fields come next
                continue
            if position < inner_end and key >> 3 == large:
                large_bytes += size
            position += size
        elif kind == 0:
            _, position = _varint(raw, position)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            break
    else:
        raise _too_large(f"the call has more than {_MAX_FIELDS:,} fields")
    raise RemoteProtocolError(f"invalid protobuf message ({end} bytes)")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    """Return a number, and where it ends. Raises: RemoteProtocolError."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(raw):
            break
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise RemoteProtocolError(f"truncated varint in a {len(raw)}-byte call")


def _too_large(text: str) -> RemoteError:
    return refusal(Status.PAYLOAD_TOO_LARGE, text)
