"""Messages without tries left, asked of a whole broker."""

from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateSubscriptionGroup, UpdateAndCreateTopic
from sparrowmq.protocol.requests.bodies import GroupConfig
from tests.broker.live import live_broker
from tests.broker.pop_live import pop, pop_all
from tests.store.stores import HOST


async def test_the_last_try_ends_in_the_dead_letter_queue(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        group = GroupConfig("poppers", retry_max_times=2)
        await broker.session.call(UpdateAndCreateSubscriptionGroup(), group.encode())
        await broker.send(b"bad", properties={"KEYS": "k1"})
        for times in range(3):
            (message,) = await pop(broker, queue_id=0)
            assert message.reconsume_times == times
            await clock.advance(31)
        assert await pop(broker, queue_id=0) == []
        (dead,) = await broker.messages("%DLQ%poppers")
        assert (dead.body, dead.reconsume_times) == (b"bad", 3)
        assert dead.properties["KEYS"] == "k1"
        assert dead.properties["RETRY_TOPIC"] == "orders"
        assert dead.properties["ORIGIN_MESSAGE_ID"]


async def test_the_tries_that_a_retry_topic_of_apache_counts_count_too(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        group = GroupConfig("poppers", retry_max_times=2)
        await broker.session.call(UpdateAndCreateSubscriptionGroup(), group.encode())
        await broker.send(b"new", queue_id=1)
        name = "%RETRY%poppers_orders"
        await broker.session.call(UpdateAndCreateTopic(name, 1, 1, perm=6))
        broker.broker.store.append(Entry(name, 0, b"bad", Properties(""), 7, HOST, reconsume_times=1))
        broker.broker.store.publish()
        for times in (1, 2):
            found = {each.body: each.reconsume_times for each in await pop_all(broker)}
            assert found[b"bad"] == times
            await clock.advance(31)
        assert b"bad" not in {each.body for each in await pop_all(broker)}
        (dead,) = await broker.messages("%DLQ%poppers")
        assert (dead.body, dead.reconsume_times) == (b"bad", 3)
