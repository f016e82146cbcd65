import asyncio

import pytest

from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.client.consuming.delivery import ConcurrentDelivery, InboxClosed
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.received_message import ack_all
from sparrowmq.errors import BrokerUnreachable
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.clock import ManualClock
from tests.client.consuming.test_received import message_at

QUEUE = MessageQueue("t", "a", 0)


class Refusing:
    """Takes messages back, as long as `failures` is 0."""

    def __init__(self) -> None:
        self.failures = 0
        self.given_back: list[int] = []

    async def give_back(self, message) -> None:
        if self.failures:
            self.failures -= 1
            raise BrokerUnreachable("a", "gone")
        self.given_back.append(message.offset)

    async def reject(self, message) -> None:
        await self.give_back(message)


class World:
    def __init__(self, background: Background, retries: Refusing | None) -> None:
        self.clock = ManualClock()
        self.owned = ProcessQueue(QUEUE, 0, FlowLimits())
        self.delivery = ConcurrentDelivery(retries, self.clock, background.spawn)

    def pull(self, count: int) -> None:
        self.delivery.open()
        first = self.owned.next_offset
        self.owned.next_offset += count
        messages = [message_at(first + n) for n in range(count)]
        self.delivery.add_pulled(self.owned, messages)


@pytest.fixture
async def background():
    async with Background() as started:
        yield started


@pytest.fixture
def retries() -> Refusing:
    return Refusing()


@pytest.fixture
def world(background, retries) -> World:
    return World(background, retries)


async def test_messages_are_delivered_at_once_and_settled_in_any_order(world):
    world.pull(3)
    one, two, three = [(await world.delivery.take(1))[0] for _ in range(3)]
    three.ack()
    one.ack()
    assert world.owned.commit_offset == 1
    two.ack()
    assert world.owned.commit_offset == 3


@pytest.mark.covers("S-CONS-09")
async def test_several_are_delivered_together_if_they_are_there(world):
    world.pull(5)
    assert [each.offset for each in await world.delivery.take(3)] == [0, 1, 2]
    assert [each.offset for each in await world.delivery.take(3)] == [3, 4]


@pytest.mark.covers("S-CONS-18")
async def test_a_failed_message_is_given_back_and_then_settled(world, retries):
    world.pull(1)
    (message,) = await world.delivery.take(1)
    message.retry()
    await world.clock.advance(0)
    assert retries.given_back == [0] and world.owned.commit_offset == 1


async def test_what_cannot_be_given_back_is_delivered_here_again(world, retries):
    retries.failures = 1
    world.pull(1)
    (message,) = await world.delivery.take(1)
    message.retry()
    await world.clock.advance(4.9)
    assert world.owned.commit_offset == 0
    await world.clock.advance(0.1)
    (again,) = await asyncio.wait_for(world.delivery.take(1), 1)
    assert again is message and again.reconsume_times == 1
    again.retry()
    await world.clock.advance(0)
    assert retries.given_back == [0]


@pytest.mark.covers("S-CONS-18")
async def test_a_broadcast_group_drops_what_failed(background, caplog):
    world = World(background, None)
    world.pull(1)
    (message,) = await world.delivery.take(1)
    message.retry()
    assert world.owned.commit_offset == 1 and "broadcast messages are not retried" in caplog.text


async def test_a_queue_of_somebody_else_is_left_alone(world, retries):
    world.pull(2)
    done, failed = await world.delivery.take(2)
    world.owned.drop()
    done.ack()
    failed.retry()
    await world.clock.advance(0)
    assert world.owned.commit_offset == 0 and not retries.given_back


async def test_after_the_end_nothing_is_delivered(world):
    world.pull(1)
    world.delivery.close()
    with pytest.raises(InboxClosed):
        await world.delivery.take(1)


async def test_what_a_queue_took_back_comes_when_it_goes_on(world):
    world.pull(3)
    (first,) = await world.delivery.take(1)
    world.delivery.withdraw(world.owned)
    world.delivery.offer_withdrawn(world.owned)
    assert [each.offset for each in await world.delivery.take(5)] == [1, 2] and first.is_current


async def test_a_queue_that_was_given_up_leaves_nothing_in_the_inbox(world):
    world.pull(3)
    (taken,) = await world.delivery.take(1)
    world.delivery.withdraw(world.owned)
    world.owned.drop()
    assert not taken.is_current
    taking = asyncio.ensure_future(world.delivery.take(1))
    await world.clock.advance(0)
    assert not taking.done()
    taking.cancel()


async def test_a_cancelled_message_is_given_back(world, retries):
    world.pull(1)
    (message,) = await world.delivery.take(1)
    message._cancel()
    await world.delivery.wait_until_given_back()
    assert retries.given_back == [0] and world.owned.commit_offset == 1


@pytest.mark.parametrize("is_closed_before", [True, False])
async def test_a_message_cancelled_by_leaving_is_left_to_the_next_consumer(world, retries, is_closed_before):
    world.pull(1)
    (message,) = await world.delivery.take(1)
    if is_closed_before:
        world.delivery.close()
    message._cancel()
    world.delivery.close()
    await world.delivery.wait_until_given_back()
    assert not retries.given_back and world.owned.commit_offset == 0


async def test_what_failed_before_the_end_is_waited_for(world, retries):
    world.pull(2)
    for message in await world.delivery.take(2):
        message.retry()
    world.delivery.close()
    await world.delivery.wait_until_given_back()
    assert retries.given_back == [0, 1] and world.owned.commit_offset == 2


async def test_messages_of_several_pulls_are_acknowledged_together(world):
    world.pull(3)
    world.pull(2)
    messages = await world.delivery.take(5)
    messages[1].ack()
    ack_all(messages[:4])
    assert world.owned.commit_offset == 4
    assert world.owned.stats.done == 4
    assert [message.is_unsettled for message in messages] == [False] * 4 + [True]
    messages[3].retry()  # settled already
    world.owned.drop()
    ack_all(messages)
    assert world.owned.commit_offset == 4
    assert world.owned.stats.done == 4
