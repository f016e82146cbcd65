"""A group that pops at a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sparrowmq.client.consuming.consumer_settings import subscription
from sparrowmq.client.consuming.received_message import DetachedOwner
from sparrowmq.client.popping.pop_requests import PopOptions, PopRequests
from sparrowmq.client.popping.popped_message import PoppedFrom
from tests.client.cluster.test_broker_sessions import World
from tests.client.popping.answers import answers

PLACE = PoppedFrom("t", "broker-a")
ALL = subscription("t", None, None, 5)


class Popping:
    """The pops of a group at a scripted broker."""

    def __init__(self, peer) -> None:
        self.world = World(peer)
        self.tasks: list[asyncio.Task] = []
        self.pops = PopRequests("g", self.world.network, self._spawn)
        self.owner = DetachedOwner(self.world.network.answers)

    def _spawn(self, coroutine, name):
        self.tasks.append(asyncio.create_task(coroutine, name=name))
        return self.tasks[-1]

    async def pop(self, **wish):
        wanted = PopOptions(wish.pop("filter", ALL), wish.pop("most", 16), 30.0, **wish)
        return await self.pops.pop(PLACE, wanted, self.owner)


@pytest.fixture
async def popping(peer) -> AsyncIterator[Popping]:
    peer.has("t")
    answers(peer)
    made = Popping(peer)
    await made.world.routes.of("t")
    yield made
    made.world.pool.close()
