"""The broker's metrics port, from the outside."""

import asyncio

from sparrowmq import Message
from sparrowmq.client.client import connect
from sparrowmq.store.store_settings import Flush
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.metrics.visits import ON, samples, visit
from tests.broker.replication.pairs import pair
from tests.metrics.receiver import receiving


async def test_a_broker_has_no_such_port_unless_asked_for(tmp_path):
    async with Cluster(tmp_path) as cluster:
        assert cluster.brokers[0].metrics_address == ""


async def test_it_is_healthy_and_ready(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster:
        for path in ("/healthz", "/readyz"):
            assert await visit(cluster.brokers[0].metrics_address, path) == (200, "ok\n")


async def test_without_a_name_server_it_is_healthy_and_not_ready(tmp_path):
    clock = ManualClock()
    cluster = Cluster(tmp_path, clock=clock, **ON, namesrv=("127.0.0.1:1",))
    entering = asyncio.create_task(cluster.__aenter__())
    while not entering.done():
        await clock.advance(1)
    address = cluster.brokers[0].metrics_address
    assert (await visit(address, "/healthz"))[0] == 200
    status, text = await visit(address, "/readyz")
    assert status == 503 and "no name server knows this broker" in text
    await cluster.__aexit__(None, None, None)


async def test_ones_own_labels_are_on_every_metric(tmp_path):
    async with Cluster(tmp_path, **ON, metrics_labels=(("zone", "a"),)) as cluster:
        found = await samples(cluster.brokers[0].metrics_address, "zone", "node_id", "node_type")
        assert found["rocketmq_topic_number"].keys() == {("a", "broker-0", "broker")}


REPLICATED = (
    "rocketmq_messages_in_total",
    "rocketmq_throughput_in_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_topic_number",
    "rocketmq_consumer_group_number",
    "rocketmq_half_messages",
    "rocketmq_commit_messages_total",
    "rocketmq_rollback_messages_total",
)


async def test_a_sum_over_a_master_and_its_slave_counts_nothing_twice(tmp_path):
    async with pair(tmp_path, **ON) as both:
        master, slave = await both.start("master"), await both.start("slave")
        async with connect(both.namesrv) as mq:
            await mq.send_many([Message("t", b"x")] * 10)
            async with mq.subscribe("t", group="g", start="earliest") as messages:
                await anext(aiter(messages))
        await both.same()
        of_master, of_slave = [await samples(each.metrics_address, "node_id", "role") for each in (master, slave)]
        assert set(REPLICATED) <= of_master.keys() and not set(REPLICATED) & of_slave.keys()
        assert of_master["rocketmq_storage_size"].keys() == {("broker-a", "master")}
        assert of_slave["rocketmq_storage_size"].keys() == {("broker-a", "slave")}
        exporter = await samples(slave.metrics_address, path="/metrics?compat=exporter")
        assert exporter == {}, "Apache's exporter asks masters only"


async def test_a_collector_can_tell_a_slave_from_its_master(tmp_path):
    with receiving() as receiver:
        settings = {"metrics_otlp": receiver.address, "metrics_otlp_ms": 100}
        async with pair(tmp_path, **settings) as both:
            await both.start("master")
            await both.start("slave")
            instances: set[str] = set()
            while instances != {"broker-a:0", "broker-a:1"}:
                await asyncio.to_thread(receiver.wait_for, len(receiver.requests) + 1)
                instances |= {labels["service.instance.id"] for labels in resources(receiver)}


def resources(receiver):
    """The attributes of each resource that a collector got."""
    for _, _, found in list(receiver.requests):
        for each in found.resource_metrics:
            yield {pair.key: pair.value.string_value for pair in each.resource.attributes}


async def test_a_drained_broker_shows_that_it_is(tmp_path):
    for is_drained in (False, True):
        async with Cluster(tmp_path / str(is_drained), drained=is_drained, **ON) as cluster:
            found = await samples(cluster.brokers[0].metrics_address)
        assert found["sparrowmq_drained"] == {(): int(is_drained)}
        assert found["sparrowmq_ready"] == {(): 1}


async def test_two_that_ask_at_once_are_both_answered(tmp_path):
    async with Cluster(tmp_path, **ON) as cluster:
        address = cluster.brokers[0].metrics_address
        answers = await asyncio.gather(*(visit(address, "/metrics") for _ in range(8)))
        assert {status for status, _ in answers} == {200}


async def test_what_sends_pulls_and_syncs_took_is_told(tmp_path):
    async with Cluster(tmp_path, **ON, flush=Flush.SYNC) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=1)
        for _ in range(5):
            await mq.send("t", b"x")
        found = await samples(cluster.brokers[0].metrics_address, "request_code", "response_code")
        took = found["rocketmq_rpc_latency_milliseconds_count"]
        assert took[("send_message_v2", "success")] == 5
        assert found["sparrowmq_sync_seconds_count"][()] >= 5
        assert found["sparrowmq_flush_lag_seconds"] == {(): 0}
