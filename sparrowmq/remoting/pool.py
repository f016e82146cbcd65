"""Sessions by address: one connection for all callers. After a failure, attempts follow after growing pauses.

A firewall or a NAT that forgets a connection drops its packets and tells neither side, and the system would send the
same bytes again for a quarter of an hour. So a connection without acknowledgements ends after `MAX_UNACKNOWLEDGED_S`. A
peer that is paused or busy loses none: its system still acknowledges bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import Protocol, Self

from sparrowmq.errors import BrokerUnreachable, ClientClosed, ConfigError, TlsFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.frame import ANSWER_LIMITS
from sparrowmq.remoting.budget import SessionLimits
from sparrowmq.remoting.connection_errors import why_tls_failed, why_unconnected
from sparrowmq.remoting.session import Dispatch, Session

CONNECT_S = 3.0
FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 1.0  # a third of a send's usual time limit, so a waiting send sees the end of a restart
GOODBYE_S = 1.0
MAX_UNACKNOWLEDGED_S = 15.0  # far below the 120 s after which a name server forgets a broker


class ConnectionListener(Protocol):
    """Sees the connections of a pool."""

    def __call__(self, address: str, *, is_open: bool) -> None: ...


@dataclass(slots=True)
class _Backoff:
    reason: TlsFailed | str
    not_before: float
    pause_s: float


class Pool:
    """The outgoing sessions of one process. `dispatch` handles requests that peers push; by default none is handled."""

    def __init__(
        self,
        clock: Clock,
        dispatch: Dispatch | None = None,
        *,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        on_connection_change: ConnectionListener | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._dispatch = dispatch or _ignore
        self._limits = SessionLimits(ANSWER_LIMITS)
        self._sign = sign
        self._tls = tls
        self._on_connection_change = on_connection_change
        self._jitter = jitter
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._backoffs: dict[str, _Backoff] = {}
        self._closed = False
        self._ending_sessions: list[Session] = []
        self._turn = Turn()

    def live_session(self, address: str) -> Session | None:
        session = self._sessions.get(address)
        return session if session is not None and not session.closed else None

    async def session(self, address: str) -> Session:
        """Return the session to `host:port`; connect if there is none. Raises: BrokerUnreachable, the connection
        fails, or failed a moment ago; ClientClosed.
        """
        if session := self.live_session(address):
            return session
        async with self._locks.setdefault(address, asyncio.Lock()):
            return self.live_session(address) or await self._connect(address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()
        await self.wait_until_ended()

    def close(self) -> None:
        self._closed = True
        self._ending_sessions = [session for session in self._sessions.values() if not session.closed]
        for session in self._ending_sessions:
            session.close()
        self._sessions.clear()

    async def wait_until_ended(self) -> None:
        """Wait until the connections have ended, after `close`: with TLS both sides say goodbye. It takes at most a
        second.
        """
        if self._tls is None:
            return
        waits: list[asyncio.Future[None]] = []
        for session in self._ending_sessions:
            if not session.closed:
                waits.append(ended_future := asyncio.get_running_loop().create_future())
                session.on_end(partial(_resolve, ended_future))
        with contextlib.suppress(TimeoutError):
            await self._clock.wait_for(asyncio.gather(*waits), GOODBYE_S)
        for session in self._ending_sessions:
            session.abort()

    async def _connect(self, address: str) -> Session:
        if self._closed:
            raise ClientClosed("the client is closed")
        try:
            host, port = split_address(address)
        except ConfigError as error:  # a name server may send an invalid address; configured ones were checked
            raise BrokerUnreachable(address, error) from None
        backoff = self._backoffs.get(address)
        if backoff is not None and self._clock.monotonic() < backoff.not_before:
            last_reason = backoff.reason
            raise BrokerUnreachable(
                address, last_reason if isinstance(last_reason, TlsFailed) else f"{last_reason}, a moment ago"
            )
        try:
            session = await self._clock.wait_for(self._open(host, port), CONNECT_S)
        except (
            OSError,
            UnicodeError,
        ) as error:  # TimeoutError is an OSError; UnicodeError means an invalid name
            reason: TlsFailed | str = why_tls_failed(error) if self._tls else why_unconnected(error)
            reason = reason or f"no answer within {CONNECT_S:g} s"
            self._back_off(address, reason)
            raise BrokerUnreachable(address, reason) from None
        self._backoffs.pop(address, None)
        self._sessions[address] = session
        if self._on_connection_change is not None:
            session.on_end(partial(self._on_session_end, address))
            self._on_connection_change(address, is_open=True)
        return session

    def _on_session_end(self, address: str, _session: Session) -> None:
        if self._on_connection_change is not None and not self._closed:
            self._on_connection_change(address, is_open=False)

    async def _open(self, host: str, port: int) -> Session:
        loop = asyncio.get_running_loop()
        transport, session = await loop.create_connection(self._make_session, host, port, ssl=self._tls)
        if transport.is_closing():  # A closed socket takes no option, and that of uvloop raises ValueError.
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        _limit_silence(transport.get_extra_info("socket"))
        return session

    def _make_session(self) -> Session:
        return Session(self._dispatch, self._clock, self._limits, sign=self._sign, turn=self._turn)

    def _back_off(self, address: str, reason: TlsFailed | str) -> None:
        last = self._backoffs.get(address)
        pause_s = min(last.pause_s * 2, MAX_PAUSE_S) if last else FIRST_PAUSE_S
        not_before = self._clock.monotonic() + pause_s * (0.5 + self._jitter() / 2)
        self._backoffs[address] = _Backoff(reason, not_before, pause_s)


def _limit_silence(connection_socket: socket.socket | None) -> None:
    """Have the system end a connection if bytes are not acknowledged for `MAX_UNACKNOWLEDGED_S`. Only Linux can."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if connection_socket is not None and option is not None:
        connection_socket.setsockopt(socket.IPPROTO_TCP, option, int(1000 * MAX_UNACKNOWLEDGED_S))


def _resolve(ended_future: asyncio.Future[None], _: Session) -> None:
    if not ended_future.done():
        ended_future.set_result(None)


def _ignore(session: Session, command: Command) -> None:
    """Ignore requests that a peer pushes to a program without a handler."""
