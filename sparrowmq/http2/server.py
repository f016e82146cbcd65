"""A gRPC server: a listening socket, the sessions of its clients, and the tasks of their calls.

async with GrpcServer({"/package.Service/Method": method}) as server:
    port = await server.start("127.0.0.1", 0)
    ...
    await server.drain(5.0)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final

from sparrowmq.errors import ClientClosed
from sparrowmq.http2.calls import GrpcError, Method, Status, Streaming
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.proxy_header import ProxyOpening
from sparrowmq.http2.session import GrpcSession, Hall
from sparrowmq.kernel.frame_layout import SILENT, STREAMING, UNARY
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.loop.tasks import Background, wait_until_idle
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.remoting.budget import TurnShare
from sparrowmq.remoting.listener import LimitedSessions, Listener
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.encryption import Opening

log = logging.getLogger(__name__)

CHECKS_IN_LIMIT: Final = 3  # within the shortest time limit


class GrpcServer:
    """A server of gRPC methods; an async context manager, whose end closes all connections and cancels all calls.

    Args:
        methods: by path, as `/package.Service/Method`.
        tls: decides by the first byte which connections are encrypted; without it none is.
        is_behind_proxy: every connection begins with a PROXY header, which names the client.
        turn: the loop's turn, if the methods answer through it.
        quotas: limit the connections of addresses.
    Attributes:
        sessions: the live connections.
        port: the real one, after `start`.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        limits: Limits | None = None,
        *,
        tls: ServerTls | None = None,
        is_behind_proxy: bool = False,
        clock: Clock | None = None,
        turn: Turn | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.port = 0
        self._occupied_bytes = 0
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._limited = LimitedSessions[GrpcSession](
            self._limits.connections,
            self._clock,
            lambda session: session.caller.is_known(),
            "gRPC connections",
            lambda session: session.caller.host,
        )
        self.sessions = self._limited.sessions
        self._tls = tls
        self._quotas = quotas
        self._is_behind_proxy = is_behind_proxy
        self._background = Background()
        self._door: Listener | None = None
        kinds = {
            path: (SILENT if method.may_be_silent else STREAMING) if isinstance(method, Streaming) else UNARY
            for path, method in methods.items()
        }
        self._hall = Hall(
            methods,
            kinds,
            self._limits,
            self._clock,
            turn or Turn(),
            self._spawn,
            self._begun,
            self._holds,
            LogLimit(self._clock),
            asyncio.Lock(),
            TurnShare(),
        )

    async def __aenter__(self) -> GrpcServer:
        await self._background.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.close()
        if self._door is not None:
            await self._door.wait_until_closed()
        await self._background.__aexit__(*error)

    @property
    def problem(self) -> str:
        """Why connections are closed, or were within the last seconds; "" if there is room for more."""
        return self._limited.problem

    async def start(self, host: str, port: int) -> int:
        """Listen, inside the `async with`. Returns the port: port 0 takes a free one.

        Raises:
            ConfigError: the address cannot be used.
            ClientClosed: it is outside.
        """
        self._background.spawn(self._check_sessions(), name="gRPC sessions")
        self._door = Listener(host, port, "grpcServerPort")
        await self._door.open(self._protocol, self._limits.backlog)
        self.port = self._door.port
        return self.port

    async def drain(self, most_s: float) -> None:
        """Accept no more connections and calls, and return when the open calls have ended, or after `most_s`."""
        if self._door is not None:
            await self._door.begin_accepted()
            self._door.close()
        for session in list(self.sessions):
            session.drain()
        await wait_until_idle(lambda: any(session.http2.streams for session in self.sessions), most_s)
        self.close()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._door is not None:
            self._door.close()
        for session in list(self.sessions):
            session.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task. Raises: GrpcError, the server is stopping."""
        try:
            return self._background.spawn(work)
        except ClientClosed:
            raise GrpcError(Status.UNAVAILABLE, "the server is stopping") from None

    def _protocol(self) -> Any:
        session = GrpcSession(self._hall)
        behind: GrpcSession | Opening = session
        if self._tls is not None:
            behind = Opening(session, self._tls, self._clock, is_silent=True)
        if self._is_behind_proxy:
            return ProxyOpening(behind, partial(self._named, session), session.drop)
        return behind

    def _named(self, session: GrpcSession, host: str, port: int) -> None:
        """Note the client's address in the header of a proxy."""
        session.comes_from(host, port)
        session.host = hosts.pack(session.address)
        self._admit(session)

    def _admit(self, session: GrpcSession) -> bool:
        """Whether the address of a client may have another connection, which else ends."""
        is_admitted = self._quotas is None or self._quotas.connect(session)
        if not is_admitted:
            session.abort()
        return is_admitted

    def _begun(self, session: GrpcSession) -> None:
        if not self._is_behind_proxy and not self._admit(session):
            return
        session.on_end(self._limited.discard)
        above = self._limited.add(session)
        if above is not None:
            above.abort()

    async def _check_sessions(self) -> None:
        limits = self._limits
        shortest_s = min(limits.opening_s, limits.partial_s, limits.unread_s, limits.idle_s, limits.ping_after_s)
        self._clock.age(0)  # notice pauses from now on
        while True:
            await self._clock.sleep(shortest_s / CHECKS_IN_LIMIT)
            await run_to_end(self._checks())

    def _checks(self) -> Steps[None]:
        for session in list(self.sessions):
            yield from session.check()
            yield

    def _holds(self, session: GrpcSession, change: int) -> None:
        self._occupied_bytes += change
        while change > 0 and self.sessions and self._occupied_bytes > self._limits.occupied_bytes:
            self._end_largest()

    def _end_largest(self) -> None:
        """End the connection that occupies most memory, as all together occupy too much."""
        session = max(self.sessions, key=lambda each: each.occupied_bytes)
        session.drop("its calls and unread answers occupy too much memory")
        session.connection_lost(None)  # its memory is free now, and not only in the next turn of the loop
