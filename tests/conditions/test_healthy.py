"""A healthy cluster raises no alarm, and the same cluster raises each kind of alarm when a slave dies."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.chaos.healthy import watch
from bench.chaos.outcome import Outcome
from tests.conditions.healthy import HealthyCluster
from tests.examples.live_prometheus import needs_prometheus

# Of a machine that has much to do, or whose disk is nearly full.
MACHINE = ("process_paused", "LoopIsLate", "of its disk used")


@pytest.mark.nightly
@pytest.mark.timeout(600)
@needs_prometheus
def test_a_healthy_cluster_raises_no_alarm_until_a_slave_dies(tmp_path: Path) -> None:
    outcome = Outcome("healthy", 1)
    with ExitStack() as stack:
        cluster = HealthyCluster(tmp_path, stack)
        asyncio.run(watch(cluster, 2, outcome))
        assert [each for each in outcome.problems if not any(text in each for text in MACHINE)] == []
        assert outcome.acked > 500
        cluster.servers["broker-a-s"].kill()
        deadline = time.monotonic() + 60
        while not any("BrokerDown" in each for each in cluster.alerts(1)):
            assert time.monotonic() < deadline, cluster.alerts(1)
            time.sleep(1)
        assert any("slave_gone" in each for each in cluster.conditions())
        assert any("wrong" in each for each in cluster.findings())
        assert any("no_slave" in line for line in cluster.servers["broker-a"].noise)
