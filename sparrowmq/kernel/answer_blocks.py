"""The header blocks of answers.

    10001000                               :status 200, a fixed header of the table
    00000000  length name  length value    any other header, which enters no table (RFC 7541, section 6.2.2)

The headers of a call that goes well are the same for each call. The first such call of a connection enters them into
the client's table, and later calls send their numbers: 4 bytes instead of 83, which clients also read faster.
"""

from __future__ import annotations

from typing import Final

NO_TABLE: Final = b"\x20"  # our table has 0 bytes from now on: demanded by a peer that wants a smaller one
STATUS_200: Final = b"\x88"
_STATUS_NAME: Final = 8  # its number in the static table
_PRINTED_AS_IS: Final = frozenset(range(0x20, 0x7F)) - {0x25}


def _length(count: int) -> bytes:
    """Return an integer with a prefix of seven bits (RFC 7541, section 5.1)."""
    if count < 127:
        return bytes((count,))
    rest = count - 127
    pieces = bytearray((127,))
    while rest >= 128:
        pieces.append(rest & 127 | 128)
        rest >>= 7
    pieces.append(rest)
    return bytes(pieces)


def header(name: bytes, value: bytes) -> bytes:
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def status(code: int) -> bytes:
    if code == 200:
        return STATUS_200
    text = str(code).encode()
    return bytes((_STATUS_NAME,)) + _length(len(text)) + text


_CONTENT_TYPE: Final = header(b"content-type", b"application/grpc")
_ENCODINGS: Final = header(b"grpc-accept-encoding", b"identity,gzip")
GRPC_HEADERS: Final = status(200) + _CONTENT_TYPE + _ENCODINGS
OK_TRAILERS: Final = header(b"grpc-status", b"0")

_ENTERS: Final = b"\x40"  # instead of the first byte of a header: it enters the table
FIRST_HEADERS: Final = status(200) + _ENTERS + _CONTENT_TYPE[1:] + _ENTERS + _ENCODINGS[1:]
FIRST_TRAILERS: Final = _ENTERS + OK_TRAILERS[1:]
NEWEST: Final = 0x80 | 62  # the number of the header that entered last, as a block has it


def trailers(code: int, message: str) -> bytes:
    """Return the headers behind the messages of a call."""
    if code == 0 and not message:
        return OK_TRAILERS
    block = header(b"grpc-status", str(code).encode())
    return block + header(b"grpc-message", percent_encoded(message)) if message else block


def plain(code: int) -> bytes:
    """Return the headers of an answer to something that is no gRPC call."""
    return status(code) + header(b"content-type", b"text/plain")


def percent_encoded(text: str) -> bytes:
    """Return a message as grpc-message carries it."""
    raw = text.encode("utf-8", "replace")
    return b"".join(b"%c" % byte if byte in _PRINTED_AS_IS else b"%%%02X" % byte for byte in raw)
