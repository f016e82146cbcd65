"""aiokafka, with uvloop: futures of `send`, which its batches answer together; `getmany` on the other side."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

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

LINGER_MS: Final = 5
BATCH_BYTES: Final = 1 << 18
BATCH: Final = 1000


def _alive(use: Callable[[Task], Awaitable[Figures]]) -> Callable[[Task], Figures]:
    async def live(task: Task) -> Figures:
        return await use(task)

    def run(task: Task) -> Figures:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live(task))

    return run


async def _send_pipelined(task: Task) -> Figures:
    producer = AIOKafkaProducer(
        bootstrap_servers=task.address, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    )
    async with producer:
        await _warm_up(producer, task)
        watch, answers = task.watch(), deque[Any]()
        for _ in range(task.messages):
            answers.append(await producer.send(task.topic, BODY))
            if len(answers) == UNANSWERED:
                await answers.popleft()
        await asyncio.gather(*answers)
        return watch.figures(task.messages)


async def _send_in_turn(task: Task) -> Figures:
    async with AIOKafkaProducer(bootstrap_servers=task.address, acks="all") as producer:
        await _warm_up(producer, task)
        watch, latencies_s = task.watch(), []
        for _ in range(task.messages):
            began = time.perf_counter()
            await producer.send_and_wait(task.topic, BODY)
            latencies_s.append(time.perf_counter() - began)
        return watch.figures(task.messages, latencies_s)


async def _consume_one_by_one(task: Task) -> Figures:
    async with _consumer(task) as consumer:
        return await asyncio.wait_for(_read_each(consumer, Count(task)), LIMIT_S)


async def _read_each(consumer: AIOKafkaConsumer, count: Count) -> Figures:
    async for record in consumer:
        if count.take((record.value,)):
            break
    return count.figures()


async def _consume_batches(task: Task) -> Figures:
    async with _consumer(task) as consumer:
        return await asyncio.wait_for(_read_batches(consumer, Count(task)), LIMIT_S)


async def _read_batches(consumer: AIOKafkaConsumer, count: Count) -> Figures:
    while True:
        found = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
        bodies = [record.value for records in found.values() for record in records]
        if bodies and count.take(bodies):
            return count.figures()


def _consumer(task: Task) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        task.topic, bootstrap_servers=task.address, group_id=task.group, auto_offset_reset="earliest"
    )


async def _warm_up(producer: AIOKafkaProducer, task: Task) -> None:
    for _ in range(WARM_UP):
        await producer.send_and_wait(task.topic, BODY)


WAYS: Final[Ways] = {
    PIPELINED: _alive(_send_pipelined),
    IN_TURN: _alive(_send_in_turn),
    ONE_BY_ONE: _alive(_consume_one_by_one),
    BATCHES: _alive(_consume_batches),
}
