"""A connection inside the process, between the gRPC port and the broker's dispatcher, without a socket.

    LocalLink ── session ── end ──bytes──> end ── session ── dispatcher

Both ends are ordinary sessions, so the broker sees a client of the gRPC port as any other: with its own address,
heartbeats, groups, account and limits. Bytes cross in the next turn of the loop, as many at once as were written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from sparrowmq.remoting.session import Session


class End(asyncio.Transport):
    """One end: what is written to it arrives at the session of the other end.

    Args:
        local, remote: host and port, as the session shows them.
    """

    def __init__(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._other: End | None = None
        self._inbox: list[bytes] = []
        self._is_due = False
        self._is_paused = False
        self._is_closing = False

    def connect(self, session: Session, other: End) -> None:
        """Deliver to this session, and send to the other end."""
        self._session, self._other = session, other

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._other is not None and not self._is_closing:
            self._other._take(bytes(data))

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._deliver_soon()

    def is_reading(self) -> bool:
        return not self._is_paused

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits in an end: it waits in the other one, until its session reads."""

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """End the connection, on both sides, after the bytes that are on their way."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._ended)
            if self._other is not None:
                self._loop.call_soon(self._other.close)

    abort = close

    def _take(self, data: bytes) -> None:
        self._inbox.append(data)
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        if self._inbox and not self._is_due and not self._is_paused:
            self._is_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        if self._session is not None and not self._session.closed and not self._is_paused:
            arrived, self._inbox = b"".join(self._inbox), []
            if arrived:
                self._session.data_received(arrived)

    def _ended(self) -> None:
        self._deliver()
        if self._session is not None:
            self._session.connection_lost(None)
        self._session = self._other = None
        self._inbox.clear()


def linked(
    client: Session, make: Callable[[], Session], client_at: tuple[str, int], broker_at: tuple[str, int]
) -> Session:
    """Connect a client's session with a session of the broker, which is made and returned."""
    served = make()
    here, there = End(client_at, broker_at), End(broker_at, client_at)
    here.connect(client, there)
    there.connect(served, here)
    served.connection_made(cast(asyncio.BaseTransport, there))
    client.connection_made(cast(asyncio.BaseTransport, here))
    return served
