"""The connections of the console's port: before a log-in, no visitor can hold all of them or fill the memory.

    head of a request    at most 64 KiB; h11 reads one request at a time, also of a client that sends many together
    waiting              at most 10 s for a whole head, however slowly its bytes come; 5 s for its first byte after an
                         answer, as uvicorn has it
    connections          above the limit the oldest goes that has asked for nothing yet

uvicorn's other parser, httptools, has none of these limits.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.limited_sessions import LimitedSessions

HEAD_S: Final = 10.0


def http_protocol(most: int, clock: Clock) -> type[H11Protocol]:
    """Return the class of the connections of one port, of which at most so many may be open."""

    class Connection(_Connection):
        all = LimitedSessions[_Connection](most, clock, lambda each: each.has_asked, "connections")

    return Connection


class _Connection(H11Protocol):
    """One connection, until it becomes a WebSocket.

    Attributes:
        has_asked: a whole head has come.
    """

    all: ClassVar[LimitedSessions[_Connection]]
    has_asked = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        above = self.all.add(self)
        if above is not None:
            above.transport.abort()
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave()

    def _look(self) -> None:
        """Limit the time in which the peer has to ask for something; bytes of a former request do not count."""
        cycle: Any = self.cycle
        is_asked = cycle is not None and not cycle.response_complete
        self.has_asked = self.has_asked or is_asked
        if is_asked:
            self._stop_waiting()
        elif self._deadline is None and self in self.all.sessions:
            self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)

    def _leave(self) -> None:
        self.all.discard(self)
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
