"""A small HTTP server for metrics and health: GET of a few paths, one request for each connection.

It has no TLS, no request bodies and no host names. Of a request it reads the first line, and refuses a long head before
it looks at any line: a parser that has more to do holds up all clients of a broker. A connection ends after ten
seconds. When there are too many, the oldest ends that has asked for nothing, or else the oldest of all.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

from sparrowmq.core import descriptors
from sparrowmq.errors import SparrowError
from sparrowmq.remoting.listener import Listener

log = logging.getLogger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
_MAX_HEAD_BYTES: Final = 8 << 10
_SILENCE_S: Final = 10.0
# Answers have texts of others, such as the errors on the page of a lake. No browser runs scripts in them.
_SECURITY_HEADERS: Final = (
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\n"
)
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_REQUEST: Final = re.compile(rb"([!-~]+) ([!-~]+) HTTP/1\.[01]\r?")


class Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = TEXT


Query = Mapping[str, str]
MakePage = Callable[[Query], Awaitable[Answer]]


class Endpoint:
    """Answers at one listener, which is already bound. The paths of the pages begin with "/"."""

    def __init__(self, listener: Listener, pages: Mapping[str, MakePage]) -> None:
        self._listener = listener
        self._pages = pages
        self._connections: dict[HttpConnection, None] = {}  # the oldest first
        limit = descriptors.limit()
        self._max_connections = descriptors.small_port_limit(descriptors.MAX_METRICS_CONNECTIONS, limit)
        self._backlog = descriptors.small_port_limit(descriptors.SMALL_BACKLOG, limit)

    @property
    def host(self) -> str:
        return self._listener.host

    @property
    def port(self) -> int:
        return self._listener.port

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Run until cancelled; call `opened` once it listens. Raises: ConfigError, the port cannot be listened on."""
        await self._listener.serve(self._accept, self._backlog, self._connections, opened)

    async def show(self, pages: Mapping[str, MakePage]) -> None:
        """Answer with other pages until cancelled. An answer that is not complete then ends."""
        former_pages, self._pages = self._pages, pages
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._pages = former_pages
            for connection in [connection for connection in self._connections if connection.has_asked]:
                connection.close()

    async def answer(self, target: str) -> Answer:
        try:
            parts = urlsplit(target)
        except ValueError as error:
            return Answer(400, f"{error}\n".encode())
        page = self._pages.get(parts.path)
        if page is None:
            return Answer(404, f"there are {', '.join(self._pages)}\n".encode())
        try:
            return await page(dict(parse_qsl(parts.query)))
        except (SparrowError, OSError) as error:
            return Answer(503, f"{error}\n".encode())

    def _accept(self) -> HttpConnection:
        if len(self._connections) >= self._max_connections:
            silent = (connection for connection in self._connections if not connection.has_asked)
            next(silent, next(iter(self._connections))).close()
        connection = HttpConnection(self.answer, lambda closed: self._connections.pop(closed, None))
        self._connections[connection] = None
        return connection


class HttpConnection(asyncio.Protocol):
    """One connection, for one request."""

    def __init__(self, answer: Callable[[str], Awaitable[Answer]], on_end: Callable[[HttpConnection], object]) -> None:
        self._answer = answer
        self._on_end = on_end
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._time_limit: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether a page is being made for it, or was."""
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._time_limit = asyncio.get_running_loop().call_later(_SILENCE_S, self.close)

    def data_received(self, chunk: bytes) -> None:
        if self._task is not None:
            return
        searched_bytes = len(self._head)
        self._head += chunk
        end = _HEAD_END.search(self._head, max(0, searched_bytes - 2))
        if (end.start() if end else len(self._head)) > _MAX_HEAD_BYTES:
            self._send(Answer(431, b"the head of the request is too long\n"))
        elif end:
            self._on_request_line(bytes(self._head[: self._head.index(b"\n")]))

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        if self._time_limit is not None:
            self._time_limit.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._on_end(self)

    def _on_request_line(self, line: bytes) -> None:
        request = _REQUEST.fullmatch(line)
        if request is None:
            self._send(Answer(400, b"this is no request of HTTP/1.1\n"))
        elif request[1] != b"GET":
            self._send(Answer(405, b"only GET is answered here\n"))
        else:
            if self._transport is not None:
                self._transport.pause_reading()  # any number of bytes may follow the request
            self._task = asyncio.ensure_future(self._reply(request[2].decode("ascii")))
            self._task.add_done_callback(self._on_reply_end)

    async def _reply(self, target: str) -> None:
        self._send(await self._answer(target))

    def _on_reply_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("a request was not answered", exc_info=task.exception())
            self.close()

    def _send(self, answer: Answer) -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {answer.status} \r\ncontent-type: {answer.kind}\r\n"
            f"content-length: {len(answer.body)}\r\n{_SECURITY_HEADERS}connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + answer.body)
        self._transport.close()
