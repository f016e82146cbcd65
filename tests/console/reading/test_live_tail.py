import asyncio
import zlib

import pytest

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.message_body import JsonPath
from sparrowmq.console.pages.live_tail import MAX_KEPT, MAX_KEPT_BYTES, Tail, TailFilter
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from tests.records import encoded


async def follow(look, wanted, count, *bodies):
    """Send some bodies while a tail follows; returns the tail once it has examined so many."""
    tail = Tail(wanted)
    task = asyncio.create_task(tail.run(look))
    try:
        async with asyncio.timeout(20):
            while tail.examined_count < count and not task.done():
                for body, tag in bodies:
                    await look.client.send(wanted.topic, body, tag=tag)
                await asyncio.sleep(0.02)
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError), ended
    return tail


async def test_it_shows_what_fits_of_what_comes_and_moves_no_group(look):
    await look.admin.create_topic("orders", queues=1)
    await look.client.send("orders", b"before")
    bodies = [(b'{"n": 1}', "a"), (b'{"n": 9}', "a"), (b"text", "b")]
    tail = await follow(look, TailFilter("orders", path=JsonPath.parse("n > 5")), 6, *bodies)
    assert {each.body for each in tail.messages} == {b'{"n": 9}'}
    assert tail.matching_count == len(tail.messages) < tail.examined_count
    assert await look.admin.groups() == []


async def test_tags_are_the_brokers_work(look):
    await look.admin.create_topic("orders", queues=1)
    tail = await follow(look, TailFilter("orders", tag="b", text="te"), 2, (b"one", "a"), (b"text", "b"))
    assert {each.body for each in tail.messages} == {b"text"} and tail.matching_count == tail.examined_count


async def test_paused_it_counts_and_keeps_what_is_shown(look):
    await look.admin.create_topic("orders", queues=1)
    tail = await follow(look, TailFilter("orders"), 1, (b"one", "a"))
    shown, before = list(tail.messages), tail.matching_count
    tail.is_paused = True
    await tail.take(shown[:1])
    assert list(tail.messages) == shown and tail.matching_count == before + 1
    tail.is_paused = False
    await tail.take(shown[:1] * 500)
    assert len(tail.messages) == MAX_KEPT


def message(body, sys_flag=0):
    stored = record.decode(encoded(body=body, sys_flag=sys_flag))
    return ReceivedMessage(stored, MessageQueue("T", "broker-a", 0))


async def test_large_messages_are_kept_up_to_a_number_of_bytes():
    tail = Tail(TailFilter("T"))
    await tail.take([message(bytes(4 << 20)) for _ in range(10)])
    assert len(tail.messages) == 3 and sum(each.store_size for each in tail.messages) <= MAX_KEPT_BYTES
    await tail.take([message(bytes(MAX_KEPT_BYTES))])
    assert len(tail.messages) == 1


async def test_nothing_is_kept_of_what_a_body_expands_to():
    bomb = message(zlib.compress(bytes(4 << 20)), SysFlag.COMPRESSED)
    tail = Tail(TailFilter("T", text="\0\0"))
    await tail.take([bomb, message(b"no zlib", SysFlag.COMPRESSED), message(b"text")])
    assert list(tail.messages) == [bomb] and bomb._body is None


async def test_the_queues_of_a_broker_that_is_away_are_followed_when_it_answers(two, look):
    await look.admin.create_topic("orders", queues=1)
    away = {"broker-0", "broker-1"}
    tail = Tail(TailFilter("orders"))
    task = asyncio.create_task(tail.run(look, lambda: away))
    try:
        async with asyncio.timeout(60):
            for answering in ("broker-0", "broker-1"):
                away = away - {answering}
                while answering not in {each.queue.broker_name for each in tail.messages}:
                    assert away.isdisjoint(each.queue.broker_name for each in tail.messages)
                    await look.client.send("orders", b"x")
                    await asyncio.sleep(0.02)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_topic_that_is_not_there_is_an_error(look):
    from sparrowmq.errors import NoRoute

    with pytest.raises(NoRoute):
        await Tail(TailFilter("nowhere")).run(look)


async def test_several_follow_at_once(look):
    await look.admin.create_topic("orders", queues=1)
    first = asyncio.create_task(follow(look, TailFilter("orders"), 3, (b"one", "a")))
    second = await follow(look, TailFilter("orders"), 3, (b"two", "a"))
    assert (await first).matching_count >= 3 <= second.matching_count
