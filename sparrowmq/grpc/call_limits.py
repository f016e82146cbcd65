"""The largest calls, checked before protobuf makes objects of them.

An empty field takes two bytes of a call, and its object takes 150 bytes and a microsecond. So of a call only the bodies
of messages may be large, and the stacks of a client's threads:

    SendMessage                     up to MAX_OTHER_BYTES besides the bodies
    Telemetry                       up to CALL_BYTES besides the stacks, and STREAM_BYTES with them
    QueryRoute, QueryAssignment     up to ROUTE_BYTES, as the answer repeats the endpoints of the call for each queue
    another call                    up to CALL_BYTES

Unlike Java, whose proxy reads calls of up to 130 MB.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.grpc.statuses import Status, refused

CALL_BYTES: Final = 256 * 1024
ROUTE_BYTES: Final = 4 * 1024  # a hundred addresses
STREAM_BYTES: Final = 1024 * 1024
MAX_OTHER_BYTES: Final = 512 * 1024
MAX_ENTRIES: Final = 1_000  # messages of a send, or handles of an acknowledgement; the official clients send one
_MAX_CALL_BYTES: Final = {"SendMessage": MAX_OTHER_BYTES, "QueryRoute": ROUTE_BYTES, "QueryAssignment": ROUTE_BYTES}
_MAX_FIELDS: Final = 8_192
# The numbers of the fields that may be large: of a field of the call, and of the large one in it.
_LARGE_FIELDS: Final = {"SendMessage": (1, 4), "Telemetry": (3, 2)}


def check_call(name: str, raw: bytes) -> None:
    """Check the size of a call. Raises: RemoteProtocolError, RemoteError, it is too large."""
    size = len(raw)
    if size <= ROUTE_BYTES:
        return
    most = _MAX_CALL_BYTES.get(name, CALL_BYTES)
    if name in _LARGE_FIELDS and size > CALL_BYTES:
        size = other_bytes(raw, *_LARGE_FIELDS[name])
    if name == "Telemetry" and len(raw) > STREAM_BYTES:
        size, most = len(raw), STREAM_BYTES
    if size > most:
        raise _too_large(f"the call has {size:,} bytes besides bodies and stacks, and {most:,} are allowed")


def check_count(entries: Sized) -> None:
    """Check the number of messages or handles of a call. Raises: RemoteError, there are too many."""
    if len(entries) > MAX_ENTRIES:
        raise _too_large(f"the call has {len(entries):,} entries, and {MAX_ENTRIES:,} are allowed; make several")


def other_bytes(raw: bytes, outer: int, large: int) -> int:
    """Return the bytes of a call besides those of the fields `large` in its fields `outer`.

    Raises: RemoteProtocolError, RemoteError, it is no message of protobuf, or has too many fields.
    """
    at, inner_end, bodies = 0, 0, 0
    end = len(raw)
    for _ in range(_MAX_FIELDS):
        if at >= end:
            return end - bodies
        key, at = _varint(raw, at)
        kind = key & 7
        if kind == 2:
            size, at = _varint(raw, at)
            if at >= inner_end and key >> 3 == outer:
                inner_end = at + size  # its own fields come next
                continue
            if at < inner_end and key >> 3 == large:
                bodies += size
            at += size
        elif kind == 0:
            _, at = _varint(raw, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            break
    else:
        raise _too_large(f"the call has more than {_MAX_FIELDS:,} fields")
    raise RemoteProtocolError(f"invalid protobuf message ({end} bytes)")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends. Raises: RemoteProtocolError."""
    if at < len(raw) and raw[at] < 0x80:
        return raw[at], at + 1
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(raw):
            break
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise RemoteProtocolError(f"truncated varint in a {len(raw)}-byte call")


def _too_large(text: str) -> RemoteError:
    return refused(Status.PAYLOAD_TOO_LARGE, text)
