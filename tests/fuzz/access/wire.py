"""A connection that sends any code with any fields, signed or not, and keeps all that it hears."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from sparrowmq.protocol.signature import SigningKey, signed_fields
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import FrameReader
from sparrowmq.protocol.wire.header import Request
from tests.fuzz.frames import REPLY, frame

ANSWER_LIMIT_S: Final = 10.0
MOST_CAPTURED: Final = 40


class Credentials(NamedTuple):
    access_key: str
    secret_key: str


class Wire(asyncio.Protocol):
    """One connection.

    Attributes:
        pushes: requests of the broker, each of which is answered with success.
        heard: every header and body that came in, until somebody clears it.
        captured: the first requests of `ask`, as somebody on the network would see them.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._key = SigningKey(credentials.secret_key) if credentials else None
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._opaque = 0
        self._out: asyncio.Transport | None = None
        self.pushes: list[Command] = []
        self.heard: list[bytes] = []
        self.captured: list[tuple[int, dict[str, str], bytes]] = []

    @classmethod
    async def to(cls, address: str, credentials: Credentials | None = None, source: str = "127.0.0.1") -> Wire:
        """Connect to a server. `source` is the address that the server sees."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: cls(credentials), host, int(port), local_addr=(source, 0))
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._out = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._out = None
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    @property
    def is_open(self) -> bool:
        return self._out is not None and not self._out.is_closing()

    def close(self) -> None:
        if self._out is not None:
            self._out.abort()

    def data_received(self, chunk: bytes) -> None:
        for serializer, header, body in self._reader.feed(chunk):
            self.heard += (header, body)
            command = codec.decode(serializer, header, body)
            if command.is_reply:
                waiting = self._waiting.pop(command.opaque, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(command)
                continue
            self.pushes.append(command)
            if not command.is_oneway and self._out is not None:
                self._out.write(frame(0, _head(0, {}, command.opaque, REPLY), b""))

    def signed(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        """The fields with the signature of this connection's account, if it has one."""
        if self._credentials is None or self._key is None:
            return fields
        return {**fields, **signed_fields(fields, body, self._credentials.access_key, self._key)}

    def send(self, code: int, fields: dict[str, str], body: bytes = b"") -> asyncio.Future[Command]:
        """Send a request whose fields are signed already."""
        if self._out is None:
            raise ConnectionError("the server closed the connection")
        self._opaque += 1
        answer = asyncio.get_running_loop().create_future()
        self._waiting[self._opaque] = answer
        self._out.write(frame(0, _head(code, fields, self._opaque, 0), body))
        return answer

    async def ask(self, request: Request[Any], body: bytes = b"", accept: tuple[int, ...] = (0,)) -> Command:
        """Send a well-formed request as this connection's account, and return the answer.

        Raises:
            AssertionError: the answer has another code than one of `accept`.
        """
        fields = self.signed(request.ext_fields(), body)
        if len(self.captured) < MOST_CAPTURED:
            self.captured.append((request.code, fields, body))
        answer = await asyncio.wait_for(self.send(request.code, fields, body), ANSWER_LIMIT_S)
        assert answer.code in accept, f"{type(request).__name__} got {answer.code}: {answer.remark}"
        return answer


def _head(code: int, fields: dict[str, str], opaque: int, flag: int) -> bytes:
    header = {"code": code, "language": "JAVA", "version": 409, "opaque": opaque, "flag": flag}
    return msgspec.json.encode({**header, "extFields": fields})
