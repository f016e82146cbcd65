import asyncio

import pytest

from sparrowmq.client.consuming.consume_rate import Pace
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, FlowLimits
from sparrowmq.client.popping.ack_buffer import AckBuffer
from sparrowmq.client.popping.pop_queue import PopQueue
from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt, popped_messages
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.clock import ManualClock
from tests.client.consuming.test_received import stored
from tests.client.popping.test_popped_message import HANDLE

QUEUE = MessageQueue("t", "broker-a", -1)


class World:
    def __init__(self, **settings) -> None:
        self.acks = AckBuffer(lambda: None)
        self.clock = ManualClock()
        given = ConsumerSettings("g", **settings)
        self.queue = PopQueue(QUEUE, given, None, Pace(), (), self.acks, self.clock.monotonic)

    @property
    def acked(self) -> list[PoppedMessage]:
        messages = self.acks.take()
        self.acks.extend(messages)
        return messages

    def hold(self, count: int) -> list[PoppedMessage]:
        receipt = Receipt("t", HANDLE, self.clock, 30.0)
        messages = popped_messages([stored() for _ in range(count)], QUEUE, receipt, self.queue)
        self.queue.hold(messages)
        return messages

    async def handle(self, times: int, per_s: int) -> None:
        """Hold as many messages as the next pop asks for, and settle them at a rate; so often."""
        for _ in range(times):
            messages = self.hold(self.queue.room_beside(0))
            await self.clock.advance(len(messages) / per_s)
            self.queue.settle_all(messages)


def test_settled_messages_are_acknowledged_and_those_given_back_are_not():
    world = World()
    done, given_back, held = world.hold(3)
    given_back._is_spent = True
    world.queue.settle_all([done, given_back])
    assert world.acked == [done]
    assert world.queue.held == [held]
    assert world.queue.unsettled_bytes == held.store_size
    world.queue.settle(held)
    assert (world.queue.unsettled, world.queue.unsettled_bytes) == (0, 0)


def test_a_forgotten_message_is_not_acknowledged_and_frees_its_place():
    world = World()
    (message,) = world.hold(1)
    world.queue.forget([message])
    assert (world.queue.held, world.queue.unsettled_bytes, world.acked) == ([], 0, [])


def test_a_message_whose_time_was_over_is_acknowledged_with_the_others():
    world = World()
    late, done = world.hold(2)
    world.queue.forget([late])
    world.queue.settle_all([late, done])
    assert world.acked == [late, done]
    assert (world.queue.unsettled, world.queue.unsettled_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 32), ({"concurrency": 40}, 80), ({"concurrency": 40, "flow": FlowLimits(messages=10)}, 10)],
)  # fmt: skip
def test_a_member_holds_few_messages_more_than_it_has_handlers(settings, most):
    world = World(**settings)
    world.hold(most - 1)
    assert world.queue.has_room
    world.hold(1)
    assert not world.queue.has_room


def test_one_message_that_is_handled_for_long_stops_nothing():
    world = World()
    world.hold(1)
    for _ in range(5000):
        world.queue.settle_all(world.hold(1))
    assert world.queue.has_room


async def test_quick_handlers_find_more_messages_here_and_slow_ones_leave_them_to_others():
    world = World()
    await world.handle(times=6, per_s=1000)
    assert world.queue.room_beside(0) == 100  # in 0.1 s
    await world.clock.advance(10.0)
    world.hold(1)
    assert world.queue.room_beside(0) == 32


async def test_a_whole_answer_for_a_quick_handler_leaves_room_for_the_next_pop():
    world = World()
    await world.handle(times=8, per_s=1_000_000)
    world.hold(512)
    assert world.queue.has_room
    world.hold(world.queue.room_beside(0))
    assert not world.queue.has_room


async def test_settling_makes_room_for_the_next_pop():
    world = World()
    messages = world.hold(32)
    waiting = asyncio.create_task(world.queue.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.queue.settle(messages[0])
    await waiting


def test_an_operator_sees_what_it_holds():
    world = World()
    world.hold(2)
    report = world.queue.report(0.0)
    assert (report.cached_msg_count, report.dropped) == (2, False)
