"""Another number of queues, or another broker, for a topic: nothing is hidden, and the same call continues."""

import asyncio
from dataclasses import replace

import pytest

from sparrowmq.admin import topics
from sparrowmq.admin.scaling import Scaling, WaitLimits, waiting_counts_in
from sparrowmq.client.client import connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.core.exit_status import exit_status
from sparrowmq.errors import BrokerUnreachable, ConfigError, NoBroker, NoRoute, NotEmpty, StillUnread
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import QueryConsumerOffset

SOON = WaitLimits(settle_s=0.6, limit_s=0.0)
PATIENT = replace(SOON, limit_s=60.0)


TOLD: list[str] = []  # by the changes of one test


@pytest.fixture
def scaling(admin):
    TOLD.clear()

    def scaling(waits=PATIENT):
        return Scaling(admin.servers, SystemClock(), waits, TOLD.append)

    return scaling


async def shares(admin, topic="orders"):
    return {each.broker: (each.read_queues, each.write_queues) for each in (await admin.topic(topic)).shares}


async def fill(two, count=8):
    async with connect(two.namesrv) as mq:
        queues = await mq.queues("orders")
        for number in range(count):
            await mq.send("orders", b"%d" % number, queue=queues[number % len(queues)])


async def consume(two, count, group="billing"):
    async with connect(two.namesrv) as mq, mq.pull_consumer(group=group, start="earliest") as reader:
        reader.assign(await reader.queues("orders"))
        taken = 0
        while taken < count:
            taken += len(await reader.poll())
        await reader.commit()


async def test_fewer_queues_wait_for_the_groups_and_the_same_call_continues(two, admin, scaling):
    await admin.create_topic("orders", queues=4)
    await fill(two)
    with pytest.raises(StillUnread):
        await scaling(SOON).scale("orders", 2, None)
    assert set((await shares(admin)).values()) == {(4, 2)}
    waiting = asyncio.create_task(scaling().scale("orders", 2, None))
    await consume(two, 8)
    assert sorted(await waiting) == ["broker-0", "broker-1"]
    assert set((await shares(admin)).values()) == {(2, 2)}
    await scaling(SOON).scale("orders", 6, None)
    assert set((await shares(admin)).values()) == {(6, 6)}


async def test_a_broker_that_does_not_answer_is_waited_for_and_looked_up_again(two, admin, scaling, monkeypatch):
    await admin.create_topic("orders", queues=4)
    looks: list[str] = []
    ranges, all_masters = topics.ranges, admin.servers.all_masters

    async def failing_first(*arguments):
        looks.append("ranges")
        if len(looks) == 1:
            raise BrokerUnreachable("127.0.0.1:9", "connection refused")
        return await ranges(*arguments)

    async def look_up(*arguments):
        looks.append("masters")
        return await all_masters(*arguments)

    monkeypatch.setattr(topics, "ranges", failing_first)
    monkeypatch.setattr(admin.servers, "all_masters", look_up)
    await scaling().scale("orders", 2, None)
    assert looks[:3] == ["ranges", "masters", "ranges"]
    assert set((await shares(admin)).values()) == {(2, 2)}
    assert any("127.0.0.1:9" in line and "waiting for it" in line for line in TOLD)


async def test_queues_go_only_when_no_producer_sends_to_them_by_an_old_route(two, admin, scaling):
    await admin.create_topic("orders", queues=2)
    async with connect(two.namesrv) as mq:
        old = next(queue for queue in await mq.queues("orders") if queue.queue_id == 1)
        scaled = asyncio.create_task(scaling(WaitLimits(1.5, 60.0)).scale("orders", 1, None))
        while not any("until producers" in line for line in TOLD):
            await asyncio.sleep(0.02)
        await mq.send("orders", b"late", queue=old)
        await asyncio.sleep(1)
        assert not scaled.done() and {read for read, _ in (await shares(admin)).values()} == {2}
        await consume(two, 1)
        await scaled


