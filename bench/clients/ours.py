"""Our own client, as docs/use/client.md advises."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop

import sparrowmq
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

DRAIN_EVERY: Final = 64
BATCH: Final = 1000


def _alive(use: Callable[[Any, Task], Awaitable[Figures]]) -> Callable[[Task], Figures]:
    async def live(task: Task) -> Figures:
        async with sparrowmq.connect(task.address) as mq:
            return await use(mq, task)

    def run(task: Task) -> Figures:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live(task))

    return run


async def _send_pipelined(mq: Any, task: Task) -> Figures:
    await _warm_up(mq, task)
    watch, answers = task.watch(), deque[Any]()
    for number in range(task.messages):
        if number % DRAIN_EVERY == 0:
            await mq.drain()
        answers.append(mq.send_soon(task.topic, BODY))
        if len(answers) == UNANSWERED:
            _must_be_stored(await answers.popleft())
    for sent in await asyncio.gather(*answers):
        _must_be_stored(sent)
    return watch.figures(task.messages)


async def _send_in_turn(mq: Any, task: Task) -> Figures:
    await _warm_up(mq, task)
    watch, latencies_s = task.watch(), []
    for _ in range(task.messages):
        began = time.perf_counter()
        _must_be_stored(await mq.send(task.topic, BODY))
        latencies_s.append(time.perf_counter() - began)
    return watch.figures(task.messages, latencies_s)


async def _consume_one_by_one(mq: Any, task: Task) -> Figures:
    count = Count(task)
    async with mq.subscribe(task.topic, group=task.group, start="earliest") as consumer:
        async for message in consumer:
            enough = count.take((message.body,))
            message.ack()
            if enough:
                break
        return count.figures()


async def _consume_batches(mq: Any, task: Task) -> Figures:
    count, done = Count(task), asyncio.Event()

    async def handle(messages: list[sparrowmq.ReceivedMessage]) -> None:
        if not done.is_set() and count.take([message.body for message in messages]):
            done.set()

    consumer = mq.subscribe(task.topic, handle, group=task.group, start="earliest", batch=BATCH)
    async with consumer:
        await asyncio.wait_for(done.wait(), LIMIT_S)
        return count.figures()


def _must_be_stored(sent: sparrowmq.SendResult) -> None:
    if sent.status is not sparrowmq.SendStatus.OK:
        raise RuntimeError(f"a message was stored as {sent.status.name} only")


async def _warm_up(mq: Any, task: Task) -> None:
    for _ in range(WARM_UP):
        await mq.send(task.topic, BODY)


WAYS: Final[Ways] = {
    PIPELINED: _alive(_send_pipelined),
    IN_TURN: _alive(_send_in_turn),
    ONE_BY_ONE: _alive(_consume_one_by_one),
    BATCHES: _alive(_consume_batches),
}
