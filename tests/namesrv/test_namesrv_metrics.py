"""A name server's metrics."""

from sparrowmq.client.client import connect
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, samples, visit


async def test_brokers_topics_and_connections_are_counted(tmp_path):
    async with Cluster(tmp_path, brokers=2, namesrv_settings=ON) as cluster, connect(cluster.namesrv) as mq:
        address = cluster._namesrv.metrics_address
        before = await samples(address, "cluster")
        await mq.admin.create_topic("t")
        found = await samples(address, "cluster")
        assert found["sparrowmq_namesrv_brokers"] == {("DefaultCluster",): 2}
        assert found["sparrowmq_namesrv_topics"][()] == before["sparrowmq_namesrv_topics"][()] + 1
        assert found["sparrowmq_connections"][()] == 3
        took = await samples(address, "request_code", "response_code")
        assert took["rocketmq_rpc_latency_milliseconds_count"][("register_broker", "success")] >= 2
        assert await visit(address, "/readyz") == (200, "ok\n")


async def test_there_is_no_such_port_unless_asked_for(tmp_path):
    async with Cluster(tmp_path) as cluster:
        assert cluster._namesrv.metrics_address == ""
