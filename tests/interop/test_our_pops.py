"""Our consumers that pop, at our brokers and Apache's of 5.x. One of 4.9 gets the advice to choose another consumer."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

import sparrowmq
import sparrowmq.sync
from sparrowmq.errors import ConfigError
from tests.interop.our_client import LIMIT_S, until
from tests.interop.servers import APACHE, OURS

POPPING = pytest.mark.parametrize(
    "target",
    [OURS, pytest.param("apache-5.4.0", marks=[pytest.mark.slow, pytest.mark.nightly])],
    indirect=True,
    scope="package",
)
AT_4 = pytest.mark.parametrize("target", [pytest.param(APACHE, marks=pytest.mark.slow)], indirect=True, scope="package")


async def received(consumer, wanted: int, **arguments):
    """So many messages."""
    found: list[sparrowmq.ReceivedMessage] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < wanted:
        assert time.monotonic() < deadline, f"{len(found)} of {wanted} messages"
        found += await consumer.receive(wait_s=2, **arguments)
    return found


@POPPING
async def test_messages_are_acknowledged_shown_again_or_put_among_the_dead_letters(mq, topic, group):
    for number in range(6):
        await mq.send(topic, b"%d" % number, tag="even" if number % 2 == 0 else "odd")
    async with mq.simple_consumer(topic, group=group, tag="even", start="earliest") as consumer:
        done, again, dead = await received(consumer, 3, invisible_s=60)
        await consumer.ack(done)
        await consumer.change_invisible(again, 1)
        await consumer.dead_letter(dead, "no such customer")
        (second,) = await received(consumer, 1, invisible_s=60)
        assert (second.msg_id, second.reconsume_times, second.topic) == (again.msg_id, 1, topic)
        await consumer.ack(second)
        assert await consumer.receive(wait_s=1) == []
    letters = await mq.admin.dead_letters(group)
    assert [(each.msg_id, each.properties["REJECT_REASON"]) for each in letters] == [(dead.msg_id, "no such customer")]


@POPPING
async def test_messages_that_are_not_acknowledged_come_again_to_any_consumer(mq, topic, group, target):
    await mq.send(topic, b"x")
    async with (
        sparrowmq.connect(target.namesrv) as another,
        mq.simple_consumer(topic, group=group, start="earliest") as first,
        another.simple_consumer(topic, group=group, start="earliest") as second,
    ):
        (message,) = await received(first, 1, invisible_s=2)
        assert await second.receive(wait_s=0) == []
        (again,) = await received(second, 1, invisible_s=60)
        assert (again.msg_id, again.reconsume_times) == (message.msg_id, 1)
        await second.ack(again)


@POPPING
async def test_an_orderly_queue_waits_for_its_first_messages(mq, topic, group):
    for number in range(4):
        await mq.send(topic, b"%d" % number, fifo="key")
    async with mq.simple_consumer(topic, group=group, start="earliest", order=True) as consumer:
        first = await received(consumer, 1, max_messages=2, invisible_s=60)
        assert [each.text() for each in first] == ["0", "1"]
        assert await consumer.receive(wait_s=0) == []
        await consumer.ack(first)
        assert [each.text() for each in await received(consumer, 2, invisible_s=60)] == ["2", "3"]


@POPPING
def test_the_blocking_consumer_does_the_same(target, topic, group):
    with sparrowmq.sync.connect(target.namesrv) as mq:
        mq.send(topic, b"x")
        with mq.simple_consumer(topic, group=group, start="earliest") as consumer:
            (message,) = consumer.receive(wait_s=20)
            message.ack()
            message.ack()
            assert consumer.receive(wait_s=0) == []


@AT_4
async def test_a_broker_of_4_9_is_named_with_advice(mq, topic, group):
    async with mq.simple_consumer(topic, group=group) as consumer:
        with pytest.raises(ConfigError, match=r"broker-a cannot pop: .* RocketMQ 5"):
            await asyncio.wait_for(consumer.receive(), LIMIT_S)


@pytest.mark.slow
@POPPING
async def test_more_members_than_queues_handle_each_message_once_beside_a_slow_one(mq, topic, group, target):
    handled: list[str] = []
    may_end = asyncio.Event()

    async def handle(message) -> None:
        if message.text() == "0":
            await may_end.wait()
        handled.append(message.text())

    for number in range(60):
        await mq.send(topic, b"%d" % number)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            member = await stack.enter_async_context(sparrowmq.connect(target.namesrv))
            consumer = member.subscribe(
                topic, handle, group=group, mode="pop", start="earliest", concurrency=2, invisible_s=6
            )
            await stack.enter_async_context(consumer)
        await until(lambda: len(handled) >= 59)
        await asyncio.sleep(8)  # longer than the invisible time
        may_end.set()
        await until(lambda: len(handled) >= 60)
    assert sorted(map(int, handled)) == list(range(60))
