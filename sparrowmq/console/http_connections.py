"""The connections of the console's port: before a log-in, no visitor can hold all of them or fill the memory.

    head of a request    at most 32 KiB and 100 lines, of bytes that h11 matches in linear time; h11 reads one request
                         at a time, also of a client that sends many together
    body                 with its length: no browser sends one in chunks, whose lines would need the same care
    waiting              at most 10 s for a whole head, however slowly its bytes come; 5 s for its first byte after an
                         answer, as uvicorn has it
    connections          above the limit the oldest goes that has asked for nothing yet; TLS handshakes count, too, and
                         so do WebSockets: each open page has one

uvicorn's other parser, httptools, has none of these limits.

The headers of proxies are believed if the request comes from the address of a proxy, and removed otherwise. Any visitor
can send them, and so seem to be another one at each attempt to log in.

    X-Forwarded-For, X-Forwarded-Proto       the address of the visitor, and whether it is encrypted
    X-Forwarded-Host, X-Forwarded-Prefix     the name and the path under which the visitor reaches the console
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Coroutine, Generator, Sequence
from ipaddress import ip_network
from typing import Any, ClassVar, Final, TypeAlias

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.listener import LimitedSessions

HEAD_S: Final = 10.0
_MAX_HEAD_BYTES: Final = 32 << 10
_MAX_LINES: Final = 100
_HEAD_END_PATTERN: Final = re.compile(rb"\n\r?\n")
# For blanks in front of such a byte the regular expressions of h11 0.16 take quadratic time: 64 kB took a minute.
# A line that begins with a blank continues the one before, so many of them are many blanks, too.
_REFUSED_BYTES: Final = re.compile(rb"[\0\v\f]|\r(?!\n)|\n[ \t]")
HEADERS: Final = frozenset(
    {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-prefix", b"forwarded"}
)


def http_protocol(limit: int, clock: Clock) -> type[HttpConnection]:
    """Return the class of the connections of one port, of which at most so many may be open."""

    class Connection(HttpConnection):
        open_connections = LimitedSessions[_CountedConnection](
            limit, clock, lambda connection: connection.has_asked, "connections"
        )

    return Connection


class Requests(h11.Connection):
    """The requests of one connection; h11 reads only heads that take it little time."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next part of a request. Raises: h11.RemoteProtocolError, it is not HTTP, or is refused."""
        if self.their_state is h11.IDLE:
            _check_head(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise h11.RemoteProtocolError("a body needs its length", error_status_hint=411)
        return event


def _check_head(data: bytes) -> None:
    end = _HEAD_END_PATTERN.search(data)
    head = data[: end.start() + 1] if end is not None else data
    if len(head) > _MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError("the head is too long", error_status_hint=431)
    if end is not None and (head.count(b"\n") > _MAX_LINES or _REFUSED_BYTES.search(head)):
        raise h11.RemoteProtocolError("the head has too many lines, or an invalid byte")


class HttpConnection(H11Protocol):
    """One connection. It counts until its end, also as a WebSocket, whose bytes another protocol reads."""

    open_connections: ClassVar[LimitedSessions[_CountedConnection]]
    has_asked = False  # a whole head has come
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = Requests(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _count(self, self.open_connections)
        self._limit_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_waiting()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        self._stop_waiting()
        self.has_asked = True
        socket = self.transport.get_protocol()
        connection_lost = socket.connection_lost

        def on_lost(exc: Exception | None) -> None:
            self._stop_counting()
            connection_lost(exc)

        socket.connection_lost = on_lost  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_counting()

    def _limit_waiting(self) -> None:
        """Limit the time in which the peer has to ask for something; bytes of a former request do not count."""
        cycle: Any = self.cycle
        is_asked = cycle is not None and not cycle.response_complete
        self.has_asked = self.has_asked or is_asked
        if is_asked:
            self._stop_waiting()
        elif self._deadline is None and self in self.open_connections.sessions:
            self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_counting(self) -> None:
        self.open_connections.discard(self)
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Handshake(asyncio.Protocol):
    """The protocol of an encrypted connection until its handshake has ended. It counts among the others of the port.

    asyncio's own server shows a connection only after the handshake, so that any number could be in theirs.
    """

    has_asked = False

    def __init__(self, connection: HttpConnection, context: ssl.SSLContext, limit_s: float) -> None:
        self._connection = connection
        self._context = context
        self._limit_s = limit_s
        self._early_bytes = b""
        self._is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.pause_reading()
        _count(self, self._connection.open_connections)
        if not transport.is_closing():
            loop = asyncio.get_running_loop()
            work = loop.start_tls(transport, self, self._context, server_side=True, ssl_handshake_timeout=self._limit_s)
            self._task = loop.create_task(self._shake_hands(_EagerTask(work)))

    def data_received(self, data: bytes) -> None:
        """Keep bytes that came with the end of the handshake."""
        self._early_bytes += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._connection.open_connections.discard(self)

    async def _shake_hands(self, task: _EagerTask) -> None:
        try:
            encrypted = await task
        except OSError:  # the peer left, is no TLS client, or was too slow
            self.transport.abort()
            encrypted = None
        self._connection.open_connections.discard(self)
        if encrypted is None or self._is_lost:
            return
        encrypted.set_protocol(self._connection)
        self._connection.connection_made(encrypted)
        if self._early_bytes:
            self._connection.data_received(self._early_bytes)


class _EagerTask:
    """A coroutine that has run up to its first wait, as an eager task of Python 3.12 would.

    uvloop reads from a new connection as soon as `connection_made` returns, although it is paused. A task begins after
    that, and the first bytes of the handshake would be lost.
    """

    def __init__(self, work: Coroutine[Any, Any, asyncio.Transport | None]) -> None:
        self._go_on, self._fail = work.send, work.throw
        self._awaited = self._go_on(None)

    def __await__(self) -> Generator[Any, None, asyncio.Transport | None]:
        awaited = self._awaited
        try:
            while True:
                try:
                    yield awaited
                except (OSError, asyncio.CancelledError) as error:
                    awaited = self._fail(error)
                else:
                    awaited = self._go_on(None)
        except StopIteration as end:
            transport: asyncio.Transport | None = end.value
            return transport


_CountedConnection: TypeAlias = HttpConnection | Handshake


def _count(connection: _CountedConnection, connections: LimitedSessions[_CountedConnection]) -> None:
    displaced = connections.add(connection)
    if displaced is not None:
        displaced.transport.abort()


class TrustedProxies:
    """An ASGI application before another one. It removes the headers of requests that come from no proxy."""

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        self._app = app
        self._networks = [ip_network(proxy) for proxy in proxies]
        self._behind_proxy = ProxyHeadersMiddleware(app, trusted_hosts=list(proxies))  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_proxy(scope):
            await self._behind_proxy(scope, receive, send)  # type: ignore[arg-type]
        else:
            headers = [(name, value) for name, value in scope["headers"] if name.lower() not in HEADERS]
            await self._app({**scope, "headers": headers}, receive, send)

    def _is_proxy(self, scope: Scope) -> bool:
        host = (scope.get("client") or ("", 0))[0]
        try:
            peer = ip_network(host)
        except ValueError:
            return False
        return any(proxy.version == peer.version and peer.subnet_of(proxy) for proxy in self._networks)  # type: ignore[arg-type]
