"""A real server on a free port and a real session to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.server import Server, ServerLimits
from sparrowmq.remoting.session import Session

Serve = Callable[..., AbstractAsyncContextManager[tuple[Server, Session]]]


def ignore(session: Session, command: Command) -> None:
    """A peer that is not expected to ask."""


@pytest.fixture
def serve() -> Serve:
    """`serve(dispatch)`: a server with this dispatcher, and a session connected to it."""

    @asynccontextmanager
    async def run(
        dispatch: Callable[[Session, Command], None],
        *,
        clock: Clock | None = None,
        limits: ServerLimits | None = None,
        pushed: Callable[[Session, Command], None] = ignore,
    ) -> AsyncIterator[tuple[Server, Session]]:
        clock = clock or SystemClock()
        async with Server(dispatch, clock, "127.0.0.1", 0, limits) as server:
            loop = asyncio.get_running_loop()
            _, session = await loop.create_connection(lambda: Session(pushed, clock), "127.0.0.1", server.port)
            try:
                yield server, session
            finally:
                session.close()

    return run


async def until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Give the loop turns until a condition holds."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0)
