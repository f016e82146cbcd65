"""A connection inside the process, between the gRPC port and the broker's dispatcher, without a socket.

    LocalLink ── session ── session ── dispatcher

Both ends are sessions, so the broker sees a client of the gRPC port as any other: with its own address, heartbeats,
groups, account and limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from sparrowmq.remoting.linked_session import LinkedSession


class End(asyncio.Transport):
    """The transport of one end. Commands cross without it: it knows the addresses, and ends the connection.

    Args:
        local, remote: host and port, as the session shows them.
    """

    def __init__(self, session: LinkedSession, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.other: End | None = None
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._is_closing = False

    def pause_reading(self) -> None:
        """Do nothing: the session itself leaves commands in its inbox."""

    resume_reading = pause_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: commands wait in the inbox of the other session."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End the connection, on both sides, after the commands that are on their way."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._ended)
            if self.other is not None:
                self._loop.call_soon(self.other.close)

    abort = close

    def _ended(self) -> None:
        self._session.connection_lost(None)
        self._session.other = self.other = None


def linked(
    client: LinkedSession,
    make: Callable[[], LinkedSession],
    client_at: tuple[str, int],
    broker_at: tuple[str, int],
) -> LinkedSession:
    """Connect a client's session with a session of the broker, which is made and returned."""
    served = make()
    client.other, served.other = served, client
    here, there = End(client, client_at, broker_at), End(served, broker_at, client_at)
    here.other, there.other = there, here
    served.connection_made(cast(asyncio.BaseTransport, there))
    client.connection_made(cast(asyncio.BaseTransport, here))
    return served
