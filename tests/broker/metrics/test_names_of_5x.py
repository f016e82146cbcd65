"""What Prometheus reads under 5.x's names."""

from contextlib import AsyncExitStack

import pytest

from sparrowmq import Message, MessageQueue
from sparrowmq.client.client import connect
from sparrowmq.metrics.series_limit import OTHERS
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, samples

LAG = "rocketmq_consumer_lag_messages"


async def test_messages_come_in_wait_and_go_out(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        address = cluster.brokers[0].metrics_address
        await mq.admin.create_topic("t", queues=2)
        for _ in range(10):
            await mq.send("t", b"x")
        await mq.send_many([Message("t", b"y")] * 10, queue=MessageQueue("t", "broker-0", 1))
        taken = 0
        async with mq.subscribe("t", group="g", start="earliest") as messages:
            async for message in messages:
                async with message.process():
                    taken += 1
                if taken == 5:
                    break
        found = await samples(address, "consumer_group", "topic")
        assert found["rocketmq_messages_in_total"][("t",)] == 20
        assert 5 <= found["rocketmq_messages_out_total"][("g", "t")] <= 20
        assert found["rocketmq_consumer_lag_messages"][("g", "t")] == 15
        stored_bytes = found["rocketmq_throughput_in_total"][("t",)]
        assert 20 * 91 < stored_bytes < 20 * 400
        assert found["rocketmq_throughput_out_total"][("g", "t")] == pytest.approx(
            stored_bytes / 20 * found["rocketmq_messages_out_total"][("g", "t")], rel=0.2
        )
        assert found["rocketmq_consumer_lag_latency_milliseconds"][("g", "t")] < 600_000
        assert found["sparrowmq_messages_received_total"] == {(): 20}
        assert found["rocketmq_storage_size"][()] > 20 * 91


async def test_clients_are_counted_by_language_and_group(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        async with mq.subscribe("t", group="g"):
            found = await samples(cluster.brokers[0].metrics_address, "consumer_group", "language")
            while ("g", "PYTHON") not in found.get("rocketmq_consumer_connections", {}):
                found = await samples(cluster.brokers[0].metrics_address, "consumer_group", "language")
        assert found["rocketmq_producer_connections"] == {("PYTHON",): 1}
        assert found["rocketmq_consumer_connections"] == {("g", "PYTHON"): 1}


async def test_a_group_whose_lag_is_shown_is_not_without_members_because_those_are_left_out(tmp_path):
    async with Cluster(tmp_path, metrics_series=2, **ON) as cluster, connect(cluster.namesrv) as mq:
        async with AsyncExitStack() as stack:
            for number in range(4):
                await mq.send_many([Message(f"t{number}", b"x")] * (number + 1))
                messages = mq.subscribe(f"t{number}", group=f"g{number}", start="earliest")
                await anext(aiter(await stack.enter_async_context(messages)))
            found = await samples(cluster.brokers[0].metrics_address, "consumer_group")
            while len(found["rocketmq_consumer_connections"]) < 3 or ("g3",) not in found[LAG]:
                found = await samples(cluster.brokers[0].metrics_address, "consumer_group")
        assert set(found[LAG]) == set(found["rocketmq_consumer_connections"]) == {("g2",), ("g3",), (OTHERS,)}


async def test_dead_letters_count_by_group_from_0_on(tmp_path):
    name = "rocketmq_send_to_dlq_messages_total"
    async with Cluster(tmp_path, **ON) as cluster, connect(cluster.namesrv) as mq:
        address = cluster.brokers[0].metrics_address
        await mq.send("t", b"x")
        async with mq.subscribe("t", group="g", start="earliest") as messages:
            message = await anext(aiter(messages))
            found = await samples(address, "consumer_group", "topic", "is_system")
            assert found[name][("g", "%DLQ%g", "false")] == 0
            async with message.process():
                message.reject("no such order")
        found = await samples(address, "consumer_group")
        assert found[name][("g",)] == 1


async def test_topics_groups_and_transactions_are_counted(tmp_path):
    async with Cluster(tmp_path, permission=4, **ON) as cluster, connect(cluster.namesrv) as mq:
        before = await samples(cluster.brokers[0].metrics_address)
        await mq.admin.create_topic("one")
        await mq.admin.create_topic("two")
        found = await samples(cluster.brokers[0].metrics_address)
        assert found["rocketmq_topic_number"][()] == before["rocketmq_topic_number"][()] + 2
        assert found["rocketmq_broker_permission"] == {(): 4}
        assert found["rocketmq_half_messages"] == found["rocketmq_commit_messages_total"] == {(): 0}


async def test_a_thousand_topics_have_as_many_series_as_are_allowed(tmp_path):
    async with Cluster(tmp_path, metrics_series=10, **ON) as cluster, connect(cluster.namesrv) as mq:
        for number in range(25):
            await mq.send(f"topic-{number}", b"x")
        found = await samples(cluster.brokers[0].metrics_address, "topic", "family")
        told = found["rocketmq_messages_in_total"]
        assert len(told) == 11 and sum(told.values()) == 25
        assert found["sparrowmq_series_left_out"][("rocketmq_messages_in_total",)] >= 15
