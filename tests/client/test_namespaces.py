"""A program in a namespace says its own names and is told nothing else; its brokers know the full ones."""

import asyncio
import re
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

import sparrowmq.sync
from sparrowmq.admin.admin import Admin
from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError, InvalidMessage, NoGroup, NoRoute, SendFailed
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.messages.trace import PubTrace, SubAfterTrace
from sparrowmq.testing.background import BackgroundCluster
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until


@pytest.fixture
async def shop(cluster):
    async with connect(cluster.namesrv, namespace="shop") as client:
        yield client


def topics_of(queues):
    return {queue.topic for queue in queues}


async def test_each_message_says_in_which_namespace_it_was_sent(shop, mq):
    """As Java's producers say it: INSTANCE_ID."""
    await shop.send("orders", b"1")
    await shop.send("orders", b"2", keys="k", properties={"INSTANCE_ID": "mine"})
    await shop.send_many([Message("orders", b"3"), Message("orders", b"4", properties={"a": "b"})])
    async with mq.subscribe("shop%orders", group="g", start="earliest") as outside:
        found: list = []
        while len(found) < 4:
            found += await outside.take(4)
    assert [each.properties.get("INSTANCE_ID") for each in found] == ["shop"] * 4
    await mq.send("plain", b"5")
    async with mq.subscribe("plain", group="h", start="earliest") as outside:
        (message,) = await outside.take()
    assert "INSTANCE_ID" not in message.properties


async def test_a_consumer_has_its_own_names_everywhere(shop):
    told = []
    await shop.send("orders", b"1")
    consumer = shop.subscribe(
        "orders",
        group="billing",
        start="earliest",
        on_assigned=lambda queues: told.append(("come", topics_of(queues))),
        on_revoked=lambda queues: told.append(("go", topics_of(queues))),
    )
    async with consumer as orders:
        assert (orders.group, orders.full_group) == ("billing", "shop%billing")
        (message,) = await orders.take()
        assert (message.topic, message.queue.topic) == ("orders", "orders")
        assert message.full_topic == "shop%orders" and "of orders at" in repr(message)
        message.ack()
        await until(lambda: topics_of(orders.queues) == {"orders", "%RETRY%billing"})
        queue = message.queue
        assert queue in orders.queues and orders.position(queue) == 1
        assert (await orders.lag())[queue] == 0
        orders.pause([queue])
        orders.resume([MessageQueue("shop%orders", queue.broker_name, queue.queue_id)])
        orders.seek(queue, 0)
        (again,) = await orders.take()
        assert again.body == b"1"
        absent = MessageQueue("orders", "nowhere", 0)
        with pytest.raises(ConfigError, match=f"^{re.escape(str(absent))} is not this member's now"):
            orders.seek(absent, 0)
    assert ("come", {"orders"}) in told and ("go", {"orders", "%RETRY%billing"}) in told


async def test_paused_queues_keep_back_what_nobody_has_taken(shop):
    """Messages waiting for somebody are found by where they were taken from, whatever their queues are called."""
    await shop.send_many([Message("orders", b"%d" % number) for number in range(3)])
    for ordered in (False, True):
        async with shop.subscribe("orders", group=f"billing-{ordered}", start="earliest", ordered=ordered) as orders:
            first, *_ = await orders.take()
            first.ack()
            orders.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(orders.take(), 0.05)
            orders.resume()
            assert (await orders.take())[0].body == b"1"


async def test_a_reader_has_its_own_names_everywhere(shop):
    told = []
    await shop.send("orders", b"1")
    async with shop.pull_consumer(group="audit", start="earliest") as reader:
        queues = await reader.queues("orders")
        assert reader.group == "audit" and topics_of(queues) == {"orders"}
        reader.assign(queues)
        assert reader.assigned == sorted(queues)
        (message,) = await reader.poll()
        queue = message.queue
        assert queue in queues and await reader.position(queue) == 1
        assert (await reader.positions())[queue] == 1
        await reader.commit()
        assert await reader.committed(queue) == 1
        await reader.commit({queue: 0})
        assert await reader.committed(queue) == 0
        await reader.commit([queue])
        await reader.seek_to_beginning(queue)
        reader.pause(queue)
        assert await reader.poll(timeout_s=0.05) == []
        reader.resume(queue)
        assert [each.body for each in await reader.poll()] == [b"1"]
        await reader.seek_to_end()
        assert await reader.offset_at(queue, datetime(2000, 1, 1, tzinfo=UTC)) == 0
        await reader.watch("orders", lambda queues: told.append(queues))
        await shop.admin.change_topic("orders", queues=len(queues) + 2)
        await shop._network.routes.refresh()
        await until(lambda: told)
        assert topics_of(told[0]) == {"orders"} and len(told[0]) == len(queues) + 2
        absent = MessageQueue("orders", "nowhere", 0)
        with pytest.raises(ConfigError, match=f"^{re.escape(str(absent))} is not assigned"):
            await reader.position(absent)


