"""The pieces of a reply: a head, and the body as its handler has it, so that bodies are joined once, for the socket."""

from __future__ import annotations

from sparrowmq.protocol.wire.codec import ReplyHeader, encode_reply
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, Command

Buffer = bytes | bytearray | memoryview


def add_reply(
    pieces: list[Buffer],
    request: Command,
    code: int,
    header: ReplyHeader,
    remark: str | None = None,
    body: Buffer | list[memoryview] = b"",
) -> int:
    """Add the pieces of a reply, and return the bytes of its body. A one-way request gets no reply."""
    if request.flag & ONEWAY_FLAG:
        return 0
    if not body:
        pieces.append(encode_reply(request, code, header, remark))
        return 0
    size = 0
    if isinstance(body, list):
        for piece in body:
            size += len(piece)
        pieces.append(encode_reply(request, code, header, remark, size))
        pieces.extend(body)
    else:
        size = len(body)
        pieces.append(encode_reply(request, code, header, remark, size))
        pieces.append(body)
    return size
