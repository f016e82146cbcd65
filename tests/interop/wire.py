"""The remoting protocol in fifty lines of standard library: an oracle that shares no code with the product.

Interop tests and recordings talk to a server with it, ours or Apache's, without trusting our own codec:

    with Wire(port) as wire:
        reply = wire.ask(105, {"topic": "T"})
        assert reply.code == 17
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final, Self

SEND: Final = 310
PULL: Final = 11
_OPAQUES: Final = count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or a request that the server sent by itself."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    flag: int
    opaque: int


class Wire:
    """One blocking connection. A server that stays silent raises TimeoutError, one that hangs up EOFError."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 10) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", **header: object) -> Reply:
        """Send one request and wait for its own answer, passing over whatever the server pushes meanwhile."""
        frame, opaque = request(code, fields, body, **header)
        self.send(frame)
        while (reply := self.receive()).opaque != opaque or not reply.flag & 1:
            pass
        return reply

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> Reply:
        """The next frame that the server sends, whatever it is. Understands JSON headers only."""
        length, header_word = struct.unpack(">II", self._exactly(8))
        header = json.loads(self._exactly(header_word & 0xFFFFFF))
        body = self._exactly(length - 4 - (header_word & 0xFFFFFF))
        fields = header.get("extFields") or {}
        return Reply(header["code"], header.get("remark"), fields, body, header["flag"], header["opaque"])

    def _exactly(self, size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._socket.recv(size - len(pieces))
            if not piece:
                raise EOFError(f"the server hung up with {size - len(pieces)} bytes outstanding")
            pieces += piece
        return bytes(pieces)


def request(
    code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", **header: object
) -> tuple[bytes, int]:
    """A frame as the Java client 4.9.8 writes it, and its opaque; `header` overrides what stands in the header."""
    opaque = next(_OPAQUES)
    whole = {"code": code, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 409} | header
    if fields:
        whole["extFields"] = {name: str(value) for name, value in fields.items()}
    text = json.dumps(whole, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body, opaque


def send_fields(topic: str, **changes: object) -> dict[str, object]:
    """Of a message for queue 0 without properties, as SEND (SEND_MESSAGE_V2) takes them; `e` is the queue."""
    usual = ("p", topic, "TBW102", 4, 0, 0, 1, 0, "", 0, "false", "false")
    return dict(zip("abcdefghijkm", usual, strict=True)) | changes


def pull_fields(topic: str, **changes: object) -> dict[str, object]:
    """Of a pull of up to 32 messages from the beginning of queue 0, all tags, that does not wait."""
    return {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "subscription": "*",
    } | changes
