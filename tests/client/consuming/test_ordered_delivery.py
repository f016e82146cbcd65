import asyncio

import pytest

from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.client.consuming.delivery import InboxClosed, OrderedDelivery
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.pulling import STALLED_S
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.errors import BrokerUnreachable
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.clock import ManualClock
from tests.client.consuming.test_received import message_at

QUEUES = [MessageQueue("t", "a", number) for number in range(2)]


class Aside(BrokerRedelivery):
    """Takes the messages that failed too often, as long as `failures` is 0."""

    def __init__(self) -> None:
        self.failures = 0
        self.copies: list[tuple[int, int]] = []

    async def send_copy(self, message, reconsume_times: int) -> None:
        if self.failures:
            self.failures -= 1
            raise BrokerUnreachable("a", "gone")
        self.copies.append((message.offset, reconsume_times))

    async def reject(self, message) -> None:
        await self.send_copy(message, -1)


class World:
    def __init__(self, background: Background, batch: int = 1, limit: int | None = None, lock: bool = True) -> None:
        self.clock = ManualClock()
        self.aside = Aside()
        self.delivery = OrderedDelivery(batch, self.aside, limit, lock, self.clock, background.spawn)
        self.owned = [ProcessQueue(queue, 0, FlowLimits()) for queue in QUEUES]
        for each in self.owned:
            each.locked_until = 30.0

    def pull(self, count: int, index: int = 0) -> None:
        self.delivery.open()
        owned = self.owned[index]
        first = owned.next_offset
        owned.next_offset += count
        messages = [message_at(first + n) for n in range(count)]
        self.delivery.add_pulled(owned, messages)

    async def take(self):
        return await asyncio.wait_for(self.delivery.take(1), 1)

    async def is_idle(self) -> bool:
        taking = asyncio.ensure_future(self.delivery.take(1))
        await self.clock.advance(0)
        return taking.cancel()


@pytest.fixture
async def background():
    async with Background() as started:
        yield started


@pytest.fixture
def world(background) -> World:
    return World(background)


@pytest.mark.covers("S-CONS-04")
async def test_the_next_message_of_a_queue_waits_for_the_last_one(world):
    world.pull(2)
    (first,) = await world.take()
    assert await world.is_idle()
    first.ack()
    (second,) = await world.take()
    assert (first.offset, second.offset) == (0, 1) and world.owned[0].commit_offset == 1


async def test_queues_do_not_wait_for_each_other(world):
    world.pull(1, index=0)
    world.pull(1, index=1)
    assert {(await world.take())[0].queue for _ in range(2)} == set(QUEUES)


@pytest.mark.covers("S-CONS-17")
async def test_a_failed_message_blocks_its_queue_for_a_second_and_comes_again(world):
    world.pull(2)
    (first,) = await world.take()
    first.retry()
    await world.clock.advance(0.9)
    assert await world.is_idle()
    await world.clock.advance(0.1)
    (again,) = await world.take()
    assert again is first and again.reconsume_times == 1
    again.ack()
    assert (await world.take())[0].offset == 1


async def test_of_a_portion_only_what_failed_comes_again_in_order(background):
    world = World(background, batch=4)
    world.pull(6)
    portion = await world.take()
    assert [each.offset for each in portion] == [0, 1, 2, 3]
    for each in (portion[3], portion[1]):
        each.retry()
    portion[0].ack()
    assert await world.is_idle()
    portion[2].ack()
    await world.clock.advance(1)
    assert [each.offset for each in await world.take()] == [1, 3, 4, 5]


@pytest.mark.covers("S-CONS-20")
async def test_after_the_last_failure_a_message_is_set_aside(background):
    world = World(background, limit=1)
    world.pull(2)
    for _ in range(2):
        (message,) = await world.take()
        message.retry()
        await world.clock.advance(1)
    assert world.aside.copies == [(0, 1)] and world.owned[0].commit_offset == 1
    assert (await world.take())[0].offset == 1


async def test_a_message_that_cannot_be_set_aside_is_tried_again(background):
    world = World(background, limit=0)
    world.aside.failures = 1
    world.pull(1)
    (message,) = await world.take()
    message.retry()
    await world.clock.advance(1)
    (again,) = await world.take()
    again.retry()
    await world.clock.advance(0)
    assert world.aside.copies == [(0, 1)]


@pytest.mark.covers("S-CONS-17")
async def test_without_a_fresh_lock_nothing_is_delivered(world):
    await world.clock.advance(30)
    world.pull(1)
    assert await world.is_idle()
    world.owned[0].locked_until = 60.0
    world.delivery.offer_withdrawn(world.owned[0])
    assert (await world.take())[0].offset == 0


async def test_a_broadcast_group_needs_no_lock(background):
    world = World(background, lock=False)
    await world.clock.advance(100)
    world.pull(1)
    assert (await world.take())[0].offset == 0


async def test_a_queue_that_is_to_be_given_up_delivers_no_more(world):
    world.pull(2)
    (first,) = await world.take()
    world.owned[0].leave()
    first.ack()
    assert await world.is_idle()
    world.owned[0].stay()
    world.delivery.offer_withdrawn(world.owned[0])
    assert (await world.take())[0].offset == 1


