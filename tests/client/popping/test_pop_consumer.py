import asyncio
from typing import Any

import pytest

from sparrowmq.client.client import connect
from sparrowmq.testing import Cluster
from tests.client.conftest import until


async def test_a_consumer_that_pops_gives_back_to_the_broker_that_it_pops(peer):
    async with connect(peer.address) as mq:
        popping: Any = mq.subscribe("t", group="g", mode="pop")
        assert popping._assignment._pops is popping._delivery._redelivery._pops


@pytest.mark.parametrize(
    ("start", "bodies"),
    [("latest", ["old", "last", "new"]), ("new", ["new"]), ("earliest", ["old", "last", "new"])],
)
async def test_new_group_that_pops_starts_in_a_young_queue_as_one_that_pulls(tmp_path, start, bodies):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=1)
        for body in (b"old", b"last"):
            await mq.send("t", body)
        async with mq.simple_consumer("t", group="g", start=start) as consumer:
            messages = await consumer.receive(wait_s=0)
            await mq.send("t", b"new")
            while len(messages) < len(bodies):
                messages += await consumer.receive()
    assert [message.text() for message in messages] == bodies


@pytest.mark.parametrize(
    ("iterates", "tuning", "held"),
    [
        (False, {}, 2),
        (False, {"prefetch": 0}, 1),
        (True, {}, 2),
        (True, {"prefetch": 0}, 1),
    ],
)
async def test_members_that_are_idle_get_the_messages_that_a_busy_one_does_not_handle(tmp_path, iterates, tuning, held):
    by_first, by_second, is_free = [], [], asyncio.Event()

    async def work(message):
        await is_free.wait()
        by_first.append(message.text())

    async def help_out(message):
        by_second.append(message.text())

    async def iterate(consumer):
        async for message in consumer:
            await work(message)
            message.ack()

    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.namesrv) as mq,
        connect(cluster.namesrv) as other,
        asyncio.TaskGroup() as tasks,
    ):
        await mq.admin.create_topic("tasks", queues=4)
        for number in range(10):
            await mq.send("tasks", b"%d" % number)
        options = {"group": "g", "mode": "pop", **tuning}
        handler = None if iterates else work
        first: Any = mq.subscribe("tasks", handler, concurrency=1, **options)
        async with first:
            iterating = tasks.create_task(iterate(first)) if iterates else None
            await until(lambda: sum(state.unsettled_count for state in first._assignment._pop_queues()) == held)
            async with other.subscribe("tasks", help_out, concurrency=1, **options):
                await until(lambda: len(by_second) == 10 - held)
                is_free.set()
                await until(lambda: len(by_first) == held)
            if iterating is not None:
                iterating.cancel()
