"""Clients that are left before their consumers: who waits is told."""

import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue


async def test_a_consumer_of_a_client_that_was_left_says_so(mq, cluster):
    other = connect(cluster.namesrv)
    async with asyncio.timeout(10), other:
        entered = other.subscribe("t", group="g")
        handling = other.subscribe("t", lambda message: None, group="handling")
        with pytest.raises(ClientClosed, match="client was left"):
            async with entered, handling:
                iterating = asyncio.ensure_future(anext(entered))
                waiting = asyncio.ensure_future(handling.closed())
                await asyncio.sleep(0)
                await other.__aexit__(None, None, None)
                for each in (iterating, waiting):
                    with pytest.raises(ClientClosed, match="client was left"):
                        await each
                assert all(task.done() or task.cancelling() for task in entered._tasks), "they tried for ever"


async def test_what_is_handled_is_committed_when_a_client_is_left_first(cluster):
    """`close()` in the handler of a signal does so. The messages of the last 5 s came again."""
    async with connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        other = await connect(cluster.namesrv).start()
        with pytest.raises(ClientClosed, match="client was left"):
            async with other.subscribe("t", group="g", start="earliest") as consumer:
                (await anext(consumer)).ack()
                await other.close()
        assert (await mq.admin.lag("g", "t")).lag == 0


async def test_a_consumer_cannot_be_entered_outside_of_its_client(cluster):
    mq = connect(cluster.namesrv)
    consumer = mq.subscribe("t", group="g")
    with pytest.raises(ClientClosed, match="was not entered"):
        await consumer.__aenter__()
    async with mq:
        pass
    with pytest.raises(ClientClosed, match="inside its `with` block"):
        await consumer.__aenter__()


@pytest.mark.parametrize("shares", [True, False])
async def test_a_reader_of_a_client_that_was_left_says_so(cluster, shares):
    mq = connect(cluster.namesrv)
    async with mq, mq.pull_consumer(group="g", auto_commit_s=1) as reader:
        if shares:
            await reader.subscribe("t")
        else:
            reader.assign([MessageQueue("t", "broker-0", 0)])
        polling = asyncio.ensure_future(reader.poll(timeout_s=60))
        await asyncio.sleep(0)
        await mq.__aexit__(None, None, None)
        async with asyncio.timeout(5):
            with pytest.raises(ClientClosed, match="was left"):
                await polling
            with pytest.raises(ClientClosed, match="was left"):
                await reader.poll(timeout_s=60)


async def test_a_reader_cannot_be_entered_outside_of_its_client(cluster):
    with pytest.raises(ClientClosed, match="was not entered"):
        await connect(cluster.namesrv).pull_consumer(group="g").__aenter__()


@pytest.mark.parametrize("kind", ["handler", "listener", "client"])
async def test_a_part_that_leaves_what_waits_for_it_hears_it(cluster, kind):
    said: asyncio.Future[ConfigError] = asyncio.get_running_loop().create_future()

    async def leave(_: object) -> None:
        if not said.done():
            with pytest.raises(ConfigError, match="and leave in the task") as raised:
                await (mq if kind == "client" else consumer).__aexit__(None, None, None)
            said.set_result(raised.value)

    async with connect(cluster.namesrv) as mq:
        await mq.send("orders", b"x")
        if kind == "listener":
            consumer = mq.subscribe("orders", group="g", on_assigned=leave)
        else:
            consumer = mq.subscribe("orders", leave, group="g", start="earliest")
        async with asyncio.timeout(5), consumer:
            await said
