"""A listening socket and its sessions: limits, silent peers, graceful stop.

When the limit of connections is reached, a new one takes the place of a stranger: a connection without a complete
request that was allowed. Idle connections, half frames, endless TLS handshakes and unknown accounts are strangers; the
oldest one goes first. So they lock no client out, not for a second. A new client becomes known with its first request.
If there is no stranger, the new connection is closed at once. Its owner sees that immediately, and connected clients
notice nothing.
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
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.session import Dispatch, Session, protocol_of
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.encryption import Opening

log = logging.getLogger(__name__)

SLOWEST_RATE: Final = 64 * 1024  # bytes/s of a frame
# The frames of one peer, and the bytes of their headers, that are decoded before the clock is read again.
AT_ONCE: Final = FrameLimits(at_once=64, headers_at_once=128 * 1024)
REFUSALS_TOLD_S: Final = 60.0  # seconds between two log lines about connections above the limit


@dataclass(frozen=True)
class ServerLimits:
    """The number of peers, and the time until a silent one is closed.

    Attributes:
        connections: above this number one without a request, or the new one, is closed (see above).
        backlog: the number of connections that may wait to be accepted.
        idle_s: a peer that sends no byte for this time is closed (Java: serverChannelMaxIdleTimeSeconds, 120). A peer
            that does not read its answers counts as silent, because nothing is read from it.
        partial_frame_s: an unfinished frame that does not grow for this time is an attack or a broken peer. So is one
            that is not whole after this time plus the time that it takes at SLOWEST_RATE.
        together: the memory that all peers together may occupy.
    """

    connections: int = 16_000
    backlog: int = 1024
    idle_s: float = 120.0
    partial_frame_s: float = 30.0
    session: SessionLimits = field(default_factory=lambda: SessionLimits(AT_ONCE, unsent_bytes=512 * 1024))
    together: BudgetLimits = field(default_factory=BudgetLimits)


def limits_for(share: descriptors.Share) -> ServerLimits:
    """Return the usual limits, with as many connections as there are descriptors for."""
    return ServerLimits(connections=share.connections, backlog=share.backlog)


class Server:
    """Accepts sessions on one address; an async context manager that stops gracefully.

    Attributes:
        sessions: the live connections.
        dispatch: handles requests; may be replaced between `bind` and `start`, when handlers need the port.
        quotas: limit the connections of addresses.
        budget: the memory of all connections; those inside the process (linked_session.py) share it.
        refused: the number of connections that were closed, by the reason: `limit` or `quota`.
    Args:
        tls: decides by the first byte which connections are encrypted; without it none is.
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
    ) -> None:
        self.host = host
        self.dispatch = dispatch
        self.quotas: Quotas | None = None
        self.refused = {"limit": 0, "quota": 0}
        self._clock = clock
        self._turn = turn or Turn()
        self._limits = limits or ServerLimits()
        self._tls = tls
        self.budget = Budget(clock, self._limits.together)
        self._door = Listener(host, port)
        self._others: list[tuple[Listener, Dispatch]] = []
        self._bytes_ended = [0, 0]  # received and sent in connections that have ended
        self._refused = 0
        self._refusals_told = -REFUSALS_TOLD_S
        self._limited = LimitedSessions[Session](
            self._limits.connections,
            clock,
            lambda session: session.is_introduced,
            host_of=lambda session: session.address.rpartition(":")[0],
        )
        self.sessions = self._limited.sessions

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The configured port, or the free one that was bound."""
        return self._door.port

    @port.setter
    def port(self, port: int) -> None:
        self._door.port = port

    @property
    def problem(self) -> str:
        """Why connections are closed, or were within the last seconds; "" if there is room for more."""
        return self._limited.problem

    def bind(self) -> None:
        """Bind the port without listening yet, so that other parts can learn it. Port 0 takes a free one.

        Raises: ConfigError, the address cannot be used.
        """
        self._door.bind()

    def also_at(self, door: Listener, dispatch: Dispatch) -> None:
        """Accept connections at another door too; another dispatcher handles their requests. Call it before `start`."""
        self._others.append((door, dispatch))

    async def start(self) -> None:
        """Listen, after `bind` if it was not called. Raises: ConfigError, as `bind`."""
        await self._door.open(self._protocol(lambda: self.dispatch), self._limits.backlog)
        for door, dispatch in self._others:
            await door.open(self._protocol(lambda dispatch=dispatch: dispatch), self._limits.backlog)  # type: ignore[misc]

    async def stop(self) -> None:
        """Stop accepting, send the answers that are ready, and end every session."""
        was_open = self._door.is_open
        for door in self._doors:
            await door.all_begun()
            door.close()
        if not was_open:
            return
        for session in list(self.sessions):
            _end(session)
        for door in self._doors:
            await door.closed()
        await asyncio.sleep(0)  # Let the transports report their end.

    @property
    def most_connections(self) -> int:
        """The number of connections that may be open."""
        return self._limits.connections

    def received_bytes(self) -> int:
        """Return the bytes that all connections have brought."""
        return self._bytes_ended[0] + sum(session.received_bytes for session in self.sessions)

    def sent_bytes(self) -> int:
        """Return the bytes that all connections have got."""
        return self._bytes_ended[1] + sum(session.sent_bytes for session in self.sessions)

    @property
    def _doors(self) -> list[Listener]:
        return [self._door, *(door for door, _ in self._others)]

    async def drop_silent_peers(self) -> None:
        """End the sessions of peers that vanished silently, until cancelled. The owner runs it in its task group."""
        period_s = min(self._limits.idle_s, self._limits.partial_frame_s) / 3
        self._clock.age(0)  # notice pauses from now on
        while True:
            await self._clock.sleep(period_s)
            await run_to_end(for_each(list(self.sessions), self._end_if_gone))

    def _end_if_gone(self, session: Session) -> None:
        limits, clock = self._limits, self._clock
        silent_s, partial_s = clock.age(session.last_read), clock.age(session.partial_since)
        if silent_s > limits.idle_s:
            self.budget.lines.log(log, logging.INFO, "closing %s: silent for %.0f s", session.address, silent_s)
        elif session.pending_bytes and (
            silent_s > limits.partial_frame_s or partial_s > limits.partial_frame_s + session.frame_bytes / SLOWEST_RATE
        ):
            text = "closing %s: unfinished frame for %.0f s"
            self.budget.lines.log(log, logging.WARNING, text, session.address, partial_s)
        else:
            return
        _end(session)

    def _protocol(self, dispatch: Callable[[], Dispatch]) -> Callable[[], Any]:
        tls = self._tls
        if tls is None:
            return protocol_of(lambda: self._session(dispatch()))
        return lambda: Opening(self._session(dispatch()), tls, self._clock)

    def _session(self, dispatch: Dispatch) -> Session:
        return Session(
            dispatch, self._clock, self._limits.session, turn=self._turn, on_begin=self._admit, budget=self.budget
        )

    def _admit(self, session: Session) -> None:
        if self.quotas is not None and not self.quotas.connect(session):
            self.refused["quota"] += 1
            session.abort()
            return
        session.on_end(self._part)
        above = self._limited.add(session)
        if above is not None:
            above.abort()
            self._refused += 1
            self.refused["limit"] += 1
            self._tell_of_refusals()

    def _part(self, session: Session) -> None:
        self._bytes_ended[0] += session.received_bytes
        self._bytes_ended[1] += session.sent_bytes
        self._limited.discard(session)

    def _tell_of_refusals(self) -> None:
        now = self._clock.monotonic()
        if now - self._refusals_told < REFUSALS_TOLD_S:
            return
        log.warning(
            "the limit is %d open connections; %d above it were closed (those without a request first). "
            "A higher `ulimit -n` allows more, up to %d",
            self._limits.connections,
            self._refused,
            descriptors.MAX_CONNECTIONS,
        )
        self._refusals_told, self._refused = now, 0


def _end(session: Session) -> None:
    """End a session: gracefully if its peer reads, otherwise at once, as sending its answers might never end."""
    if session.is_backed_up:
        session.abort()
    else:
        session.close()
