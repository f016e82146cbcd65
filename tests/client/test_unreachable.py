"""A broker that clients are told of but cannot reach: whoever meets it says where it should be, and what to look at."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.cli.topic import topic
from sparrowmq.client.client import connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import BrokerUnreachable, SendFailed
from sparrowmq.testing.background import BackgroundCluster
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until

ELSEWHERE = "127.0.0.9"
WHERE = rf"cannot connect to {ELSEWHERE}:\d+ \(.*\); check that it runs, that the port is open, and that the address"
ADVICE = r".*which the broker advertises \(brokerIP1\) can be reached from here"


@pytest.fixture
async def astray(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Its broker runs, and tells clients a wrong address."""
    async with Cluster(tmp_path, ip=ELSEWHERE, bind="127.0.0.1") as started:
        yield started


@pytest.mark.covers("S-PORT-02", "S-PROD-04", "S-PROD-21")
@pytest.mark.covers("S-ERR-01")
async def test_a_sender_is_told_where_the_broker_should_be_and_what_to_check(astray):
    async with connect(astray.namesrv, settings=ProducerSettings(timeout_s=0.5)) as mq:
        async with asyncio.timeout(1.5):  # three attempts in all the time that there is
            with pytest.raises(SendFailed, match=WHERE + ADVICE) as caught:
                await mq.send("t", b"x")
        assert isinstance(caught.value.cause, BrokerUnreachable)
        assert caught.value.cause.address == astray.brokers[0].address


@pytest.mark.covers("S-ERR-01")
async def test_a_consumer_goes_on_trying_and_its_log_says_the_same(astray, caplog, monkeypatch):
    monkeypatch.setattr("sparrowmq.client.consuming.consumer.FIRST_ROUND_LIMIT_S", 0.5)
    caplog.set_level(logging.WARNING)
    async with connect(astray.namesrv) as mq, mq.subscribe("TBW102", group="g"):
        await until(lambda: "cannot share out" in caplog.text)
        await mq._network.brokers.announce()
    lines = [record.getMessage() for record in caplog.records]
    for beginning in (
        f"no heartbeat to {ELSEWHERE}:",
        "group g cannot share out topic TBW102, trying again: ",
    ):
        (line, *_) = [each for each in lines if each.startswith(beginning)]
        assert re.search(WHERE + ADVICE, line)


@pytest.mark.covers("S-ERR-01")
def test_the_command_line_says_the_same(tmp_path):
    with BackgroundCluster(tmp_path, ip=ELSEWHERE, bind="127.0.0.1") as cluster:
        ran = CliRunner().invoke(topic, ["create", "t", "-n", cluster.namesrv])
        assert ran.exit_code != 0
        assert f"cannot connect to {ELSEWHERE}:" in ran.output and "brokerIP1" in ran.output, ran.output
