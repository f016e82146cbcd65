"""The pieces of a reply: a head, and the body as its handler has it, so that bodies are joined once, for the socket."""

from __future__ import annotations

from typing import Any, Final

from sparrowmq.protocol.wire.codec import encode_reply
from sparrowmq.protocol.wire.command import LANGUAGE, ONEWAY_FLAG, PROTOCOL_VERSION, REPLY_FLAG, Command
from sparrowmq.protocol.wire.header import Header, NoFields

Buffer = bytes | bytearray | memoryview
_NO_FIELDS: Final = NoFields()


def add_reply(
    pieces: list[Buffer],
    request: Command,
    code: int,
    header: Header | None,
    remark: str | None = None,
    body: Buffer | list[memoryview] = b"",
) -> int:
    """Add the pieces of a reply, and return the bytes of its body. A one-way request gets no reply."""
    if request.flag & ONEWAY_FLAG:
        return 0
    body_pieces = body if isinstance(body, list) else [body] if body else []
    size = sum(map(len, body_pieces))
    pieces.append(encode_reply(request, code, header, remark, size))
    pieces += body_pieces
    return size


def reply_command(
    request: Command, code: int, header: Header | None, remark: str | None = None, body: Buffer | list[memoryview] = b""
) -> Command:
    """A reply for a peer in this process, which needs no bytes."""
    found: Any = _NO_FIELDS if header is None else header
    whole = b"".join(body) if isinstance(body, list) else bytes(body)
    return Command(code, request.opaque, REPLY_FLAG, PROTOCOL_VERSION, LANGUAGE, remark or None, found, whole)


def take_first(pieces: list[Buffer], size: int) -> bytes:
    """Remove the first `size` bytes of pieces, which have more, and return them."""
    whole = 0
    taken: list[Buffer] = []
    for piece in pieces:
        if len(piece) > size:
            taken.append(memoryview(piece)[:size])
            pieces[whole] = memoryview(piece)[size:]
            break
        taken.append(piece)
        size -= len(piece)
        whole += 1
    del pieces[:whole]
    return b"".join(taken)
