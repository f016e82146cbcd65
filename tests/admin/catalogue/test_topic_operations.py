import pytest

from sparrowmq.admin import catalogue as topics
from sparrowmq.admin.servers import Servers
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import GetAllTopicConfigReply
from sparrowmq.protocol.requests.bodies import TopicConfig, TopicConfigTable
from sparrowmq.remoting.handler import Reply
from tests.client.scripted import Scripted


async def test_a_topic_is_put_found_and_deleted(two, admin):
    address = two.brokers[1].address
    await topics.put_topic(admin.servers, address, TopicConfig("orders", 3, 2))
    table = await topics.topic_table(admin.servers, address)
    assert (table["orders"].read_queue_nums, table["orders"].write_queue_nums) == (3, 2)
    assert "TBW102" in table and "TBW102" in await topics.system_topics_of_broker(admin.servers, address)
    assert list(await topics.topic_offsets(admin.servers, address, "orders")) == [
        MessageQueue("orders", "broker-1", number) for number in range(3)
    ]
    await topics.delete_topic(admin.servers, address, "orders")
    assert "orders" not in await topics.topic_table(admin.servers, address)


async def test_a_topic_keeps_fixed_attributes_when_it_is_put_again(two, admin):
    address = two.brokers[0].address
    fixed = {"queue.type": "SimpleCQ", "message.type": "FIFO"}
    await topics.put_topic(admin.servers, address, TopicConfig("orders", 3, 2), fixed)
    known = await topics.topic_config(admin.servers, address, "orders")
    assert known.attributes == fixed
    await topics.put_topic(admin.servers, address, known, {"message.type": "DELAY"})
    assert (await topics.topic_config(admin.servers, address, "orders")).attributes == fixed | {"message.type": "DELAY"}


async def test_a_group_that_committed_an_offset_belongs_to_the_topic(two, admin):
    await admin.create_topic("orders")
    await admin.create_group("billing")
    address = two.brokers[0].address
    assert await topics.groups_of_topic(admin.servers, address, "orders") == []
    await admin.reset("billing", "orders", "latest")
    assert await topics.groups_of_topic(admin.servers, address, "orders") == ["billing"]


@pytest.mark.timeout(20)
async def test_topics_that_come_again_and_again_are_an_error():
    async with Scripted() as peer, Network(peer.address) as network:
        body = TopicConfigTable(topic_config_table={name: TopicConfig(name) for name in "ab"}).encode()
        peer.usual[RequestCode.GET_ALL_TOPIC_CONFIG] = lambda _: Reply(header=GetAllTopicConfigReply(9), body=body)
        with pytest.raises(RemoteProtocolError, match="reports 9 topics, but keeps returning the same 2"):
            await topics.topic_table(Servers(network, 5.0), peer.address)
