"""Fewer queues hide no message that a group has not consumed."""

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import StillUnread


async def shares(admin):
    return {(each.read_queues, each.write_queues) for each in (await admin.topic("orders")).shares}


async def test_queues_are_read_until_each_group_has_consumed_them(two, admin):
    await admin.create_topic("orders", queues=4)
    async with connect(two.namesrv) as mq:
        for queue in await mq.queues("orders"):
            await mq.send("orders", b"x", queue=queue)
        async with mq.pull_consumer(group="billing", start="earliest") as reader:
            reader.assign(await reader.queues("orders"))
            taken = 0
            while taken < 3:
                taken += len(await reader.poll(max_count=1))
            await reader.commit()
            with pytest.raises(StillUnread, match="billing") as left:
                await admin.change_topic("orders", queues=1)
            assert await shares(admin) == {(4, 1)}
            assert 0 < left.value.groups["billing"] <= 5
            while taken < 8:
                taken += len(await reader.poll())
            await reader.commit()
        await admin.change_topic("orders", queues=1)
    assert await shares(admin) == {(1, 1)}


async def test_messages_without_a_group_count_and_can_be_hidden(two, admin):
    await admin.create_topic("orders", queues=2)
    async with connect(two.namesrv) as mq:
        for queue in await mq.queues("orders"):
            await mq.send("orders", b"x", queue=queue)
    with pytest.raises(StillUnread, match=r"without a group 2.*hide_unread") as left:
        await admin.change_topic("orders", queues=1)
    assert left.value.groups == {"": 2} and await shares(admin) == {(2, 1)}
    await admin.change_topic("orders", queues=1, hide_unread=True)
    assert await shares(admin) == {(1, 1)}


async def test_a_broadcast_group_has_consumed_nothing_until_its_members_have_left(two, admin, tmp_path):
    await admin.create_topic("orders", queues=2)
    async with connect(two.namesrv) as mq:
        for queue in await mq.queues("orders"):
            await mq.send("orders", b"x", queue=queue)
        async with mq.pull_consumer(group="billing") as reader:
            await reader.commit(dict.fromkeys(await reader.queues("orders"), 1))
        async with mq.subscribe(
            "orders", group="caches", broadcast=True, start="earliest", offset_folder=tmp_path
        ) as orders:
            for _ in range(4):
                (await anext(orders)).ack()
            with pytest.raises(StillUnread, match="caches"):
                await admin.change_topic("orders", queues=1)
        await admin.change_topic("orders", queues=1)
    assert await shares(admin) == {(1, 1)}


async def test_more_queues_and_empty_ones_need_no_wait(admin):
    await admin.create_topic("orders", queues=2)
    await admin.change_topic("orders", queues=5)
    await admin.change_topic("orders", queues=3)
    assert await shares(admin) == {(3, 3)}
