"""A broker that is to go is emptied first, and refused if something would have no place."""

import asyncio

import pytest

from sparrowmq.admin.scaling import Decommission, WaitLimits
from sparrowmq.client.client import connect
from sparrowmq.errors import NotEmpty
from sparrowmq.loop.clock import SystemClock
from tests.admin.test_scaling import consume, fill, make_at_one


@pytest.fixture
def leaving(admin):
    def leaving(limit_s=60.0):
        return Decommission(admin.servers, SystemClock(), WaitLimits(0.6, limit_s), "broker-0", lambda line: None)

    return leaving


async def test_a_broker_is_empty_when_each_group_has_consumed_all_of_it(two, admin, leaving):
    await admin.create_topic("orders", queues=2)
    await fill(two, 8)
    assert (await leaving().content()).unclaimed == {"orders": 4}
    await consume(two, 8)
    await fill(two, 8)
    found = await leaving().content()
    assert found.lags["billing"] == 4 and found.left == "group billing lacks 4 messages"
    assert found.risks == found.refusals == ()
    with pytest.raises(NotEmpty, match=r"cannot be stopped yet: group billing lacks 4 messages.*undrain"):
        await leaving(0.0).run()
    emptied = asyncio.create_task(leaving().run())
    await asyncio.sleep(3)
    assert not emptied.done()
    await consume(two, 8)
    await emptied
    assert (await leaving().content()).left == ""
    async with connect(two.namesrv) as mq:
        assert {(await mq.send("orders", b"x")).queue.broker_name for _ in range(6)} == {"broker-1"}


async def test_a_broker_with_the_only_queues_of_a_topic_or_of_an_order_is_refused(two, admin, leaving):
    await make_at_one(admin, "broker-0")
    await admin.create_topic("steps", queues=2, ordered=True)
    lone, ordered = (await leaving().content()).refusals
    assert "no other broker takes messages of orders" in lone and "topic move orders --from broker-0" in lone
    assert "topic steps is ordered on broker-0:2;broker-1:2" in ordered


async def test_messages_that_come_later_are_waited_for(two, admin, leaving):
    await admin.create_topic("orders", queues=1)
    async with connect(two.namesrv) as mq:
        for _ in range(2):
            await mq.send("orders", b"later", delay="4000s")
    assert (await leaving().content()).waiting == {"timers": 1}
    with pytest.raises(NotEmpty, match="1 timers wait"):
        await leaving(0.0).run()
