"""Ordered topics: the name servers fix the queues among which keys choose, so that no key moves when a broker goes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import SendFailed, SendManyFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.names import ORDER_TOPICS
from sparrowmq.protocol.requests.namesrv_headers import (
    DeleteKVConfig,
    PutKVConfig,
)
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing import Cluster
from tests.client.conftest import until
from tests.client.scripted import stored

SEND = RequestCode.SEND_MESSAGE_V2
BUSY = Reply(ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
KEYS = [str(number) for number in range(20)]


@pytest.fixture
async def two(tmp_path):
    async with Cluster(tmp_path, brokers=2) as cluster:
        yield cluster


def client(peer, **settings):
    return connect(peer.address, settings=ProducerSettings(**settings))


async def stop(cluster, number, mq):
    await cluster.brokers[number].__aexit__(None, None, None)
    await mq._network.routes.refresh()


async def places_of(mq, topic):
    return {key: (await mq.send(topic, b"x", fifo=key)).queue for key in KEYS}


# A broker goes away -------------------------------------------------------------------------------------------------


async def test_a_key_stays_in_its_queue_when_a_broker_goes(two):
    async with connect(two.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=3, ordered=True)
        places = await places_of(mq, "orders")
        assert {queue.broker_name for queue in places.values()} == {"broker-0", "broker-1"}
        await stop(two, 1, mq)
        assert len(await mq.queues("orders")) == 6
        for key, queue in places.items():
            if queue.broker_name == "broker-0":
                assert (await mq.send("orders", b"y", fifo=key)).queue == queue
            else:
                with pytest.raises(SendFailed, match="It waited for its queue, as the topic is ordered"):
                    await mq.send("orders", b"y", fifo=key, timeout_s=0.3)


async def test_keys_of_a_plain_topic_move_when_a_broker_goes(two):
    """What plain topics promise, and no more."""
    async with connect(two.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=3)
        before = await places_of(mq, "orders")
        await stop(two, 1, mq)
        after = await places_of(mq, "orders")
        assert {queue.broker_name for queue in after.values()} == {"broker-0"}
        assert any(after[key] != queue for key, queue in before.items())


async def test_messages_without_a_key_go_where_a_broker_is(two):
    async with connect(two.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=2, ordered=True)
        await stop(two, 1, mq)
        begin = asyncio.get_running_loop().time()
        queues = {(await mq.send("orders", b"x")).queue for _ in range(8)}
        assert {queue.broker_name for queue in queues} == {"broker-0"} and len(queues) == 2
        assert asyncio.get_running_loop().time() - begin < 0.2


async def test_batches_and_one_way_messages_of_a_key_stay_too(two):
    async with connect(two.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=3, ordered=True)
        places = await places_of(mq, "orders")
        key, queue = next((key, queue) for key, queue in places.items() if queue.broker_name == "broker-0")
        gone = next(key for key, queue in places.items() if queue.broker_name == "broker-1")
        await stop(two, 1, mq)
        batch = [Message("orders", b"%d" % number) for number in range(3)]
        results = await mq.send_many(batch, fifo=key)
        assert {result.queue for result in results} == {queue}
        with pytest.raises(SendManyFailed, match="It waited for its queue"):
            await mq.send_many(batch, fifo=gone, timeout_s=0.3)
        before = (await mq.admin.topic("orders")).count
        mq.send_nowait("orders", b"one way", fifo=gone)
        mq.send_nowait("orders", b"one way", fifo=key)
        await until(lambda: mq.unanswered <= 1)
        assert (await mq.admin.topic("orders")).count == before + 1


# Retries ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ordered_peer(peer):
    peer.has("t")
    peer.routes["t"].order_topic_conf = "broker-a:1"
    return peer


async def test_a_busy_broker_gets_the_message_again_before_those_behind_it(ordered_peer):
    ordered_peer.script(SEND, BUSY)
    async with client(ordered_peer) as mq:
        await asyncio.gather(*[mq.send("t", b"%d" % number, fifo="k") for number in range(4)])
    assert [int(command.body) for command in ordered_peer.sent] == [0, 0, 1, 2, 3]


async def test_a_message_in_doubt_is_sent_again_before_those_behind_it(ordered_peer):
    ordered_peer.script(SEND, None)
    async with client(ordered_peer) as mq:
        futures = [mq.send_soon("t", b"%d" % number, fifo="k") for number in range(3)]
        await until(lambda: ordered_peer.sent)
        for session in ordered_peer.sessions:
            session.close()
        await asyncio.gather(*futures)
    assert [int(command.body) for command in ordered_peer.sent] == [0, 0, 1, 2]


async def test_a_message_is_not_sent_again_more_often_than_settings_say(ordered_peer):
    for _ in range(3):
        ordered_peer.script(SEND, BUSY)
    async with client(ordered_peer, retries=1) as mq:
        with pytest.raises(SendFailed, match="after 2 attempts"):
            await mq.send("t", b"x", fifo="k")


async def test_a_message_that_is_stored_less_safely_is_not_stored_twice(ordered_peer):
    ordered_peer.script(SEND, stored(ResponseCode.SLAVE_NOT_AVAILABLE))
    async with client(ordered_peer, retry_not_stored=True) as mq:
        await mq.send("t", b"x", fifo="k")
    assert len(ordered_peer.sent) == 1


# What name servers say ----------------------------------------------------------------------------------------------


async def test_a_name_server_that_does_not_say_the_order_moves_no_key(two, caplog):
    async with connect(two.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=3, ordered=True)
        places = await places_of(mq, "orders")
        await mq.admin.servers.ask_namesrv(DeleteKVConfig(ORDER_TOPICS, "orders"))
        with caplog.at_level(logging.WARNING):
            await stop(two, 1, mq)
            await mq._network.routes.refresh()
        assert caplog.text.count("does not say that topic orders is ordered") == 1
        for key, queue in places.items():
            if queue.broker_name == "broker-0":
                assert (await mq.send("orders", b"y", fifo=key)).queue == queue


async def test_an_order_of_java_is_followed(two):
    async with connect(two.namesrv) as mq:
        await mq.admin.servers.ask_namesrv(PutKVConfig(ORDER_TOPICS, "orders", "broker-1:3;broker-0:3"))
        await mq.admin.create_topic("orders", queues=3, exist_ok=True)
        fixed = [MessageQueue("orders", f"broker-{broker}", number) for broker in (1, 0) for number in range(3)]
        assert await mq.queues("orders") == fixed
        assert (await mq.admin.topic("orders")).order == "broker-1:3;broker-0:3"


async def test_a_topic_of_a_namespace_is_ordered(two):
    async with connect(two.namesrv, namespace="shop") as mq:
        await mq.admin.create_topic("orders", queues=2, ordered=True)
        assert (await mq.admin.topic("orders")).order == "broker-0:2;broker-1:2"
        places = await places_of(mq, "orders")
        await stop(two, 1, mq)
        key, queue = next((key, queue) for key, queue in places.items() if queue.broker_name == "broker-0")
        assert (await mq.send("orders", b"y", fifo=key)).queue == queue
