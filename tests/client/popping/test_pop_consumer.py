from typing import Any

import pytest

from sparrowmq.client.client import connect
from sparrowmq.testing import Cluster


async def test_a_consumer_that_pops_gives_back_to_the_broker_that_it_pops(peer):
    async with connect(peer.address) as mq:
        popping: Any = mq.subscribe("t", group="g", mode="pop")
        assert popping._assignment._pops is popping._delivery._retries._pops


@pytest.mark.parametrize(
    ("start", "bodies"),
    [("latest", ["old", "last", "new"]), ("new", ["new"]), ("earliest", ["old", "last", "new"])],
)
async def test_new_group_that_pops_starts_in_a_young_queue_as_one_that_pulls(tmp_path, start, bodies):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=1)
        for body in (b"old", b"last"):
            await mq.send("t", body)
        async with mq.simple_consumer("t", group="g", start=start) as consumer:
            messages = await consumer.receive(wait_s=0)
            await mq.send("t", b"new")
            while len(messages) < len(bodies):
                messages += await consumer.receive()
    assert [message.text() for message in messages] == bodies
