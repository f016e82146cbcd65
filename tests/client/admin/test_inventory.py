import pytest

from sparrowmq.client.admin import inventory
from sparrowmq.client.admin.groups import Member
from sparrowmq.client.client import connect


@pytest.fixture
def servers(admin):
    return admin.servers


async def test_a_name_server_tells_how_it_is_set(two, servers):
    assert "listenPort" in await inventory.namesrv_settings(servers, two.namesrv)


async def test_all_topics_of_a_broker_come_with_their_settings(two, admin, servers):
    await admin.create_topic("orders", queues=3)
    table = await inventory.topic_table(servers, two.brokers[1].address)
    assert table["orders"].read_queue_nums == 3 and "TBW102" in table


async def test_the_groups_of_a_topic_are_those_that_have_consumed_it(two, admin, servers):
    await admin.create_topic("orders")
    await admin.create_group("billing")
    assert await inventory.consumers_of(servers, "orders") == []
    await admin.reset("billing", "orders", "latest")
    assert await inventory.consumers_of(servers, "orders") == ["billing"]


async def test_producers_on_line_are_told_by_group(two, admin, servers):
    await admin.create_topic("orders", queues=1)
    async with connect(two.namesrv) as mq:
        sent = await mq.send("orders", b"x")
        at = next(each.address for each in two.brokers if each.settings.name == sent.queue.broker_name)
        (entry,) = (await inventory.producers(servers, at))["SPARROWMQ_PRODUCER"]
        assert (entry.client_id, entry.language) == (mq.client_id, "PYTHON")


async def test_one_member_handles_a_message_because_an_operator_says_so(two, admin, servers):
    await admin.create_topic("orders", queues=1)
    seen: list[bytes] = []

    async def handle(message):
        seen.append(message.body)

    async with connect(two.namesrv) as mq, mq.subscribe("orders", handle, group="billing", start="new"):
        sent = await mq.send("orders", b"once more")
        members: list[Member] = []
        while not members or not members[0].running or len(seen) < 1:
            members = await admin.members("billing") if "billing" in await admin.groups() else []
        message = await admin.message(sent.msg_id, "orders")
        outcome = await inventory.consume_directly(servers, message, "billing", members[0].client_id)
    assert outcome.consume_result == "CR_SUCCESS" and seen == [b"once more"] * 2
