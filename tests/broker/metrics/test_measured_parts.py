"""What metrics are told of is what the broker works with."""

from sparrowmq.client.client import connect
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, samples


async def test_a_topic_that_goes_takes_its_metrics_with_it(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t")  # which returns when its route is known
        await mq.send("t", b"x")
        address = cluster.brokers[0].metrics_address
        assert ("t",) in (await samples(address, "topic"))["rocketmq_messages_in_total"]
        await mq.admin.delete_topic("t")
        assert ("t",) not in (await samples(address, "topic"))["rocketmq_messages_in_total"]
