"""A listening socket and its sessions: limits, silent peers, graceful stop.

When the limit of connections is reached, a new one takes the place of a stranger: a connection without a complete
request that was allowed. Idle connections, half frames and unknown accounts are strangers; the oldest one goes first.
If there is none, the new connection is closed at once. So strangers lock no client out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.core import descriptors
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import for_each, run_to_end
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.wire.frame import FrameLimits
from sparrowmq.remoting.budget import Budget, BudgetLimits, SessionLimits
from sparrowmq.remoting.listener import LimitedSessions, Listener
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.server_session import ServerSession
from sparrowmq.remoting.session import Dispatch
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.encryption import Opening

log = logging.getLogger(__name__)

SLOWEST_RATE: Final = 64 * 1024  # bytes/s of a frame
# The frames of one peer, and the bytes of their headers, that are decoded before the clock is read again.
AT_ONCE: Final = FrameLimits(at_once=64, headers_at_once=128 * 1024)


@dataclass(frozen=True)
class ServerLimits:
    """The number of peers, and the time until a silent one is closed."""

    connections: int = 16_000  # above this number one without a request, or the new one, is closed (see above)
    backlog: int = 1024  # the number of connections that may wait to be accepted
    # A peer that sends no byte for this time is closed (Java: serverChannelMaxIdleTimeSeconds, 120). A peer that does
    # not read its answers counts as silent, because nothing is read from it.
    idle_s: float = 120.0
    # An unfinished frame that does not grow for this time is an attack or a broken peer. So is one that is not whole
    # after this time plus the time that it takes at SLOWEST_RATE.
    partial_frame_s: float = 30.0
    session: SessionLimits = field(default_factory=lambda: SessionLimits(AT_ONCE, unsent_bytes=512 * 1024))
    together: BudgetLimits = field(default_factory=BudgetLimits)  # the memory that all peers together may occupy


def limits_for(share: descriptors.Share) -> ServerLimits:
    """Return the usual limits, with as many connections as there are descriptors for."""
    return ServerLimits(connections=share.connections, backlog=share.backlog)


class Server:
    """Accepts sessions on one address; an async context manager that stops gracefully. `tls` decides by the first byte
    which connections are encrypted; without it none is.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        host: str,
        port: int,
        limits: ServerLimits | None = None,
        turn: Turn | None = None,
        *,
        tls: ServerTls | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.host = host
        # Handles requests; may be replaced between `bind` and `start`, when handlers need the port.
        self.dispatch = dispatch
        self.quotas = quotas  # limit the connections of addresses
        # The number of connections that were closed, by the reason: `limit` or `quota`.
        self.refused = {"limit": 0, "quota": 0}
        self._clock = clock
        self._turn = turn or Turn()
        self._limits = limits or ServerLimits()
        self._tls = tls
        # The memory of all connections; clients in this process (local_peer.py) share it.
        self.budget = Budget(clock, self._limits.together)
        self._listener = Listener(host, port)
        self._other_listeners: list[tuple[Listener, Dispatch]] = []
        self._bytes_ended = [0, 0]  # received and sent in connections that have ended
        self._refusal_log_limit = LogLimit(clock, 1)
        self._limited_sessions = LimitedSessions[ServerSession](
            self._limits.connections,
            clock,
            lambda session: session.is_introduced,
            host_of=lambda session: session.address.rpartition(":")[0],
        )
        self.sessions = self._limited_sessions.sessions  # the live connections

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The configured port, or the free one that was bound."""
        return self._listener.port

    @port.setter
    def port(self, port: int) -> None:
        self._listener.port = port

    @property
    def problem(self) -> str:
        return self._limited_sessions.problem

    def bind(self) -> None:
        """Bind the port without listening yet, so that other parts can learn it. Raises: ConfigError."""
        self._listener.bind()

    def also_at(self, listener: Listener, dispatch: Dispatch) -> None:
        """Accept connections at another door too; another dispatcher handles their requests. Call it before `start`."""
        self._other_listeners.append((listener, dispatch))

    async def start(self) -> None:
        await self._listener.open(self._protocol_factory(lambda: self.dispatch), self._limits.backlog)
        for listener, dispatch in self._other_listeners:
            await listener.open(self._protocol_factory(lambda dispatch=dispatch: dispatch), self._limits.backlog)  # type: ignore[misc]

    async def stop(self) -> None:
        """Stop accepting, send the answers that are ready, and end every session."""
        was_open = self._listener.is_open
        for listener in self._listeners:
            await listener.begin_accepted()
            listener.close()
        if not was_open:
            return
        for session in list(self.sessions):
            _end_session(session)
        for listener in self._listeners:
            await listener.wait_until_closed()
        await asyncio.sleep(0)  # Let the transports report their end.

    @property
    def most_connections(self) -> int:
        return self._limits.connections

    def received_bytes(self) -> int:
        return self._bytes_ended[0] + sum(session.received_bytes for session in self.sessions)

    def sent_bytes(self) -> int:
        return self._bytes_ended[1] + sum(session.sent_bytes for session in self.sessions)

    @property
    def _listeners(self) -> list[Listener]:
        return [self._listener, *(listener for listener, _ in self._other_listeners)]

    async def drop_silent_peers(self) -> None:
        """End the sessions of peers that vanished silently, until cancelled. The owner runs it in its task group."""
        period_s = min(self._limits.idle_s, self._limits.partial_frame_s) / 3
        self._clock.age(0)  # notice pauses from now on
        while True:
            await self._clock.sleep(period_s)
            await run_to_end(for_each(list(self.sessions), self._end_if_gone))

    def _end_if_gone(self, session: ServerSession) -> None:
        limits, clock = self._limits, self._clock
        silent_s, partial_s = clock.age(session.last_read), clock.age(session.partial_since)
        if silent_s > limits.idle_s:
            self.budget.log_limit.log(log, logging.INFO, "closing %s: silent for %.0f s", session.address, silent_s)
        elif session.pending_bytes and (
            silent_s > limits.partial_frame_s or partial_s > limits.partial_frame_s + session.frame_bytes / SLOWEST_RATE
        ):
            text = "closing %s: unfinished frame for %.0f s"
            self.budget.log_limit.log(log, logging.WARNING, text, session.address, partial_s)
        else:
            return
        _end_session(session)

    def _protocol_factory(self, dispatch: Callable[[], Dispatch]) -> Callable[[], Any]:
        tls = self._tls
        if tls is None:
            return lambda: self._make_session(dispatch())
        return lambda: Opening(self._make_session(dispatch()), tls, self._clock)

    def _make_session(self, dispatch: Dispatch) -> ServerSession:
        return ServerSession(
            dispatch, self._clock, self._limits.session, turn=self._turn, on_begin=self._admit, budget=self.budget
        )

    def _admit(self, session: ServerSession) -> None:
        if self.quotas is not None and not self.quotas.connect(session):
            self.refused["quota"] += 1
            session.abort()
            return
        session.on_end(self._on_session_end)
        ended_session = self._limited_sessions.add(session)
        if ended_session is not None:
            ended_session.abort()
            self.refused["limit"] += 1
            text = (
                "the limit is %d open connections; one above it was closed (those without a request first). "
                "A higher `ulimit -n` allows more, up to %d"
            )
            limit = self._limits.connections
            self._refusal_log_limit.log(log, logging.WARNING, text, limit, descriptors.MAX_CONNECTIONS)

    def _on_session_end(self, session: ServerSession) -> None:
        self._bytes_ended[0] += session.received_bytes
        self._bytes_ended[1] += session.sent_bytes
        self._limited_sessions.discard(session)


def _end_session(session: ServerSession) -> None:
    """End a session: gracefully if its peer reads, otherwise at once, as sending its answers might never end."""
    if session.is_backed_up:
        session.abort()
    else:
        session.close()