async def test_a_queue_of_somebody_else_is_left_alone(world):
    world.pull(2)
    (first,) = await world.take()
    world.owned[0].drop()
    first.ack()
    assert world.owned[0].commit_offset == 0 and await world.is_idle()
    world.delivery.close()
    with pytest.raises(InboxClosed):
        await world.delivery.take(1)


async def test_a_paused_queue_keeps_what_nobody_has_taken(world):
    world.pull(2)
    world.owned[0].is_paused = True
    world.delivery.withdraw(world.owned[0])
    assert await world.is_idle()
    assert not world.owned[0].handed_out
    world.owned[0].is_paused = False
    world.delivery.offer_withdrawn(world.owned[0])
    (first,) = await world.take()
    first.ack()
    assert [first.offset, (await world.take())[0].offset] == [0, 1]


async def test_a_cancelled_message_is_tried_again_and_never_set_aside(background):
    world = World(background, limit=0)
    world.pull(1)
    (message,) = await world.take()
    message._cancel()
    await world.clock.advance(1)
    assert (await world.take()) == [message] and not world.aside.copies


async def test_what_is_set_aside_before_the_end_is_waited_for(background):
    world = World(background, limit=0)
    world.pull(1)
    (message,) = await world.take()
    message.retry()
    world.delivery.close()
    await world.delivery.wait_until_given_back()
    assert world.aside.copies == [(0, 0)] and world.owned[0].commit_offset == 1


@pytest.mark.parametrize(
    ("suspend_s", "options", "waits_s"),
    [
        (1.0, None, 1.0),
        (2.5, None, 2.5),
        (1.0, 0.2, 0.2),
        (2.5, 0.0001, 0.01),
        (500, None, 30),
        (1.0, 500, 30),
    ],
)
@pytest.mark.covers("S-CONS-17")
async def test_how_long_a_queue_waits_is_set_and_each_message_may_wish_otherwise(
    background, suspend_s, options, waits_s
):
    world = World(background)
    world.delivery = OrderedDelivery(1, world.aside, None, False, world.clock, background.spawn, suspend_s=suspend_s)
    world.pull(1)
    (first,) = await world.take()
    first.retry(suspend_s=options)
    await world.clock.advance(waits_s - 0.001)
    assert await world.is_idle()
    await world.clock.advance(0.002)
    (again,) = await world.take()
    again._cancel()
    await world.clock.advance(min(max(suspend_s, 0.01), 30) + 0.001)
    assert await world.take(), "a wish is for once"


@pytest.mark.parametrize(("delay", "waits_s"), [("10s", 10), ("45s", 45), ("2h", 7200), (None, 60)])
async def test_the_delay_of_a_retry_is_the_pause_of_its_queue(background, delay, waits_s):
    world = World(background)
    world.delivery = OrderedDelivery(1, world.aside, None, False, world.clock, background.spawn)
    world.pull(1)
    (first,) = await world.take()
    first.retry(delay, delay_level=None if delay else 5)
    await world.clock.advance(waits_s - 0.001)
    assert await world.is_idle()
    await world.clock.advance(0.002)
    assert await world.take()


async def test_program_that_forgets_to_settle_is_warned(background, caplog):
    world = World(background)
    world.delivery = OrderedDelivery(1, world.aside, None, False, world.clock, background.spawn, is_iterated=True)
    world.pull(2)
    (first,) = await world.take()
    taking = asyncio.ensure_future(world.delivery.take(1))
    await world.clock.advance(STALLED_S - 1)
    assert not caplog.text
    await world.clock.advance(1)
    assert "1 messages are delivered and not settled" in caplog.text and "msg.ack()" in caplog.text
    first.ack()
    (second,) = await taking
    second.ack()
    caplog.clear()
    taking = asyncio.ensure_future(world.delivery.take(1))
    await world.clock.advance(STALLED_S)
    assert not caplog.text, "an empty queue is no mistake of the program"
    world.pull(2)
    (third,) = await taking
    world.owned[0].drop()
    taking = asyncio.ensure_future(world.delivery.take(1))
    await world.clock.advance(STALLED_S)
    assert third.is_unsettled and not caplog.text, "another member has the queue"
    taking.cancel()


async def test_handlers_that_take_long_are_not_taken_for_a_mistake(world, caplog):
    world.pull(1)
    await world.take()
    taking = asyncio.ensure_future(world.delivery.take(1))
    await world.clock.advance(2 * STALLED_S)
    assert not caplog.text
    taking.cancel()


async def test_a_rejected_message_that_cannot_be_set_aside_comes_again(background):
    world = World(background)
    world.aside.failures = 1
    world.pull(2)
    (first,) = await world.take()
    first.reject("bad")
    await world.clock.advance(1.1)
    (again,) = await world.take()
    assert again is first
    again.reject("bad")
    (second,) = await world.take()
    assert world.aside.copies == [(0, -1)] and second.offset == 1


async def test_of_a_portion_the_longest_wish_counts(background):
    world = World(background, batch=2)
    world.pull(2)
    first, second = await world.take()
    first.retry(suspend_s=3)
    second.retry(suspend_s=2)
    await world.clock.advance(2.9)
    assert await world.is_idle()
    await world.clock.advance(0.2)
    assert len(await world.take()) == 2
