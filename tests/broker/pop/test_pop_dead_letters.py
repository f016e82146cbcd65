"""Messages without tries left, asked of a whole broker."""

from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateSubscriptionGroup
from sparrowmq.protocol.requests.bodies import GroupConfig
from tests.broker.live import live_broker
from tests.broker.pop_live import pop


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
