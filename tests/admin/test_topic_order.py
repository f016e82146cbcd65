"""The order of topics, as operators create, keep and delete it."""

from __future__ import annotations

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import topic_table
from sparrowmq.errors import ChangeFailed, ConfigError, NetworkError
from sparrowmq.protocol.names import ORDER_TOPICS
from sparrowmq.protocol.requests.namesrv_headers import GetKVConfig, PutKVConfig, UpdateNamesrvConfig


async def order_of(admin, topic):
    return (await admin.servers.ask_namesrv(GetKVConfig(ORDER_TOPICS, topic), accept=(22,))).header.value


async def test_a_name_server_that_gives_no_orders_refuses_the_topic(admin):
    await admin.servers.ask_namesrv(UpdateNamesrvConfig(), b"orderMessageEnable=false\n")
    with pytest.raises(ConfigError, match="-k orderMessageEnable -v true"):
        await admin.create_topic("orders", ordered=True)
    assert await admin.topics() == []
    await admin.create_topic("plain")


async def test_an_ordered_topic_keeps_its_queues(admin):
    await admin.create_topic("orders", queues=2, ordered=True)
    for change in (
        admin.change_topic("orders", queues=4),
        admin.change_topic("orders", write_queues=1),
        admin.change_topic("orders", read_queues=1),
        admin.create_topic("orders", queues=4, exist_ok=True, ordered=True),
        admin.create_topic("orders", queues=4, exist_ok=True),
    ):
        with pytest.raises(ConfigError, match="would move its keys"):
            await change
    await admin.change_topic("orders", queues=2, perm="r")
    await admin.create_topic("orders", queues=2, exist_ok=True)
    topic = await admin.topic("orders")
    assert topic.order == "broker-0:2;broker-1:2"
    assert {(share.read_queues, share.write_queues) for share in topic.shares} == {(2, 2)}


async def test_a_topic_stays_on_its_brokers_when_the_cluster_grows_or_one_is_away(admin):
    await admin.servers.ask_namesrv(PutKVConfig(ORDER_TOPICS, "orders", "broker-0:2;broker-9:2"))
    assert await admin.create_topic("orders", queues=2, ordered=True) == ["broker-0"]
    assert await order_of(admin, "orders") == "broker-0:2;broker-9:2"
    await admin.servers.ask_namesrv(PutKVConfig(ORDER_TOPICS, "others", "broker-9:2"))
    with pytest.raises(ConfigError, match="none of these brokers is there now"):
        await admin.create_topic("others", queues=2)


async def test_a_deleted_topic_leaves_no_order_behind(admin):
    await admin.create_topic("orders", queues=2, ordered=True)
    await admin.delete_topic("orders")
    assert await order_of(admin, "orders") is None
    await admin.create_topic("orders", queues=5)
    assert (await admin.topic("orders")).order is None


async def test_a_name_server_that_is_away_ends_the_creation_before_any_broker_has_the_topic(two, admin):
    async with Admin([two.namesrv, "127.0.0.1:1"]) as partial:
        with pytest.raises((ChangeFailed, NetworkError), match=r"127\.0\.0\.1:1"):
            await partial.create_topic("orders", ordered=True)
    assert await admin.topics() == []


async def test_brokers_are_said_that_a_topic_is_ordered(admin):
    await admin.create_topic("orders", ordered=True)
    for place in await admin.brokers():
        assert (await topic_table(admin.servers, str(place.master)))["orders"].order is True
