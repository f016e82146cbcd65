"""A broker's address is given as that of a name server, or the other way round."""

import asyncio

import pytest

import sparrowmq
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.errors import NameServerUnreachable, SendFailed, WrongServer
from sparrowmq.testing.cluster import Cluster


async def test_a_broker_given_as_name_server_is_named_as_one(cluster: Cluster):
    broker = cluster.brokers[0].address
    words = f"{broker} is a broker, not a name server; give the name server's address, whose port is usually 9876"
    async with sparrowmq.connect(broker) as mq:
        for call in (mq.queues("t"), mq.admin.topics(), mq.admin.brokers(), mq.admin.topic("t")):
            with pytest.raises(WrongServer) as caught:
                await call
            assert str(caught.value) == words
        with pytest.raises(SendFailed) as failed:
            await mq.send("t", b"x")
        assert words in str(failed.value) and isinstance(failed.value.cause, WrongServer)
    with BlockingNetwork([broker]) as network, pytest.raises(WrongServer, match="is a broker"):
        await asyncio.to_thread(network.topics)


async def test_a_name_server_beside_it_answers(cluster: Cluster):
    broker = cluster.brokers[0].address
    for _ in range(4):  # Which one is asked first is random.
        async with sparrowmq.connect([broker, cluster.namesrv]) as mq:
            assert await mq.admin.clusters() == ["DefaultCluster"]
    with BlockingNetwork([broker, cluster.namesrv]) as network:
        assert await asyncio.to_thread(network.has_brokers)


async def test_beside_a_name_server_that_is_away_it_is_that_which_is_missed(cluster: Cluster):
    async with sparrowmq.connect([cluster.brokers[0].address, "127.0.0.1:1"]) as mq:
        with pytest.raises(NameServerUnreachable):
            await mq.queues("t")


async def test_a_name_server_given_as_broker_is_named_as_one(cluster: Cluster, mq: Client):
    words = f"{cluster.namesrv} is a name server, not a broker; give the broker's name, or its address"
    for call in (mq.admin.broker_figures, mq.admin.broker_settings, mq.admin.behind):
        with pytest.raises(WrongServer, match=words):
            await call(cluster.namesrv)
