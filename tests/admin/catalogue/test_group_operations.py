import pytest

from sparrowmq.admin import catalogue as groups
from sparrowmq.admin.groups import Member
from sparrowmq.client.client import connect
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import GroupConfig


async def test_a_group_is_put_found_and_deleted(two, admin):
    address = two.brokers[0].address
    await groups.put_group(admin.servers, address, GroupConfig("billing", retry_max_times=3))
    assert (await groups.group_table(admin.servers, address))["billing"].retry_max_times == 3
    await groups.delete_group(admin.servers, address, "billing", with_offsets=True)
    assert "billing" not in await groups.group_table(admin.servers, address)


async def test_a_group_is_put_again_with_its_attributes(two, admin):
    address = two.brokers[0].address
    wanted = GroupConfig("billing", attributes={"priority.factor": "50"})
    await groups.put_group(admin.servers, address, wanted)
    known = (await groups.group_table(admin.servers, address))["billing"]
    assert known.attributes == {"priority.factor": "50"}
    await groups.put_group(admin.servers, address, known)
    assert (await groups.group_table(admin.servers, address))["billing"] == known
    assert wanted.attributes == {"priority.factor": "50"}


async def test_a_committed_offset_shows_in_the_groups_progress(two, admin):
    await admin.create_topic("orders", queues=1)
    await admin.create_group("billing")
    queue = MessageQueue("orders", "broker-0", 0)
    async with connect(two.namesrv) as mq:
        for _ in range(3):
            await mq.send("orders", b"x", queue=queue)
    address = two.brokers[0].address
    await groups.commit_offset(admin.servers, address, "billing", queue, 2)
    found = (await groups.group_progress(admin.servers, address, "billing")).offset_table[queue]
    assert (found.broker_offset, found.consumer_offset) == (3, 2)


async def test_requests_for_members_fail_while_no_member_is_online(two, admin):
    await admin.create_topic("orders", queues=1)
    await admin.create_group("billing")
    address = two.brokers[0].address
    for question in (
        groups.group_connections(admin.servers, address, "billing"),
        groups.reset_members(admin.servers, address, "orders", "billing", -1, is_force=True),
    ):
        with pytest.raises(RemoteError) as caught:
            await question
        assert caught.value.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_one_member_handles_a_message_on_demand(two, admin):
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
        outcome = await groups.consume_directly(
            admin.servers,
            message.stored.store_host,
            "billing",
            members[0].client_id,
            message.stored.offset_id,
            message.queue.broker_name,
        )
    assert outcome.consume_result == "CR_SUCCESS" and seen == [b"once more"] * 2
