"""The lag of a group: what is not acknowledged, the same figure for every tool."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import sparrowmq
from sparrowmq.cli.group import group as group_command
from sparrowmq.cli.mqadmin.main import run
from sparrowmq.testing.cluster import Cluster
from tests.broker.metrics.visits import ON, samples


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, **ON) as started:
        async with sparrowmq.connect(started.namesrv) as mq:
            for topic in ("orders", "payments"):
                await mq.admin.create_topic(topic, queues=4)
        yield started


async def lags(cluster: Cluster, group: str) -> dict[str, float]:
    """Return the lag of a group as each tool says it."""

    def words(*command: str) -> list[str]:
        out, err = io.StringIO(), io.StringIO()
        run([*command, "-n", cluster.namesrv], out, err)
        assert not err.getvalue()
        return out.getvalue().split()

    def verb() -> str:
        return CliRunner().invoke(group_command, ["lag", group, "-n", cluster.namesrv]).output

    address = cluster.brokers[0].metrics_address
    of_5x = await samples(address, "consumer_group", "topic")
    of_exporter = await samples(address, "group", "topic", path="/metrics?compat=exporter")
    async with sparrowmq.connect(cluster.namesrv) as mq:
        lag = (await mq.admin.lag(group)).lag
    progress = await asyncio.to_thread(words, "consumerProgress", "-g", group)
    output = await asyncio.to_thread(verb)
    return {
        "metrics": sum(value for key, value in of_5x["rocketmq_consumer_lag_messages"].items() if key[0] == group),
        "exporter": sum(value for key, value in of_exporter["rocketmq_group_diff"].items() if key[0] == group),
        "admin": lag,
        "mqadmin": int(progress[progress.index("Total:") + 1]),
        "group lag": int(output.rpartition("lag: ")[2].split()[0]),
    }


async def test_a_group_that_pops_lags_by_all_messages_that_are_not_acknowledged(cluster: Cluster) -> None:
    async with (
        sparrowmq.connect(cluster.namesrv) as mq,
        mq.simple_consumer("orders", group="billing", start="earliest") as consumer,
    ):
        for number in range(80):
            await mq.send("orders", b"%d" % number)
        # The queue of the first receive begins with messages that stay in flight.
        messages = await consumer.receive(20, invisible_s=600)
        await consumer.ack(messages[5:15])
        lag = await mq.admin.lag("billing")
        assert (lag.lag, lag.in_flight) == (70, 10)
        assert set((await lags(cluster, "billing")).values()) == {70}
        found = await samples(cluster.brokers[0].metrics_address, "consumer_group", "topic")
        assert found["rocketmq_consumer_inflight_messages"] == {("billing", "orders"): 10}
        assert found["rocketmq_consumer_ready_messages"] == {("billing", "orders"): 60}
        for message in messages[:5]:
            await consumer.change_invisible(message, 0.01)
        while (lag := await mq.admin.lag("billing")).in_flight != 5:
            pass
        assert lag.lag == 70


async def test_messages_that_reach_no_member_are_lag_because_members_want_different_topics(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[sparrowmq.ReceivedMessage] = []
    async with (
        sparrowmq.connect(cluster.namesrv) as first,
        sparrowmq.connect(cluster.namesrv) as second,
        first.subscribe("orders", handled.append, group="billing", start="earliest"),
        second.subscribe("payments", handled.append, group="billing", start="earliest"),
    ):
        while len(await first.admin.members("billing")) < 2:
            pass
        for topic in ("orders", "payments"):
            for number in range(40):
                await first.send(topic, b"%d" % number)
        async with asyncio.timeout(60):
            while set((await lags(cluster, "billing")).values()) != {40} or len(handled) < 40:
                pass
        found = await first.admin.lag("billing")
        by_topic = {
            topic: sum(each.lag for each in found.queues if each.queue.topic == topic)
            for topic in ("orders", "payments")
        }
        assert by_topic == {"orders": 20, "payments": 20} and len(handled) == 40
        for client in (first, second, first, second):
            await client._network.brokers.announce()
    warned = [each.getMessage() for each in caplog.records if each.name.endswith("broker_sessions")]
    assert len(warned) == 2 and all("members of group billing differ" in each for each in warned)
    assert "'orders': '*'" in warned[0] and "'payments': '*'" in warned[0]
