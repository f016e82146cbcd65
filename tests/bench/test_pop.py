"""The benchmark of consumers that pop."""

import pytest

from bench import pop
from bench.servers import TOPIC
from sparrowmq import connect
from sparrowmq.testing import Cluster


@pytest.mark.parametrize("way", pop.WAYS)
async def test_each_way_consumes_what_was_sent(tmp_path, way):
    async with Cluster(tmp_path) as cluster:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic(TOPIC, queues=4)
        await pop.fill(cluster.namesrv, 200)
        found = await pop.consume(way, cluster.namesrv, 200, broker=0)
    assert found["rate"] > 0 and found["client_us"] > 0


def test_a_way_is_compared_with_its_like():
    def figures(rate, cpu_us):
        return [{"rate": rate, "client_us": cpu_us, "broker_us": cpu_us}]

    text = pop.page({"queues": figures(100.0, 1.0), "pop": figures(70.0, 2.0)})
    assert "| pop | 70 | 0.70 | 2 | 2 | 2.00 |" in text