async def test_a_sharing_reader_is_told_its_own_names(shop):
    told: list = []
    await shop.send("orders", b"1")
    async with shop.pull_consumer(group="audit", start="earliest", on_assigned=told.append) as reader:
        await reader.subscribe("orders")
        await until(lambda: told)
        assert topics_of(told[0]) == {"orders"} == topics_of(reader.assigned)
        (message,) = await reader.poll()
        assert message.body == b"1"
        await reader.unsubscribe("orders")
        assert reader.assigned == []


async def test_an_operator_in_a_namespace_sees_what_is_in_it_and_nothing_else(cluster, shop, mq):
    admin = shop.admin
    await mq.admin.create_topic("orders")
    await mq.admin.create_topic("other%orders")
    await mq.admin.create_group("billing")
    await admin.create_topic("orders", queues=2)
    await admin.create_group("audit")
    assert await admin.topics() == ["orders"] and await admin.groups() == ["audit"]
    assert {"shop%orders", "orders", "other%orders"} <= set(await mq.admin.topics())
    assert "TBW102" in (hidden := await admin.topics(hidden=True))
    assert "other%orders" not in hidden and "shop%orders" not in hidden
    topic = await admin.topic("orders")
    assert topic.name == "orders" and topics_of(each.queue for each in topic.queues) == {"orders"}
    assert len(topic.queues) == 2
    group = await admin.group("audit")
    assert (group.name, {each.group_name for each in group.settings.values()}) == ("audit", {"audit"})
    await admin.change_group("audit", max_retries=3)
    assert next(iter((await mq.admin.group("shop%audit")).settings.values())).retry_max_times == 3
    with pytest.raises(NoGroup):
        await admin.group("billing")
    with pytest.raises(NoRoute):
        await admin.topic("others")
    async with Admin(cluster.namesrv, namespace="shop") as alone:
        assert await alone.topics() == ["orders"]
        await alone.delete_group("audit")
        await alone.delete_topic("orders")
    assert await admin.topics() == [] and await admin.groups() == []
    assert "orders" in await mq.admin.topics() and await mq.admin.groups() == ["billing"]


async def test_an_operator_moves_and_measures_groups_by_their_own_names(shop):
    sent = [await shop.send("orders", b"%d" % number, keys="k") for number in range(3)]
    async with shop.subscribe("orders", group="billing", start="earliest") as orders:
        for _ in sent:
            (await orders.take())[0].ack()
        await orders.commit()
    admin = shop.admin
    lag = await admin.lag("billing", "orders")
    assert (lag.group, lag.lag, topics_of(each.queue for each in lag.queues)) == ("billing", 0, {"orders"})
    assert topics_of(await admin.reset("billing", "orders", "earliest")) == {"orders"}
    assert (await admin.lag("billing", "orders")).lag == 3
    found = await admin.message(sent[0].msg_id, "orders")
    assert (found.topic, found.queue) == ("orders", sent[0].queue)
    assert (await admin.message(sent[0].offset_msg_id)).topic == "orders"
    await until_found(admin, 3)
    since = datetime.now(UTC) - timedelta(minutes=1)
    assert {each.queue.topic for each in await admin.find("orders", since=since)} == {"orders"}


async def until_found(admin, count):
    while len(found := await admin.find("orders", "k")) < count:
        await asyncio.sleep(0)
    assert {each.topic for each in found} == {"orders"}


