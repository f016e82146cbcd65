"""nats-py with JetStream, with uvloop: `publish_async`; a push subscription, or `fetch` of a pull consumer.

Messages one by one are acknowledged each. `AckPolicy.ALL` is quicker for batches: the last message of one settles all
before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import nats
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, StorageType
from nats.js.client import JetStreamContext

from bench.clients.task import (
    BATCHES,
    BODY,
    IN_TURN,
    LIMIT_S,
    ONE_BY_ONE,
    PIPELINED,
    UNANSWERED,
    WARM_UP,
    Count,
    Figures,
    Task,
    Ways,
)

BATCH: Final = 1000


def _alive(use: Callable[[JetStreamContext, Task], Awaitable[Figures]]) -> Callable[[Task], Figures]:
    async def live(task: Task) -> Figures:
        connection = await nats.connect(f"nats://{task.address}")
        stream = connection.jetstream()
        await stream.add_stream(name=task.topic, subjects=[task.topic], storage=StorageType.FILE)
        figures = await use(stream, task)
        await connection.close()
        return figures

    def run(task: Task) -> Figures:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live(task))

    return run


async def _send_pipelined(stream: JetStreamContext, task: Task) -> Figures:
    await _warm_up(stream, task)
    watch, answers = task.watch(), deque[Any]()
    for _ in range(task.messages):
        answers.append(await stream.publish_async(task.topic, BODY))
        if len(answers) == UNANSWERED:
            await answers.popleft()
    await asyncio.gather(*answers)
    return watch.figures(task.messages)


async def _send_in_turn(stream: JetStreamContext, task: Task) -> Figures:
    await _warm_up(stream, task)
    watch, latencies_s = task.watch(), []
    for _ in range(task.messages):
        began = time.perf_counter()
        await stream.publish(task.topic, BODY)
        latencies_s.append(time.perf_counter() - began)
    return watch.figures(task.messages, latencies_s)


async def _consume_one_by_one(stream: JetStreamContext, task: Task) -> Figures:
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10 * BATCH)
    consumer = await stream.subscribe(task.topic, durable=task.group, config=config, manual_ack=True)
    return await asyncio.wait_for(_read_each(consumer, Count(task)), LIMIT_S)


async def _read_each(consumer: Any, count: Count) -> Figures:
    async for message in consumer.messages:
        await message.ack()
        if count.take((message.data,)):
            break
    return count.figures()


async def _consume_batches(stream: JetStreamContext, task: Task) -> Figures:
    config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=10 * BATCH)
    consumer = await stream.pull_subscribe(task.topic, durable=task.group, config=config)
    return await asyncio.wait_for(_read_batches(consumer, Count(task)), LIMIT_S)


async def _read_batches(consumer: Any, count: Count) -> Figures:
    while True:
        messages = await consumer.fetch(BATCH, timeout=5)
        await messages[-1].ack()
        if count.take([message.data for message in messages]):
            return count.figures()


async def _warm_up(stream: JetStreamContext, task: Task) -> None:
    for _ in range(WARM_UP):
        await stream.publish(task.topic, BODY)


WAYS: Final[Ways] = {
    PIPELINED: _alive(_send_pipelined),
    IN_TURN: _alive(_send_in_turn),
    ONE_BY_ONE: _alive(_consume_one_by_one),
    BATCHES: _alive(_consume_batches),
}
