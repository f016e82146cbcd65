"""redis-py with hiredis and streams: pipelines of XADD; XREADGROUP with COUNT, and one XACK for what it gave.

It fetches nothing ahead, so it has no way to consume one by one that is not a round trip for each message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import redis

from bench.clients.task import BATCHES, BODY, IN_TURN, LIMIT_S, PIPELINED, WARM_UP, Count, Figures, Task, Ways

BATCH: Final = 1000
FIELD: Final = b"body"


def _alive(use: Callable[[redis.Redis, Task], Figures]) -> Callable[[Task], Figures]:
    def run(task: Task) -> Figures:
        host, _, port = task.address.partition(":")
        with redis.Redis(host=host, port=int(port), socket_timeout=LIMIT_S) as server:
            return use(server, task)

    return run


def _send_pipelined(server: redis.Redis, task: Task) -> Figures:
    _warm_up(server, task)
    watch = task.watch()
    for begin in range(0, task.messages, BATCH):
        with server.pipeline(transaction=False) as pipeline:
            for _ in range(min(BATCH, task.messages - begin)):
                pipeline.xadd(task.topic, {FIELD: BODY})
            pipeline.execute()  # raises the first error of its answers
    return watch.figures(task.messages)


def _send_in_turn(server: redis.Redis, task: Task) -> Figures:
    _warm_up(server, task)
    watch, latencies_s = task.watch(), []
    for _ in range(task.messages):
        began = time.perf_counter()
        server.xadd(task.topic, {FIELD: BODY})
        latencies_s.append(time.perf_counter() - began)
    return watch.figures(task.messages, latencies_s)


def _consume_batches(server: redis.Redis, task: Task) -> Figures:
    server.xgroup_create(task.topic, task.group, id="0")
    count = Count(task)
    while True:
        found: Any = server.xreadgroup(task.group, "consumer", {task.topic: ">"}, count=BATCH, block=5000)
        messages = _messages(found)
        server.xack(task.topic, task.group, *(name for name, _ in messages))
        if count.take([fields[FIELD] for _, fields in messages]):
            return count.figures()


def _messages(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of the only stream that was asked for. Raises: TimeoutError if it gave none."""
    if not found:
        raise TimeoutError("no messages within 5 s")
    ((_, messages),) = found.items() if isinstance(found, dict) else found
    return list(messages)


def _warm_up(server: redis.Redis, task: Task) -> None:
    for _ in range(WARM_UP):
        server.xadd(task.topic, {FIELD: BODY})


WAYS: Final[Ways] = {
    PIPELINED: _alive(_send_pipelined),
    IN_TURN: _alive(_send_in_turn),
    BATCHES: _alive(_consume_batches),
}
