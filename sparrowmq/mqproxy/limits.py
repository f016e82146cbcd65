"""The limits of all clients of `mqproxy` together: memory, connections to brokers, and questions at a time.

Each client has limits of its own, which thousands of clients multiply. Above these limits a client gets the answer
SYSTEM_BUSY. A client with few bytes still gets room: those that fill the memory must not lock others out.

All connections of clients together have a limited number of turns to ask a server:

    with a turn     at most MAX_ACTIVE questions, at most MAX_ACTIVE_OF_ONE of them for one connection
    waiting         a queue for each connection; the connections are served one after another

So a connection that asks for thousands of names delays another one by a few answers at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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

    def check_links(self) -> None:
        """Do nothing if one more connection to a broker may be opened. Raises: RemoteError."""
        if self.link_count >= self._max_links:
            raise _busy_error(f"{self.problem}; a higher `ulimit -n` of mqproxy allows more")

    def check_bytes(self, size: int, own_bytes: int) -> None:
        """Do nothing if a client with `own_bytes` may have so many more. Raises: RemoteError."""
        if self.held_bytes + size > MAX_BYTES and own_bytes + size > GUARANTEED_BYTES:
            raise _busy_error(f"requests of {self.held_bytes} bytes wait for answers of brokers; send this again later")


def _busy_error(text: str) -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_BUSY, f"mqproxy is busy: {text}")


@dataclass(slots=True)
class _Queue:
    """The questions of one connection: the number of those with a turn, and those that wait."""

    active: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def is_ready(self) -> bool:
        return bool(self.waiting) and self.active < MAX_ACTIVE_OF_ONE


class FairTurns:
    def __init__(self) -> None:
        self._active = 0
        self._queues: dict[Hashable, _Queue] = {}
        self._ready: dict[Hashable, None] = {}  # connections with a question that may have the next turn, in order

    def __len__(self) -> int:
        return self._active

    @asynccontextmanager
    async def turn(self, connection: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and have it inside the block."""
        queue = self._queues.setdefault(connection, _Queue())
        turn_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn_future)
        self._note_ready(connection)
        self._grant_turns()
        try:
            await turn_future
            yield
        finally:
            if turn_future.cancelled():
                self._grant_turns()  # drops it, if it would be the next
            else:
                self._active -= 1
                queue.active -= 1
                self._note_ready(connection)
                self._grant_turns()

    def _note_ready(self, connection: Hashable) -> None:
        queue = self._queues[connection]
        if queue.is_ready:
            self._ready.setdefault(connection)
        else:
            self._ready.pop(connection, None)
            if not queue.active and not queue.waiting:
                del self._queues[connection]

    def _grant_turns(self) -> None:
        while self._active < MAX_ACTIVE and self._ready:
            connection = next(iter(self._ready))
            del self._ready[connection]  # the others come first the next time
            queue = self._queues[connection]
            turn_future = queue.waiting.popleft()
            if not turn_future.cancelled():
                turn_future.set_result(None)
                queue.active += 1
                self._active += 1
            self._note_ready(connection)
