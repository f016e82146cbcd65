import asyncio

import pytest

from sparrowmq.client.consuming.consume_rate import Pace
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.popping.ack_buffer import AckBuffer
from sparrowmq.client.popping.pop_queue import PopQueue
from sparrowmq.client.popping.popper import Popper
from sparrowmq.client.popping.pops import Wish
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.remoting.handler import Answer
from tests.client.conftest import until
from tests.client.popping.answers import POP, fields, popped, rec
from tests.client.popping.conftest import ALL

QUEUE = MessageQueue("t", "broker-a", -1)


class World:
    """A topic that is popped at a scripted broker, which holds every other pop."""

    def __init__(self, popping) -> None:
        self.clock = popping.world.clock
        now = self.clock.monotonic
        self.owned = PopQueue(QUEUE, ConsumerSettings("g"), None, Pace(), (), AckBuffer(lambda: None), now)
        self.arrived: list[int] = []
        wish = Wish(ALL, 32, 60.0, 15.0)
        self.popper = Popper("g", self.owned, wish, popping.pops, popping.world.network, self._arrive)

    def _arrive(self, owned, messages) -> None:
        owned.hold(messages)
        self.arrived += [each.offset for each in messages]


@pytest.fixture
async def world(peer, popping):
    peer.usual[POP] = lambda _: None
    return World(popping)


async def test_it_pops_again_after_each_answer_and_counts(peer, world):
    peer.script(POP, popped(rec(7), rec(8)), popped(rec(9)))
    running = asyncio.create_task(world.popper.run())
    await until(lambda: len(fields(peer, POP)) == 3)
    assert world.arrived == [7, 8, 9]
    assert (world.owned.pace.pulls, world.owned.pace.pulled) == (2, 3)
    assert fields(peer, POP)[0]["pollTime"] == "15000"
    running.cancel()


async def test_it_does_not_pop_while_it_holds_many(peer, world):
    peer.script(POP, popped(*map(rec, range(32))))
    running = asyncio.create_task(world.popper.run())
    await until(lambda: len(world.arrived) == 32)
    await asyncio.sleep(0.02)
    assert len(fields(peer, POP)) == 1
    world.owned.settle(world.owned.held[0])
    await until(lambda: len(fields(peer, POP)) == 2)
    running.cancel()


async def test_it_goes_on_after_an_error_and_ends_at_a_broker_that_cannot_pop(peer, world):
    peer.script(POP, Answer(ResponseCode.SYSTEM_BUSY), Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    running = asyncio.create_task(world.popper.run())
    while not running.done():
        await world.clock.advance(1)
        await asyncio.sleep(0.001)
    with pytest.raises(ConfigError, match="broker-a cannot pop"):
        await running
    assert len(fields(peer, POP)) == 2
