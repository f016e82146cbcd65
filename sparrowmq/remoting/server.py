"""A listening socket and the sessions behind it: limits, silence, graceful stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field

from sparrowmq.clock import Clock
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.session import Dispatch, Session, SessionLimits
from sparrowmq.turn import Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerLimits:
    """How many peers, and how long a silent one is kept.

    Attributes:
        connections: more are closed at once.
        idle_s: without any bytes for so long a peer is gone (Java: serverChannelMaxIdleTimeSeconds, 120).
        partial_frame_s: an unfinished frame that does not grow for so long is an attack or a broken peer.
    """

    connections: int = 16_000
    idle_s: float = 120.0
    partial_frame_s: float = 30.0
    session: SessionLimits = field(default_factory=SessionLimits)


class Server:
    """Accepts sessions on one address; an async context manager that stops gracefully.

    Attributes:
        dispatch: what handles requests; may be replaced between `bind` and `start`, when handlers need the port.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        host: str,
        port: int,
        limits: ServerLimits | None = None,
        turn: Turn | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.sessions: set[Session] = set()
        self.dispatch = dispatch
        self._clock = clock
        self._turn = turn or Turn()
        self._limits = limits or ServerLimits()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def bind(self) -> None:
        """Take the port without listening yet, so that whoever needs it can be told. A port of 0 takes a free one.

        Raises:
            ConfigError: the address cannot be had.
        """
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host.strip("[]"), self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
        except OSError as error:
            self._release()
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port} ({error.strerror or error}); "
                "stop the program that uses the port, or choose another listenPort or address"
            ) from error
        self.port = self._socket.getsockname()[1]

    async def start(self) -> None:
        """Listen, after `bind` if that was not called.

        Raises:
            ConfigError: as `bind`.
        """
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._accept, sock=self._socket, backlog=1024
            )
        except OSError as error:
            self._release()
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port} ({error.strerror or error})"
            ) from error

    async def stop(self) -> None:
        """Stop accepting, send what was answered, end every session."""
        if self._server is None:
            self._release()
            return
        self._server.close()
        for session in list(self.sessions):
            session.close()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # Let the transports report their end.
        self._server = None
        self._socket = None

    async def drop_silent_peers(self) -> None:
        """For ever: end the sessions of peers that vanished without a word. The owner runs it in its task group."""
        period_s = min(self._limits.idle_s, self._limits.partial_frame_s) / 3
        while True:
            await self._clock.sleep(period_s)
            now = self._clock.monotonic()
            for session in list(self.sessions):
                silent_s = now - session.last_read
                if silent_s > self._limits.idle_s:
                    log.info("closing %s: silent for %.0f s", session.address, silent_s)
                    session.close()
                elif silent_s > self._limits.partial_frame_s and session.pending_bytes:
                    log.warning("closing %s: unfinished frame for %.0f s", session.address, silent_s)
                    session.close()

    def _release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _accept(self) -> Session:
        return Session(
            self.dispatch, self._clock, self._limits.session, turn=self._turn, on_begin=self._admit
        )

    def _admit(self, session: Session) -> None:
        self.sessions.add(session)
        session.on_end(self.sessions.discard)
        if len(self.sessions) > self._limits.connections:
            log.warning("refusing %s: %d connections are open", session.address, len(self.sessions) - 1)
            session.close()
