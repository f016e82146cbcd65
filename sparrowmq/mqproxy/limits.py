"""The limits of all clients of `mqproxy` together: memory, connections to brokers, and questions at a time.

Each client has limits of its own, which thousands of clients multiply. Above these limits a client gets the answer
SYSTEM_BUSY. A client with few bytes still gets room: those that fill the memory must not lock others out.

All connections of clients together have a limited number of turns to ask a server:

    with a turn     at most MAX_ACTIVE questions, at most MAX_ACTIVE_OF_ONE of them for one connection
    waiting         a line of connections, each with one question in it; its others wait behind this one

So a connection that asks for thousands of names delays another one by a few answers at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode

MAX_BYTES: Final = 256 * 1024 * 1024  # of requests that wait for answers
GUARANTEED_BYTES: Final = 64 * 1024  # of one client, which it may have in any case
MAX_ACTIVE: Final = 16
MAX_ACTIVE_OF_ONE: Final = 4


class Capacity:
    """The memory and the connections to brokers of one port. Users have a connection to each of their brokers."""

    def __init__(self, max_links: int) -> None:
        self.link_count = 0
        self.held_bytes = 0
        self._max_links = max_links

    @property
    def problem(self) -> str:
        """Why clients are refused now; "" if there is room."""
        if self.link_count < self._max_links:
            return ""
        return f"users at the gRPC port have {self.link_count} connections to brokers, and no more may be"

    def add_link(self) -> None:
        """Count one more connection to a broker. Raises: RemoteError, there are too many."""
        if self.link_count >= self._max_links:
            raise _busy_error(f"{self.problem}; a higher `ulimit -n` of mqproxy allows more")
        self.link_count += 1

    def remove_link(self, _: object = None) -> None:
        self.link_count -= 1

    def check_bytes(self, size: int, own_bytes: int) -> None:
        """Do nothing if a client with `own_bytes` may have so many more. Raises: RemoteError."""
        if self.held_bytes + size > MAX_BYTES and own_bytes + size > GUARANTEED_BYTES:
            raise _busy_error(f"requests of {self.held_bytes} bytes wait for answers of brokers; send this again later")


def _busy_error(text: str) -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_BUSY, f"mqproxy is busy: {text}")


class FairTurns:
    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_ACTIVE)
        self._limits: dict[Hashable, tuple[asyncio.Semaphore, asyncio.Lock]] = {}  # by connection
        self._questions: Counter[Hashable] = Counter()  # of each connection, with a turn or waiting

    @asynccontextmanager
    async def turn(self, connection: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and have it inside the block."""
        own_limits = asyncio.Semaphore(MAX_ACTIVE_OF_ONE), asyncio.Lock()
        own_turns, next_in_line = self._limits.setdefault(connection, own_limits)
        self._questions[connection] += 1
        try:
            async with own_turns:
                async with next_in_line:  # so that each connection has one place among those that wait
                    await self._all.acquire()
                try:
                    yield
                finally:
                    self._all.release()
        finally:
            self._questions[connection] -= 1
            if not self._questions[connection]:
                del self._questions[connection], self._limits[connection]
