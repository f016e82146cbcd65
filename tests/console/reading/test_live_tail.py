import asyncio

import pytest

from sparrowmq.console.reading.live_tail import KEPT, Tail, Wanted
from sparrowmq.console.reading.message_body import JsonPath


async def follow(look, wanted, count, *bodies):
    """Send some bodies while a tail follows; returns the tail once it has examined so many."""
    tail = Tail(wanted)
    task = asyncio.create_task(tail.run(look))
    try:
        async with asyncio.timeout(20):
            while tail.examined < count and not task.done():
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
    tail = await follow(look, Wanted("orders", path=JsonPath.parse("n > 5")), 6, *bodies)
    assert {each.body for each in tail.messages} == {b'{"n": 9}'}
    assert tail.found == len(tail.messages) < tail.examined
    assert await look.admin.groups() == []


async def test_tags_are_the_brokers_work(look):
    await look.admin.create_topic("orders", queues=1)
    tail = await follow(look, Wanted("orders", tag="b", text="te"), 2, (b"one", "a"), (b"text", "b"))
    assert {each.body for each in tail.messages} == {b"text"} and tail.found == tail.examined


async def test_paused_it_counts_and_keeps_what_is_shown(look):
    await look.admin.create_topic("orders", queues=1)
    tail = await follow(look, Wanted("orders"), 1, (b"one", "a"))
    shown, before = list(tail.messages), tail.found
    tail.is_paused = True
    tail.take(shown[:1])
    assert list(tail.messages) == shown and tail.found == before + 1
    tail.is_paused = False
    tail.take(shown[:1] * 500)
    assert len(tail.messages) == KEPT


async def test_the_queues_of_a_broker_that_is_away_are_followed_when_it_answers(two, look):
    await look.admin.create_topic("orders", queues=1)
    away = {"broker-0", "broker-1"}
    tail = Tail(Wanted("orders"))
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
        await Tail(Wanted("nowhere")).run(look)


async def test_several_follow_at_once(look):
    await look.admin.create_topic("orders", queues=1)
    first = asyncio.create_task(follow(look, Wanted("orders"), 3, (b"one", "a")))
    second = await follow(look, Wanted("orders"), 3, (b"two", "a"))
    assert (await first).found >= 3 <= second.found
