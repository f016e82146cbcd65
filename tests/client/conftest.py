"""Real clusters for clients to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.testing.cluster import Cluster
from tests.client.scripted import Scripted


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path / "cluster") as started:
        yield started


@pytest.fixture
async def mq(cluster: Cluster) -> AsyncIterator[Client]:
    async with connect(cluster.namesrv) as client:
        yield client


class EndingLoop(asyncio.SelectorEventLoop):
    """Ends right after somebody asked whether it has."""

    _ends = False

    def is_closed(self) -> bool:
        closed = super().is_closed()
        if not self._ends:
            self.close()
        return closed

    def close(self) -> None:
        self._ends = True
        super().close()


@pytest.fixture
def ending_loop() -> Iterator[EndingLoop]:
    loop = EndingLoop()
    yield loop
    loop.close()


@pytest.fixture
async def peer() -> AsyncIterator[Scripted]:
    """A name server and broker in one that answers what the test says."""
    async with Scripted() as started:
        yield started


async def until(holds: Callable[[], object], limit_s: float = 10.0) -> None:
    """Let the loop turn until the condition holds."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came to pass"
        await asyncio.sleep(0.001)
