"""Real sessions for tests of what clients see."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Session
from sparrowmq.testing.clock import ManualClock
from tests.broker.members import Members
from tests.interop.etcd import LiveEtcd


@dataclass
class Peer:
    """A connected client: its own end of the connection, the broker's end, and what the broker pushed to it."""

    near: Session
    far: Session
    pushed: list[Command] = field(default_factory=list)

    def pushed_codes(self) -> list[int]:
        return [command.code for command in self.pushed]

    async def leave(self) -> None:
        """Close the connection; returns when the broker has noticed."""
        self.near.close()
        await until(lambda: self.far.closed)


Connect = Callable[[], Awaitable[Peer]]


async def until(holds: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Let the loop turn until the condition holds."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came to pass"
        await asyncio.sleep(0.001)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect()`: a client with a real connection, whose requests nobody answers."""
    clock = SystemClock()

    def ignore(session: Session, command: Command) -> None:
        """Tests ask handlers themselves."""

    async with Server(ignore, clock, "127.0.0.1", 0) as server:
        peers: list[Peer] = []

        async def connect() -> Peer:
            pushed: list[Command] = []
            _, near = await asyncio.get_running_loop().create_connection(
                lambda: Session(lambda _, command: pushed.append(command), clock),
                "127.0.0.1",
                server.port,
            )
            await until(lambda: near.local_address in {session.address for session in server.sessions})
            far = next(session for session in server.sessions if session.address == near.local_address)
            peers.append(Peer(near, far, pushed))
            return peers[-1]

        yield connect
        for peer in peers:
            peer.near.close()


@pytest.fixture(scope="module")
def etcd() -> Iterator[LiveEtcd]:
    with LiveEtcd() as live:
        yield live


@pytest.fixture
async def members(tmp_path: Path, etcd: LiveEtcd) -> AsyncIterator[Members]:
    found = Members(tmp_path, etcd, f"broker-{uuid4().hex}")  # a test that is run again finds no traces
    yield found
    await found.stop_all()
