"""What becomes of groups when a program of theirs is killed: no goodbye, only a connection that ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import GetProducerConnectionList
from sparrowmq.protocol.requests.client_bodies import ProducerConnections
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until

PROGRAM = """
import asyncio, sys, sparrowmq

async def main():
    async with sparrowmq.connect(sys.argv[1]) as mq:
        await mq.producer(group="makers").send("orders", b"x")
        async with mq.subscribe("orders", group="takers"):
            print("ready", flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def program(namesrv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, namesrv, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def makers(cluster: Cluster) -> int:
    """How many producers of the group the broker knows."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(cluster.brokers[0].address)
        answer = await session.call(GetProducerConnectionList("makers"), accept=(ResponseCode.SYSTEM_ERROR,))
    finally:
        pool.close()
    return len(ProducerConnections.decode(answer.body).connection_set) if answer.code == 0 else 0


def owned(consumer: Consumer) -> int:
    """How many queues of the topic it has, without those of its retry topic."""
    return sum(queue.topic == "orders" for queue in consumer.queues)


@pytest.mark.covers("S-CONS-13", "S-CONS-14")
async def test_the_living_take_over_from_a_killed_member_at_once(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=4)
    async with mq.subscribe("orders", group="takers", start="earliest") as consumer:
        await until(lambda: owned(consumer) == 4)
        async with program(cluster.namesrv) as other:
            await until(lambda: owned(consumer) == 2)
            assert len((await mq.admin.group("takers")).members) == 2 and await makers(cluster) == 1
            other.kill()
            await until(lambda: owned(consumer) == 4)  # long before the 20 s after which each looks anyway
        assert len((await mq.admin.group("takers")).members) == 1 and await makers(cluster) == 0
        (message,) = await consumer.take(1)
        assert message.body == b"x"


@pytest.mark.covers("S-CONS-07", "S-CONS-08")
async def test_members_too_many_are_idle_until_their_time_has_come(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=1)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(cluster.namesrv)) for _ in range(3)]
        members = [client.subscribe("orders", group="takers") for client in clients]
        for member in members:
            await member.__aenter__()
        await until(lambda: sorted(owned(member) for member in members) == [0, 0, 1])
        while members:
            (holder,) = [member for member in members if owned(member)]
            await mq.send("orders", b"to the holder alone")
            (message,) = await holder.take(1)
            message.ack()
            members.remove(holder)
            await holder.__aexit__(None, None, None)
            await until(lambda: not members or any(owned(member) for member in members))
