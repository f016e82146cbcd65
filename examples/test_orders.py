"""Tests with a real broker: installing the package is all, for it brings the fixtures along.

pytest examples/test_orders.py
"""

import pytest

from sparrowmq import Client, sync


@pytest.mark.asyncio
async def test_a_paid_order_is_delivered(rocketmq: Client, rocketmq_topic: str) -> None:
    await rocketmq.send(rocketmq_topic, b"new", tag="new")
    await rocketmq.send(rocketmq_topic, b"paid", tag="paid")
    async with rocketmq.subscribe(rocketmq_topic, group="billing", tag="paid", start="earliest") as orders:
        message = await anext(orders)
        assert message.body == b"paid"
        message.ack()


def test_the_same_without_async(rocketmq_sync: sync.SyncClient, rocketmq_topic: str) -> None:
    sent = rocketmq_sync.send(rocketmq_topic, b"hello")
    with rocketmq_sync.subscribe(rocketmq_topic, group="readers", start="earliest") as orders:
        message = next(iter(orders))
        assert message.msg_id == sent.msg_id
        message.ack()
