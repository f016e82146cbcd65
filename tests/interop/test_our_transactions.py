"""Transactions of our client, on Apache's servers and ours."""

from __future__ import annotations

import asyncio

import pytest

from sparrowmq import ReceivedMessage
from tests.interop.our_client import EVERY_BROKER, LIMIT_S, QUEUES, until

pytestmark = EVERY_BROKER


@pytest.mark.cell("transaction")
async def test_a_block_commits_its_transaction_and_an_error_rolls_it_back(target, mq, topic):
    mq.check()(lambda message: None)
    async with mq.transaction(topic, b"committed", tag="a"):
        pass
    with pytest.raises(ZeroDivisionError):
        async with mq.transaction(topic, b"rolled back"):
            raise ZeroDivisionError
    async with mq.transaction(topic, b"committed too"):
        pass
    await until(lambda: sum(target.end_of(topic, queue) for queue in range(QUEUES)) == 2)
    async with mq.subscribe(topic, group=f"{topic}-readers", start="earliest") as consumer:
        received = {(await asyncio.wait_for(anext(aiter(consumer)), LIMIT_S)).body for _ in range(2)}
    assert received == {b"committed", b"committed too"}


@pytest.mark.cell("check")
async def test_a_broker_asks_our_check_how_a_transaction_ended(target, mq, topic):
    asked: list[ReceivedMessage] = []

    @mq.check()
    async def check(message: ReceivedMessage) -> bool | None:
        asked.append(message)
        return {b"committed": True, b"rolled back": False}[message.body] if len(asked) > 2 else None

    for body in (b"committed", b"rolled back"):
        async with mq.transaction(topic, body) as transaction:
            await transaction.unknown()
    await until(lambda: sum(target.end_of(topic, queue) for queue in range(QUEUES)) == 1)
    await until(lambda: {message.body for message in asked[2:]} == {b"committed", b"rolled back"})
    assert {message.topic for message in asked} == {topic}
