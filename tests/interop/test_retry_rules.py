"""Our client refuses messages and delays their retries: how exactly depends on the broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import sparrowmq
from sparrowmq import ReceivedMessage, Reject
from sparrowmq.protocol.delay_levels import JAVA_LEVELS
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import dlq_topic
from tests.interop.our_client import EVERY_BROKER, JAVA_SERVERS, read, until
from tests.interop.servers import OURS, Target, running

LATE_S = 15.0  # a busy machine, and Apache's looks for due messages once in a while


@pytest.mark.slow
@EVERY_BROKER
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_rejected_message_is_a_dead_letter_at_once(mq, topic, ordered):
    group, seen = f"g-{topic}-{ordered}", []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            raise Reject("no such customer")

    async with mq.subscribe(topic, handle, group=group, ordered=ordered, start="earliest"):
        sent = [await mq.send(topic, body, fifo="x", keys="k-1") for body in (b"bad", b"good")]
        await until(lambda: seen == [b"bad", b"good"])
        await until_routed(mq, dlq_topic(group))
        [dead] = await read(mq, dlq_topic(group), 1)
    assert (dead.body, dead.keys, dead.reconsume_times) == (b"bad", ["k-1"], 1)
    assert dead.properties[Property.REJECT_REASON] == "no such customer" and dead.msg_id == sent[0].msg_id
    assert seen == [b"bad", b"good"]


async def until_routed(mq: sparrowmq.Client, topic: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await mq.queues(topic)
                return
            except sparrowmq.NoRoute:
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module", params=[OURS, *JAVA_SERVERS])
def usual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker with the usual delay levels, of which tests elsewhere make one second each."""
    conf = {"messageDelayLevel": JAVA_LEVELS}
    with running(request.param, tmp_path_factory.mktemp("usual"), conf) as target:
        yield target


@pytest.mark.slow
@pytest.mark.parametrize(("wanted_s", "at_apache_s"), [(7, 5), pytest.param(30, 30, marks=pytest.mark.nightly)])
async def test_a_retry_comes_after_its_delay_or_the_nearest_level(usual, wanted_s, at_apache_s):
    usual.create_topic(topic := f"Retried-{wanted_s}")
    usual.create_group(f"g-{topic}", retries=3)
    times: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        times.append(time.monotonic())
        if not message.reconsume_times:
            message.retry(delay=f"{wanted_s}s")

    async with (
        sparrowmq.connect(usual.namesrv) as mq,
        mq.subscribe(topic, handle, group=f"g-{topic}", start="earliest"),
    ):
        await mq.send(topic, b"later")
        await until(lambda: len(times) == 2, wanted_s + LATE_S)
    least_s = wanted_s if usual.name == OURS else at_apache_s
    assert least_s - 0.2 <= times[1] - times[0] < least_s + LATE_S


@pytest.mark.slow
@pytest.mark.parametrize("wanted_s", [5, pytest.param(30, marks=pytest.mark.nightly)])
async def test_a_delay_that_is_a_level_is_exact_everywhere(usual, wanted_s):
    usual.create_topic(topic := f"Delayed-{wanted_s}")
    async with sparrowmq.connect(usual.namesrv) as mq:
        began = time.time()
        await mq.send(topic, b"later", delay=f"{wanted_s}s")
        [message] = await read(mq, topic, 1, wanted_s + LATE_S)
    assert wanted_s - 0.2 <= message.store_timestamp_ms / 1000 - began < wanted_s + LATE_S
