import asyncio
from contextlib import asynccontextmanager

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.client.client import connect
from sparrowmq.errors import AlreadyThere, ConfigError, InvalidName, NoBroker, NoRoute, RequestTimeout
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.namesrv_headers import RegisterBroker
from sparrowmq.testing.cluster import Cluster

BOTH = ["broker-0", "broker-1"]


@pytest.mark.covers("S-ROUTE-07")
@pytest.mark.covers("S-ROUTE-10")
async def test_a_topic_is_created_at_every_master_and_shown(admin):
    assert await admin.create_topic("orders", queues=3, perm="r") == BOTH
    assert await admin.topics() == ["orders"]
    topic = await admin.topic("orders")
    assert [(each.broker, each.read_queues, each.write_queues, each.perm) for each in topic.shares] == [
        ("broker-0", 3, 3, "r"),
        ("broker-1", 3, 3, "r"),
    ]
    assert [each.queue for each in topic.queues] == [
        MessageQueue("orders", name, number) for name in BOTH for number in range(3)
    ]
    assert topic.count == 0 and topic.queues[0].last_stored is None


async def test_queues_tell_where_they_begin_and_end(two, admin):
    await admin.create_topic("orders", queues=1)
    async with connect(two.namesrv) as mq:
        sent = [await mq.send("orders", b"x") for _ in range(5)]
    topic = await admin.topic("orders")
    held = {each.queue: each for each in topic.queues}
    for queue, each in held.items():
        assert (each.min_offset, each.max_offset) == (0, sum(one.queue == queue for one in sent))
        assert each.last_stored is not None and each.last_stored.tzinfo is not None
    assert topic.count == 5


async def test_creating_what_is_there_is_refused_unless_it_may_be(admin):
    await admin.create_topic("orders", queues=2)
    with pytest.raises(AlreadyThere, match="orders is there already, at broker-0, broker-1"):
        await admin.create_topic("orders", queues=5)
    assert (await admin.topic("orders")).shares[0].read_queues == 2
    await admin.create_topic("orders", queues=5, exist_ok=True)
    assert (await admin.topic("orders")).shares[0].read_queues == 5


async def test_a_change_leaves_what_is_not_given(admin):
    await admin.create_topic("orders", queues=4)
    assert await admin.change_topic("orders", write_queues=2) == BOTH
    await admin.change_topic("orders", perm="w")
    for share in (await admin.topic("orders")).shares:
        assert (share.read_queues, share.write_queues, share.perm) == (4, 2, "w")
    await admin.change_topic("orders", queues=6)
    assert {(each.read_queues, each.write_queues) for each in (await admin.topic("orders")).shares} == {(6, 6)}


async def test_a_deleted_topic_is_nowhere(admin):
    await admin.create_topic("orders")
    assert await admin.delete_topic("orders") == BOTH
    assert await admin.topics() == []
    with pytest.raises(NoRoute):
        await admin.topic("orders")


@pytest.mark.parametrize("call", ["topic", "change_topic", "delete_topic"])
async def test_a_topic_that_is_not_there_is_told(admin, call):
    with pytest.raises(NoRoute, match="no route for topic 'missing'"):
        await getattr(admin, call)("missing")


async def test_a_cluster_without_the_topic_is_told(admin):
    await admin.create_topic("orders")
    assert await admin.change_topic("orders", queues=2, cluster="DefaultCluster") == BOTH
    with pytest.raises(NoBroker, match="no cluster 'elsewhere'"):
        await admin.delete_topic("orders", cluster="elsewhere")


async def test_what_no_topic_may_be_is_refused(admin):
    with pytest.raises(InvalidName):
        await admin.create_topic("no topic")
    with pytest.raises(InvalidName, match="belongs to RocketMQ"):
        await admin.delete_topic("TBW102")
    with pytest.raises(ConfigError, match="perm='x' is unknown"):
        await admin.create_topic("orders", perm="x")


async def test_hidden_topics_are_listed_when_asked_for(two, admin):
    await admin.create_topic("orders")
    async with connect(two.namesrv) as mq, mq.subscribe("orders", lambda _: None, group="billing"):
        shown, hidden = await admin.topics(), await admin.topics(hidden=True)
    assert shown == ["orders"]
    assert {"orders", "%RETRY%billing", "TBW102", "DefaultCluster"} <= set(hidden)


@asynccontextmanager
async def hanging_broker(namesrv, name):
    """Register a server that takes connections and never answers, before all others by its name."""
    taken = []
    server = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    async with server, Admin(namesrv) as admin:
        host, port = server.sockets[0].getsockname()
        await admin.servers.ask_namesrv(RegisterBroker(name, f"{host}:{port}", "DefaultCluster", "", 0))
        yield
        for writer in taken:
            writer.close()


async def test_topics_are_listed_while_a_broker_hangs(two):
    async with Admin(two.namesrv) as admin:
        await admin.create_topic("orders")
    async with hanging_broker(two.namesrv, "a-broker"), Admin(two.namesrv, timeout_s=0.2) as admin:
        assert await admin.topics() == ["orders"]


async def test_topics_are_an_error_where_every_broker_hangs(tmp_path):
    async with (
        Cluster(tmp_path, brokers=0) as empty,
        hanging_broker(empty.namesrv, "a-broker"),
        Admin(empty.namesrv, timeout_s=0.2) as admin,
    ):
        with pytest.raises(RequestTimeout):
            await admin.topics()
