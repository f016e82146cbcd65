"""Our pull consumer against Apache's servers, and ours."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

import pytest

import sparrowmq
from sparrowmq import MessageQueue
from tests.interop.our_client import EVERY_BROKER, QUEUES, shown, until

pytestmark = EVERY_BROKER


@pytest.mark.covers("S-CONS-01")
@pytest.mark.cell("pull")
async def test_a_reader_seeks_commits_pauses_and_goes_on(mq, target, topic):
    queue = MessageQueue(topic, "broker-a", 0)
    for number in range(5):
        await mq.send(topic, b"%d" % number, queue=queue)
    await shown(target, topic, 5)
    group = f"g-{topic}"
    async with mq.pull_consumer(group=group, start="earliest") as reader:
        reader.assign([queue])
        assert [message.body for message in await reader.poll()] == [b"0", b"1", b"2", b"3", b"4"]
        reader.seek(queue, 3)
        assert [message.body for message in await reader.poll(max_count=1)] == [b"3"]
        assert await reader.positions() == {queue: 4}
        await reader.commit()
        assert await reader.committed(queue) == 4
        reader.pause()
        assert await reader.poll(timeout_s=0.1) == []
        reader.resume()
        assert [message.body for message in await reader.poll()] == [b"4"]
        await reader.seek_to_time(datetime.now() - timedelta(hours=1))
        assert await reader.position(queue) == 0
        await reader.seek_to_end()
        assert await reader.position(queue) == 5
    async with mq.pull_consumer(group=group) as reader:
        reader.assign([queue])
        assert [message.body for message in await reader.poll()] == [b"4"]


async def test_readers_share_a_topic_and_take_over(mq, target, topic):
    for number in range(6):
        await mq.send(topic, b"%d" % number, queue=MessageQueue(topic, "broker-a", number % QUEUES))
    await shown(target, topic, 6)
    async with (
        sparrowmq.connect(target.namesrv) as other,
        mq.pull_consumer(group=f"g-{topic}", start="earliest") as first,
    ):
        async with other.pull_consumer(group=f"g-{topic}", start="earliest") as second:
            for reader in (first, second):
                await reader.subscribe(topic)
            await until(lambda: len(first.assigned) == len(second.assigned) == 1)
            assert sorted([m.body for m in await first.poll() + await second.poll()])[-1] == b"5"
            await second.commit()
        await until(lambda: len(first.assigned) == QUEUES)
        assert await first.poll(timeout_s=0.5) == []
        await first.commit()
    async with mq.pull_consumer(group=f"g-{topic}") as after:
        await after.subscribe(topic)
        await until(lambda: len(after.assigned) == QUEUES)
        assert sum([await after.committed(queue) or 0 for queue in after.assigned]) == 6


async def test_a_waiting_reader_gets_a_message_at_once(mq, topic):
    async with mq.pull_consumer(group=f"g-{topic}") as reader:
        reader.assign(await reader.queues(topic))
        assert await reader.poll(timeout_s=0.2) == []
        polling = asyncio.ensure_future(reader.poll(timeout_s=10))
        await asyncio.sleep(0)
        begin = time.monotonic()
        await mq.send(topic, b"now")
        assert [message.body for message in await polling] == [b"now"]
        assert time.monotonic() - begin < 2