async def test_what_failed_comes_again_and_ends_in_the_namespaces_dead_letters(tmp_path):
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(tmp_path, clock=clock))
        shop = await stack.enter_async_context(connect(cluster.namesrv, namespace="shop", clock=clock))
        plain = await stack.enter_async_context(connect(cluster.namesrv, clock=clock))
        await shop.send("orders", b"bad")
        seen = []

        def fail(message):
            seen.append((message.topic, message.queue.topic, message.reconsume_times))
            raise ValueError("no")

        async with shop.subscribe("orders", fail, group="billing", start="earliest", max_reconsume_times=1):
            await until(lambda: len(seen) == 1)
            for _ in range(40):
                await clock.advance(1)
                if len(seen) == 2:
                    break
            assert seen == [("orders", "orders", 0), ("orders", "%RETRY%billing", 1)]
            letters: list = []
            while not letters:
                await clock.advance(0.1)
                letters = await shop.admin.dead_letters("billing")
        (letter,) = letters
        assert letter.queue.topic == "%DLQ%billing" and letter.body == b"bad"
        assert await plain.admin.dead_letters("billing") == []
        await shop.admin.resend(letter)
        async with shop.subscribe("orders", group="billing") as orders:
            (again,) = await orders.take()
            assert (again.topic, again.body) == ("orders", b"bad")


async def test_requests_are_answered_inside(shop):
    await shop.admin.create_topic("prices")

    async def answer(message):
        await message.reply(b"1.1 for " + message.topic.encode())

    async with shop.subscribe("prices", answer, group="brokers", start="earliest"):
        assert (await shop.request("prices", b"EURUSD", timeout_s=10)).body == b"1.1 for prices"


async def test_delayed_messages_come_to_the_topic_inside(shop):
    await shop.admin.create_topic("orders")
    at = datetime.now(UTC) + timedelta(seconds=0.3)
    async with shop.subscribe("orders", group="billing", start="earliest") as orders:
        sent = await shop.send("orders", b"timed", deliver_at=at)
        recalled = await shop.send("orders", b"recalled", deliver_at=at)
        await shop.recall(recalled)
        assert sent.queue.topic == "orders"
        (message,) = await orders.take()
        assert (message.topic, message.body) == ("orders", b"timed")
        message.ack()


async def test_traces_bear_the_names_of_the_program(tmp_path):
    async with (
        Cluster(tmp_path, trace_topic_enabled=True) as cluster,
        connect(cluster.namesrv, namespace="shop", trace=True) as shop,
    ):
        sent = await shop.send("orders", b"1")
        async with shop.subscribe("orders", lambda message: None, group="billing", start="earliest"):
            found: list = []
            while len(found) < 3:
                found = await shop.admin.trace(sent.msg_id)
                await asyncio.sleep(0)
    pub, _, after = found
    assert isinstance(pub, PubTrace) and isinstance(after, SubAfterTrace)
    assert (pub.topic, after.group) == ("orders", "billing")


async def test_errors_of_sends_name_queues_by_their_own_names(shop):
    await shop.admin.create_topic("orders")
    queue = MessageQueue("orders", "nowhere", 0)
    with pytest.raises(InvalidMessage, match="does not belong to topic orders;"):
        await shop.send("orders", b"1", queue=MessageQueue("prices", "nowhere", 0))
    with pytest.raises(SendFailed, match=f"the message to {re.escape(str(queue))} was not sent"):
        await shop.send("orders", b"1", queue=queue, timeout_s=0.2)


async def test_full_names_are_understood_too(shop):
    sent = await shop.send("shop%orders", b"1")
    assert sent.queue.topic == "orders"
    async with shop.subscribe("shop%orders", group="shop%billing", start="earliest") as orders:
        assert orders.group == "billing"
        assert (await orders.take())[0].topic == "orders"


def test_the_blocking_twin_has_them_too(tmp_path):
    with (
        BackgroundCluster(tmp_path) as cluster,
        sparrowmq.sync.connect(cluster.namesrv, namespace="shop") as shop,
        sparrowmq.sync.admin(cluster.namesrv, namespace="shop") as admin,
    ):
        assert shop.send("orders", b"1").queue.topic == "orders"
        with shop.subscribe("orders", group="billing", start="earliest") as orders:
            (message,) = orders.take()
            assert (message.topic, message.queue.topic) == ("orders", "orders")
            assert topics_of(orders.queues) == {"orders", "%RETRY%billing"}
            message.ack()
        with shop.pull_consumer(group="audit") as reader:
            assert topics_of(reader.queues("orders")) == {"orders"}
        assert admin.topics() == ["orders"] and "billing" in admin.groups()
