"""What the tests of our own client share: the brokers they run against, and waits for what brokers show later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from typing import Final

import pytest

import sparrowmq
from sparrowmq import ReceivedMessage
from tests.interop.servers import APACHE, OURS, Target

QUEUES: Final = 2  # as conftest.py's `topic` has them
LIMIT_S: Final = 30.0
JAVA_SERVERS: Final = (
    pytest.param(APACHE, marks=pytest.mark.slow),
    pytest.param("apache-5.4.0", marks=[pytest.mark.slow, pytest.mark.nightly]),
)
# For `pytestmark`: with these `target` is our own broker, and those of Apache that our client is to work with.
EVERY_BROKER: Final = pytest.mark.parametrize("target", [OURS, *JAVA_SERVERS], indirect=True, scope="package")
numbers = count(1)


async def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


async def shown(target: Target, topic: str, count: int) -> None:
    """Return once consumers can see so many messages of a topic; Apache answers a send before they can."""
    deadline = time.monotonic() + LIMIT_S
    while sum(target.end_of(topic, queue_id) for queue_id in range(QUEUES)) < count:
        assert time.monotonic() < deadline, f"no {count} messages in {topic} after {LIMIT_S} s"
        await asyncio.sleep(0.01)


async def read(mq: sparrowmq.Client, topic: str, wanted: int, limit_s: float = LIMIT_S) -> list[ReceivedMessage]:
    """The first messages of a topic, from its beginning."""
    found: list[ReceivedMessage] = []
    async with mq.pull_consumer(group=f"reader-{next(numbers)}") as reader:
        reader.assign(await reader.queues(topic))
        await reader.seek_to_beginning()
        deadline = time.monotonic() + limit_s
        while len(found) < wanted:
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} messages"
            found += await reader.poll(timeout_s=1)
    return found
