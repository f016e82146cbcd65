import asyncio

import pytest

from sparrowmq.client.consuming.consume_rate import TopicStats
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, FlowLimits
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt
from sparrowmq.client.popping.prefetch import AckBuffer, PopQueue, Prefetch
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.clock import ManualClock
from tests.client.popping.test_popped_message import HANDLE, popped

QUEUE = MessageQueue("t", "broker-a", -1)


class World:
    def __init__(self, **settings) -> None:
        self.acks = AckBuffer(lambda: None)
        self.clock = ManualClock()
        self.settings = ConsumerSettings("g", mode="pop", **settings)
        self.credit = Prefetch(self.settings, self.clock.monotonic)
        self.queue = self.another()

    def another(self) -> PopQueue:
        return PopQueue(QUEUE, self.settings, None, TopicStats(), (), self.acks, self.credit)

    @property
    def acked(self) -> list[PoppedMessage]:
        messages = self.acks.take()
        self.acks.extend(messages)
        return messages

    def hold(self, count: int) -> list[PoppedMessage]:
        receipt = Receipt("t", HANDLE, self.clock, 30.0)
        messages = popped(receipt, count, QUEUE, self.queue)
        self.queue.add_popped(messages)
        return messages

    def deliver(self, count: int) -> list[PoppedMessage]:
        """Hold messages that wait for handlers."""
        messages = self.hold(count)
        self.credit.inbox.extend(messages)
        return messages

    async def handle(self, times: int, per_s: int) -> None:
        """Hold as many messages as the next pop asks for, and settle them at a rate; so often."""
        for _ in range(times):
            messages = self.deliver(self.queue.room_beside(0))
            await self.clock.advance(len(messages) / per_s)
            self.credit.inbox.take_nowait(len(messages))
            self.queue.settle_all(messages)


def test_settled_messages_are_acknowledged_and_those_given_back_are_not():
    world = World()
    done, given_back, held = world.hold(3)
    given_back._is_spent = True
    world.queue.settle_all([done, given_back])
    assert world.acked == [done]
    assert world.queue.unsettled_messages == [held]
    assert world.queue.unsettled_bytes == held.store_size
    world.queue.settle(held)
    assert (world.queue.unsettled_count, world.queue.unsettled_bytes) == (0, 0)


def test_a_forgotten_message_is_not_acknowledged_and_frees_its_place():
    world = World()
    (message,) = world.hold(1)
    world.queue.forget([message])
    assert (world.queue.unsettled_messages, world.queue.unsettled_bytes, world.acked) == ([], 0, [])


def test_a_message_whose_time_was_over_is_acknowledged_with_the_others():
    world = World()
    late, done = world.hold(2)
    world.queue.forget([late])
    world.queue.settle_all([late, done])
    assert world.acked == [late, done]
    assert (world.queue.unsettled_count, world.queue.unsettled_bytes) == (0, 0)


async def handlers(world: World, count: int) -> list[asyncio.Task[ReceivedMessage]]:
    """So many handlers that wait for messages."""
    waiting = [asyncio.create_task(world.credit.inbox.take()) for _ in range(count)]
    await asyncio.sleep(0)
    return waiting


@pytest.mark.parametrize(
    ("settings", "idle", "most"),
    [
        ({}, 16, 17),
        ({"prefetch": 0}, 1, 1),
        ({"prefetch": 5}, 2, 7),
        ({"batch": 10}, 3, 31),
    ],
)
async def test_consumer_pops_what_its_handlers_wait_for_and_a_few_messages_more(settings, idle, most):
    world = World(**settings)
    waiting = await handlers(world, idle)
    assert world.queue.room_beside(0) == most
    world.deliver(most)
    assert not world.queue.has_room
    await asyncio.wait(waiting)
    assert not world.queue.has_room  # they are handled now


def test_flow_limits_what_is_not_settled():
    world = World(flow=FlowLimits(messages=10), prefetch=50)
    assert world.queue.room_beside(0) == 10
    world.hold(9)
    assert world.queue.has_room and not world.queue.is_full
    world.hold(1)
    assert not world.queue.has_room and world.queue.is_full


async def test_handler_that_is_free_makes_room():
    world = World(prefetch=0)
    assert not world.queue.has_room
    waiting = asyncio.create_task(world.queue.wait_for_change())
    await asyncio.sleep(0)
    assert not waiting.done()
    await handlers(world, 1)
    await waiting
    assert world.queue.room_beside(0) == 1


async def test_topics_and_brokers_share_what_a_consumer_may_pop():
    world = World()
    other = world.another()
    handling = await handlers(world, 16)
    world.queue.requested_count = world.queue.room_beside(0)
    assert (world.queue.requested_count, other.room_beside(0)) == (17, 1)
    world.deliver(17)
    await asyncio.wait(handling)
    assert not other.has_room
    waiting = asyncio.create_task(other.wait_for_change())
    await asyncio.sleep(0)
    world.queue.settle(world.credit.inbox.take_nowait(1)[0])
    await waiting


async def test_quick_handlers_find_more_messages_here_while_the_broker_has_more():
    world = World()
    world.queue.has_more = True
    await world.handle(times=20, per_s=1000)
    assert world.queue.room_beside(0) in (99, 100)  # in 0.1 s
    world.queue.has_more = False
    assert world.queue.room_beside(0) == 1  # what comes later may take long
    world.queue.has_more = True
    await world.clock.advance(10.0)
    world.queue.settle_all(world.deliver(1))
    assert world.queue.room_beside(0) == 1


async def test_with_prefetch_quick_handlers_get_no_more():
    world = World(prefetch=3)
    world.queue.has_more = True
    await world.handle(times=8, per_s=1000)
    assert world.queue.room_beside(0) == 3


@pytest.mark.parametrize("spread_s", [0.001, 0.05, 0.15, 0.5])
async def test_slow_handlers_that_end_together_are_not_quick(spread_s):
    world = World()
    world.queue.has_more = True
    handled = world.deliver(17)[:16]
    world.credit.inbox.take_nowait(16)
    for _ in range(4):
        await world.clock.advance(2.0)
        for message in handled:
            world.queue.settle(message)
            await world.clock.advance(spread_s / 16)
            world.credit.inbox.take_nowait(1)
            world.deliver(1)
            assert world.credit.ahead(world.queue) == 1
        handled = world.queue.unsettled_messages[:16]


async def test_a_whole_answer_for_a_quick_handler_leaves_room_for_the_next_pop():
    world = World()
    world.queue.has_more = True
    await world.handle(times=30, per_s=1_000_000)
    assert world.queue.room_beside(0) == 1000
    world.deliver(512)
    assert world.queue.has_room
    world.deliver(world.queue.room_beside(0))
    assert not world.queue.has_room


def test_an_operator_sees_what_it_holds():
    world = World()
    world.hold(2)
    report = world.queue.report(0.0)
    assert (report.cached_msg_count, report.dropped) == (2, False)
