"""Our client asks servers for a delay, and for a time where they know how."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from sparrowmq import ReceivedMessage
from sparrowmq.errors import InvalidMessage
from tests.interop.our_client import EVERY_BROKER, read, until

pytestmark = EVERY_BROKER


@pytest.mark.slow
@pytest.mark.cell("time")
async def test_a_message_comes_at_its_time_and_can_be_recalled_where_brokers_know_how(target, mq, topic):
    at = datetime.now(UTC) + timedelta(seconds=4)
    recalled = await mq.send(topic, b"recalled", deliver_at=at)
    await mq.send(topic, b"at", deliver_at=at)
    if target.is_ours:  # Apache's needs recallMessageEnable
        await mq.recall(recalled)
    received = await read(mq, topic, 1 if target.is_ours else 2)
    assert {each.body for each in received} == ({b"at"} if target.is_ours else {b"at", b"recalled"})
    # Apache's rounds down to a second, and takes the one before.
    early_ms = 0 if target.is_ours else 2000
    assert min(each.store_timestamp_ms for each in received) >= at.timestamp() * 1000 - early_ms - 1


@pytest.mark.slow
async def test_brokers_that_know_levels_only_are_sent_no_other_delay(target, mq, topic):
    later = mq.send(topic, b"later", delay="15s")
    if target.name == "apache-4.9.7":
        with pytest.raises(InvalidMessage, match="delivers after its delay levels only"):
            await later
    else:
        assert (await later).recall_handle


@pytest.mark.covers("S-DELAY-01")
@pytest.mark.cell("level")
async def test_a_delayed_message_comes_after_its_delay(mq, topic):
    arrived: list[tuple[float, ReceivedMessage]] = []
    async with mq.subscribe(topic, lambda msg: arrived.append((time.time(), msg)), group=f"g-{topic}"):
        sent = time.time()
        await mq.send(topic, b"later", delay_level=2)
        await until(lambda: arrived)
    assert 1.5 < arrived[0][0] - sent < 5.0 and arrived[0][1].topic == topic
