"""What a handler decides about its messages, with our client and our broker together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import Message
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until

FIRST_RETRY_S = 10


async def until_after_retries(clock: ManualClock, holds: Callable[[], bool]) -> None:
    """Let time pass at the broker until the condition holds."""
    async with asyncio.timeout(10):
        while not holds():
            await clock.advance(FIRST_RETRY_S)


@pytest.mark.covers("S-CONS-19")
async def test_a_handler_asks_for_a_retry_by_a_call_or_an_exception_and_acknowledges_by_returning(
    tmp_path: Path,
) -> None:
    clock, deliveries = ManualClock(), list[tuple[bytes, int]]()

    def handle(message: ReceivedMessage) -> bool:
        deliveries.append((message.body, message.reconsume_times))
        if message.reconsume_times == 0 and message.body == b"calls":
            message.retry()
        elif message.reconsume_times == 0 and message.body == b"raises":
            raise ValueError("not yet")
        return False

    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv) as mq:
        await mq.send_many([Message("orders", body) for body in (b"calls", b"raises", b"returns")])
        async with mq.subscribe("orders", handle, group="g", start="earliest"):
            await until_after_retries(clock, lambda: len(deliveries) >= 5)
    assert sorted(deliveries) == [
        (b"calls", 0),
        (b"calls", 1),
        (b"raises", 0),
        (b"raises", 1),
        (b"returns", 0),
    ]


@pytest.mark.covers("S-CONS-11")
@pytest.mark.parametrize("acknowledged", [0, 2])
async def test_a_failed_batch_comes_again_without_the_messages_that_its_handler_acknowledged(
    tmp_path: Path, acknowledged: int
) -> None:
    clock, first, again = ManualClock(), list[bytes](), list[bytes]()

    def handle(messages: list[ReceivedMessage]) -> None:
        if messages[0].reconsume_times:
            again.extend(message.body for message in messages)
            return
        first.extend(message.body for message in messages)
        for message in messages[:acknowledged]:
            message.ack()
        raise ValueError("not yet")

    bodies = [b"1", b"2", b"3", b"4", b"5"]
    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv) as mq:
        await mq.send_many([Message("orders", body) for body in bodies])
        async with mq.subscribe("orders", handle, group="g", batch=8, start="earliest"):
            await until_after_retries(clock, lambda: len(again) >= 5 - acknowledged)
    assert first == bodies and sorted(again) == bodies[acknowledged:]


@pytest.mark.covers("S-CONS-18")
async def test_a_sharing_group_retries_a_failed_message_and_a_broadcasting_one_drops_it(
    tmp_path: Path,
) -> None:
    clock, shared, broadcast = ManualClock(), list[int](), list[int]()

    def fail_shared(message: ReceivedMessage) -> None:
        shared.append(message.reconsume_times)
        if len(shared) == 1:
            raise ValueError("not yet")

    def fail_broadcast(message: ReceivedMessage) -> None:
        broadcast.append(message.reconsume_times)
        raise ValueError("never")

    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("orders", b"x")
        everyone = mq.subscribe(
            "orders", fail_broadcast, group="all", start="earliest", broadcast=True, offset_folder=tmp_path
        )
        async with everyone:
            await until(lambda: broadcast)
        async with mq.subscribe("orders", fail_shared, group="g", start="earliest"):
            await until_after_retries(clock, lambda: len(shared) == 2)
        parked = cluster.brokers[0].store.queues.get("SCHEDULE_TOPIC_XXXX", 2)
        assert parked is not None and parked.max_offset == 1
    assert (shared, broadcast) == ([0, 1], [0])


@pytest.mark.covers("S-CONS-17")
@pytest.mark.covers("S-CONS-20")
async def test_a_failure_in_order_is_repeated_without_end(tmp_path: Path) -> None:
    deliveries: list[tuple[bytes, int]] = []

    def handle(message: ReceivedMessage) -> None:
        deliveries.append((message.body, message.reconsume_times))
        if message.body == b"1" and len(deliveries) <= 40:
            raise ValueError("not yet")

    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.send_many([Message("orders", b"1"), Message("orders", b"2")])
        async with mq.subscribe("orders", handle, group="g", ordered=True, start="earliest", suspend_s=0.01):
            await until(lambda: len(deliveries) == 42)
    assert deliveries == [(b"1", number) for number in range(41)] + [(b"2", 0)]


@pytest.mark.covers("S-CONS-08")
async def test_each_group_gets_every_message_whatever_other_groups_have_consumed(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=2)
    await mq.send_many([Message("orders", b"1"), Message("orders", b"2")])
    got: dict[str, list[bytes]] = {}
    for group in ("first", "second"):
        bodies = got[group] = []
        handle = partial(keep, bodies)
        async with mq.subscribe("orders", handle, group=group, start="earliest") as consumer:
            await until(lambda: len(bodies) == 2)  # noqa: B023
            assert {queue.queue_id for queue in consumer.queues if queue.topic == "orders"} == {0, 1}
    assert {group: sorted(bodies) for group, bodies in got.items()} == {
        "first": [b"1", b"2"],
        "second": [b"1", b"2"],
    }
    assert (await mq.admin.lag("first", "orders")).lag == 0


def keep(bodies: list[bytes], message: ReceivedMessage) -> None:
    bodies.append(message.body)


@pytest.mark.covers("S-CONS-16")
@pytest.mark.parametrize("ask", [lambda consumer: anext(consumer), lambda consumer: consumer.closed()])
async def test_a_filter_that_the_broker_cannot_do_is_the_consumers_error(
    mq: Client, ask: Callable[[Consumer], Awaitable[object]]
) -> None:
    await mq.send("t", b"x")
    consumer = mq.subscribe("t", lambda message: None, group="g", where="amount > 5")
    with pytest.raises(ConfigError, match=r"broker-0 cannot filter t by the SQL92 expression 'amount > 5'"):
        async with consumer:
            with pytest.raises(ConfigError, match="cannot filter"):
                await asyncio.wait_for(ask(consumer), 5)