async def test_a_topic_moves_when_its_messages_are_consumed(two, admin, scaling):
    await admin.create_topic("orders", queues=2)
    await admin.delete_topic("orders")
    await make_at_one(admin, "broker-0")
    await fill(two, 4)
    await consume(two, 4)
    await fill(two, 4)
    with pytest.raises(StillUnread):
        await scaling(SOON).move("orders", "broker-0", "broker-1")
    target = (await admin.servers.all_masters())["broker-1"]
    for number in range(2):
        committed = QueryConsumerOffset("billing", "orders", number, set_zero_if_not_found=False)
        assert (await admin.servers.ask(target, committed)).header.offset == 0
    assert set(await shares(admin)) == {"broker-0", "broker-1"}
    moving = asyncio.create_task(scaling().move("orders", "broker-0", "broker-1"))
    await consume(two, 4)
    await moving
    assert await shares(admin) == {"broker-1": (2, 2)}
    assert (await admin.topic("orders")).shares[0].message_type == "FIFO"
    await scaling(SOON).move("orders", "broker-0", "broker-1")  # nothing is left to do
    await fill(two, 2)
    async with connect(two.namesrv) as mq, mq.pull_consumer(group="billing", start="latest") as reader:
        reader.assign(await reader.queues("orders"))
        taken: list[ReceivedMessage] = []
        while len(taken) < 2:
            taken += await reader.poll()
    assert {each.queue.broker_name for each in taken} == {"broker-1"}


async def make_at_one(admin, broker):
    from sparrowmq.admin.catalogue import put_topic
    from sparrowmq.protocol.requests.bodies import TopicConfig

    masters = await admin.servers.all_masters()
    await put_topic(admin.servers, masters[broker], TopicConfig("orders", 2, 2, 6), {"message.type": "FIFO"})
    while True:
        try:
            if set(await shares(admin)) == {broker}:
                return
        except NoRoute:
            pass
        await asyncio.sleep(0.02)


async def test_messages_without_a_group_are_only_given_up_on_demand(two, admin, scaling):
    await make_at_one(admin, "broker-0")
    await fill(two, 2)
    with pytest.raises(StillUnread, match="without a group 2"):
        await scaling(SOON).move("orders", "broker-0", "broker-1")
    await scaling().move("orders", "broker-0", "broker-1", with_unread=True)
    assert set(await shares(admin)) == {"broker-1"}


async def test_a_topic_stays_where_messages_wait_for_their_time(two, admin, scaling):
    await make_at_one(admin, "broker-0")
    async with connect(two.namesrv) as mq:
        await mq.send("orders", b"later", delay="4000s")
    with pytest.raises(NotEmpty, match="broker broker-0 still has 1 timers") as waits:
        await scaling(WaitLimits(0.1, 1.0)).move("orders", "broker-0", "broker-1")
    assert exit_status(waits.value) == 1
    assert set(await shares(admin)) == {"broker-0", "broker-1"}


async def test_messages_that_a_group_lacks_are_never_given_up(two, admin, scaling):
    await make_at_one(admin, "broker-0")
    await fill(two, 4)
    await consume(two, 4)
    await fill(two, 4)
    with pytest.raises(StillUnread, match=r"\(billing 4\); run this again.*--yes deletes those without a group"):
        await scaling(SOON).move("orders", "broker-0", "broker-1", with_unread=True)
    await consume(two, 4)


async def test_queues_that_still_get_messages_are_named_as_such(two, admin, scaling):
    await admin.create_topic("orders", queues=2)
    with pytest.raises(StillUnread, match="these still got some a moment ago; run this again to go on waiting"):
        await scaling(WaitLimits(60, 0)).scale("orders", 1, None)


async def test_ordered_topics_and_wrong_names_are_refused(admin, scaling):
    await admin.create_topic("orders", queues=2, ordered=True)
    with pytest.raises(ConfigError, match="is ordered"):
        await scaling().move("orders", "broker-0", "broker-1")
    with pytest.raises(ConfigError, match="is ordered"):
        await scaling().scale("orders", 1, None)
    with pytest.raises(NoRoute):
        await scaling().scale("absent", 1, None)
    await admin.create_topic("plain")
    with pytest.raises(ConfigError, match="to itself"):
        await scaling().move("plain", "broker-0", "broker-0")
    with pytest.raises(NoBroker, match="no broker 'absent'"):
        await scaling().move("plain", "broker-0", "absent")


def test_what_waits_in_a_broker_is_counted_by_kind():
    figures = {
        "scheduleMessageOffset_1": "3,5",
        "scheduleMessageOffset_2": "7,7",
        "timersWaiting": "4",
        "x": "y",
    }
    assert waiting_counts_in(figures) == {"delayed messages": 2, "timers": 4}
    assert waiting_counts_in({"transactionsOpen": "1"}) == {"open transactions": 1}
