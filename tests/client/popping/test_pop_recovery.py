"""Consumers that pop go on while brokers stop and come back: real brokers, one after the other on the same store."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sparrowmq.client.client import connect
from tests.client.conftest import until
from tests.client.consuming.test_consumer import cluster_on
from tests.interop.apache import free_ports

LIMIT_S = 40.0


async def test_a_simple_consumer_waits_for_its_broker_and_keeps_its_receipts(tmp_path):
    ports = free_ports(2)
    async with connect(f"127.0.0.1:{ports[0]}") as mq:
        async with cluster_on(tmp_path, *ports):
            await mq.send("t", b"first")
            await mq.send("t", b"second")
            consumer = await mq.simple_consumer("t", group="g", start="earliest").__aenter__()
            found = await consumer.receive(2, invisible_s=600)
            while len(found) < 2:
                found += await consumer.receive(1, invisible_s=600)
            first, second = found
        receiving = asyncio.create_task(consumer.receive(wait_s=LIMIT_S))
        await asyncio.sleep(0.2)
        async with cluster_on(tmp_path, *ports):
            await consumer.ack(first)
            await consumer.change_invisible(second, 0.5)
            (again,) = await receiving
            assert (again.msg_id, again.reconsume_times) == (second.msg_id, 1)
            await consumer.ack(again)
            assert await consumer.receive(wait_s=1) == []
            await consumer.__aexit__(None, None, None)


@pytest.mark.slow
async def test_handlers_go_on_after_a_restart_and_lose_nothing(tmp_path):
    ports = free_ports(2)
    handled: Counter[str] = Counter()

    async def handle(message) -> None:
        handled[message.text()] += 1
        await asyncio.sleep(0.001)

    async with connect(f"127.0.0.1:{ports[0]}") as mq, connect(f"127.0.0.1:{ports[0]}") as other:
        async with cluster_on(tmp_path, *ports):
            for number in range(300):
                mq.send_soon("t", b"%d" % number)
            await mq.flush()
            members = [
                await client.subscribe(
                    "t", handle, group="g", mode="pop", start="earliest", concurrency=2, invisible_s=2
                ).__aenter__()
                for client in (mq, other)
            ]
            await until(lambda: len(handled) >= 20, LIMIT_S)
        async with cluster_on(tmp_path, *ports):
            await until(lambda: len(handled) == 300, LIMIT_S)
            for member in members:
                await member.__aexit__(None, None, None)
            async with mq.simple_consumer("t", group="g") as rest:
                assert await rest.receive(wait_s=3) == []
    assert sum(handled.values()) < 400  # only those that were with a member during the restart came twice
