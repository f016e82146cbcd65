import asyncio

import pytest

from sparrowmq.client.consuming.consume_rate import TopicStats
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, subscription
from sparrowmq.client.popping.pop_consumer import Popper
from sparrowmq.client.popping.pop_requests import PopOptions
from sparrowmq.client.popping.prefetch import AckBuffer, PopQueue, Prefetch
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.pop_headers import PopMessageReply
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until
from tests.client.popping.answers import CHANGE, POP, POPPED_MS, fields, popped, rec
from tests.client.popping.conftest import ALL

QUEUE = MessageQueue("t", "broker-a", -1)


class World:
    """A topic that is popped at a scripted broker, which holds every other pop."""

    def __init__(self, popping, prefetch: int | None = None, wanted: Subscription = ALL) -> None:
        self.clock = popping.world.clock
        settings = ConsumerSettings("g", mode="pop", prefetch=prefetch)
        self.credit = Prefetch(settings, self.clock.monotonic)
        self.owned = PopQueue(QUEUE, settings, None, TopicStats(), (), AckBuffer(lambda: None), self.credit)
        self.arrived: list[int] = []
        wish = PopOptions(wanted, 32, 60.0, 15.0)
        self.popper = Popper("g", self.owned, wish, popping.pops, popping.world.network, self._arrive)

    def _arrive(self, owned, messages) -> None:
        owned.add_popped(messages)
        self.credit.inbox.extend(messages)
        self.arrived += [each.offset for each in messages]


@pytest.fixture
async def world(peer, popping):
    peer.usual[POP] = lambda _: None
    return World(popping)


async def test_it_pops_again_after_each_answer_and_counts(peer, world, popping):
    peer.script(POP, popped(rec(7), rec(8)), popped(rec(9)))
    world = World(popping, prefetch=100)
    running = asyncio.create_task(world.popper.run())
    await until(lambda: len(fields(peer, POP)) == 3)
    assert world.arrived == [7, 8, 9]
    assert (world.owned.stats.pulls, world.owned.stats.pulled) == (2, 3)
    assert fields(peer, POP)[0]["pollTime"] == "15000"
    running.cancel()


async def test_it_does_not_pop_while_it_holds_many(peer, world):
    peer.script(POP, popped(*map(rec, range(32))))
    running = asyncio.create_task(world.popper.run())
    await until(lambda: len(world.arrived) == 32)
    await asyncio.sleep(0.02)
    assert len(fields(peer, POP)) == 1
    world.credit.inbox.take_nowait(32)
    world.owned.settle(world.owned.unsettled_messages[0])
    await until(lambda: len(fields(peer, POP)) == 2)
    running.cancel()


async def test_it_goes_on_after_an_error_and_ends_at_a_broker_that_cannot_pop(peer, world):
    peer.script(POP, Reply(ResponseCode.SYSTEM_BUSY), Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    running = asyncio.create_task(world.popper.run())
    while not running.done():
        await world.clock.advance(1)
        await asyncio.sleep(0.001)
    with pytest.raises(ConfigError, match="broker-a cannot pop"):
        await running
    assert len(fields(peer, POP)) == 2


async def test_the_next_pop_is_written_before_messages_are_handed_on(peer, world, popping):
    roomy = World(popping, prefetch=100)
    peer.script(POP, popped(rec(7)))
    session = await popping.world.network.brokers.of(QUEUE.broker_name)
    written: list[int] = []
    roomy.popper._on_popped = lambda *_: written.append(session.sent_bytes)
    running = asyncio.create_task(roomy.popper.run())
    await until(lambda: len(fields(peer, POP)) == 2)
    assert written == [session.sent_bytes]
    assert [each["maxMsgNums"] for each in fields(peer, POP)] == ["32", "32"]
    running.cancel()


async def test_messages_behind_an_answer_that_cannot_be_read_become_visible(peer, world, popping):
    roomy = World(popping, prefetch=100)
    broken = PopMessageReply(POPPED_MS, 30_000, 2, 0, "nonsense", None, None)
    peer.script(POP, Reply(0, broken, body=rec(7)), None)
    running = asyncio.create_task(roomy.popper.run())
    await until(lambda: len(fields(peer, POP)) == 2)
    answer = popped(rec(8))
    peer.sessions[0].reply(peer.requests(POP)[1], 0, answer.header, None, answer.body)
    await until(lambda: fields(peer, CHANGE))
    assert ([each["offset"] for each in fields(peer, CHANGE)], roomy.arrived) == (["8"], [])
    running.cancel()


@pytest.mark.parametrize("code", [ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND])
async def test_a_broker_that_finds_nothing_at_once_is_not_asked_without_a_pause(peer, world, code):
    peer.usual[POP] = lambda _: Reply(code, PopMessageReply())
    running = asyncio.create_task(world.popper.run())
    await until(lambda: len(fields(peer, POP)) == 6)
    await asyncio.sleep(0.02)
    assert len(fields(peer, POP)) == 6
    await world.clock.advance(0.001)
    await until(lambda: len(fields(peer, POP)) == 7)
    running.cancel()


async def test_no_pause_comes_between_messages_of_another_tag(peer, popping):
    peer.usual[POP] = lambda _: None
    peer.script(POP, *(popped(rec(offset, "b")) for offset in range(20)))
    running = asyncio.create_task(World(popping, prefetch=100, wanted=subscription("t", "a", None, 5)).popper.run())
    await until(lambda: len(fields(peer, POP)) == 21)
    running.cancel()
