"""What Prometheus reads under the names of rocketmq-exporter."""

from sparrowmq.broker.metrics.exporter_names import RATES, RUNTIME
from sparrowmq.client.client import connect
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, samples


async def test_a_group_lags_under_the_exporters_names(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=1)
        for _ in range(20):
            await mq.send("t", b"x")
        await mq.admin.create_group("g")
        await mq.admin.reset("g", "t", "earliest")
        address, path = cluster.brokers[0].metrics_address, "/metrics?compat=exporter"
        found = await samples(address, "group", "topic", path=path)
        assert found["rocketmq_producer_offset"][("t",)] == 20
        assert found["rocketmq_group_diff"][("g", "t")] == 20
        assert found["rocketmq_consumer_offset"][("g", "t")] == 0
        assert 0 <= found["rocketmq_group_get_latency_by_storetime"][("g", "t")] < 600_000
        assert found["rocketmq_producer_count"] == {("CLIENT_INNER_PRODUCER",): 1}
        found = await samples(address, "msgModel", "countOfOnlineConsumers", path=path)
        assert found["rocketmq_group_diff"] == {("1", "0"): 20}


async def test_the_brokers_own_figures_have_the_exporters_labels(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        address = cluster.brokers[0].metrics_address
        path = "/metrics?compat=exporter"
        of_runtime = ("cluster", "brokerIP", "brokerHost", "des", "broker_version")
        found = await samples(address, *of_runtime, path=path)
        who = ("DefaultCluster", "127.0.0.1", "broker-0", "V4_9_8", "409")
        assert found["rocketmq_brokeruntime_msg_put_total_today_now"] == {who: 1}
        runtime = {f"rocketmq_brokeruntime_{name}" for name in RUNTIME}
        rates = {f"rocketmq_brokeruntime_{name}_tps{window}" for name in RATES for window in (10, 60, 600)}
        assert runtime | rates <= set(found)
        found = await samples(address, "cluster", "brokerIP", "broker", path=path)
        assert found["rocketmq_broker_commitlog_diff"] == {("DefaultCluster", "127.0.0.1", "broker-0"): 0}


async def test_dead_letters_are_told_by_their_group(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        async with mq.subscribe("t", group="g", start="earliest", max_reconsume_times=0) as messages:
            (await anext(aiter(messages))).retry()
            while not await mq.admin.dead_letters("g"):
                pass
        found = await samples(cluster.brokers[0].metrics_address, "group", path="/metrics?compat=exporter")
        assert found["rocketmq_topic_dlq_offset"] == {("g",): 1}
