"""Topics of which the name server fixes the queues, so that a key stays in its queue when brokers go."""

import pytest

from sparrowmq.client.client import connect
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.namesrv_headers import PutKVConfig
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing import Cluster


@pytest.mark.guards("Route.build: fixed or tuple(writable) -> tuple(writable)")
async def test_a_key_stays_in_its_queue_when_a_broker_goes(tmp_path):
    async with Cluster(tmp_path, brokers=2, namesrv_settings={"order_messages": True}) as cluster:
        pool = Pool(SystemClock())
        session = await pool.session(cluster.namesrv)
        await session.call(PutKVConfig("ORDER_TOPIC_CONFIG", "Orders", "broker-1:3;broker-0:3"))
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("Orders", queues=8)
            fixed = [(queue.broker_name, queue.queue_id) for queue in await mq.queues("Orders")]
            assert fixed == [(f"broker-{broker}", number) for broker in (1, 0) for number in range(3)]
            places = {key: (await mq.send("Orders", b"x", fifo=key)).queue for key in map(str, range(20))}
            assert set(places.values()) == {MessageQueue("Orders", *queue) for queue in fixed}

            await cluster.brokers[1].__aexit__(None, None, None)
            await mq._network.routes.refresh()
            assert len(await mq.queues("Orders")) == 6
            for key, queue in places.items():
                if queue.broker_name == "broker-0":
                    assert (await mq.send("Orders", b"y", fifo=key)).queue == queue
        pool.close()
