"""What operators do with a running cluster, under load, with real processes: no send fails, and nothing is lost."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from sparrowmq.admin.rolling_restart import RollingRestart, StepTimeouts
from sparrowmq.admin.scaling import Scaling, WaitLimits
from sparrowmq.client.cluster import routes
from sparrowmq.loop.clock import SystemClock
from tests.crash.operations import NAMES, TOPIC, OperatedCluster, under_load

REFRESH_S = 5.0  # a producer keeps an old route up to this time here; 30 s are usual
SHORT = StepTimeouts(settle_s=REFRESH_S + 1, quiet_s=0.5, noise_s=5.0)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_no_send_fails_while_all_brokers_are_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "REFRESH_S", REFRESH_S)
    with ExitStack() as stack:
        cluster = OperatedCluster(tmp_path, stack)
        pids = {place: broker.pid for place, broker in cluster.brokers.items()}
        told: list[str] = []
        async with under_load(cluster, rate=100, timeout_s=30) as (admin, traffic):
            rolling = RollingRestart(admin.servers, SystemClock(), None, SHORT, told.append)
            before = {each.place: each for each in await rolling.poll()}
            plan = await rolling.plan(since_ms=2**53)
            assert [step.target.place[1] for step in plan.steps] == [1, 0, 1, 0]
            assert not plan.problems and not plan.risks
            await rolling.run(plan)
            after = {each.place: each for each in await rolling.poll()}
        assert traffic.failed == [] and traffic.lost == set() and len(traffic.acked) > 100
        for place, broker in cluster.brokers.items():
            assert broker.pid == pids[place] and broker.said().count("boot success") == 2
            assert (after[place].began_ms or 0) > (before[place].began_ms or 0)
            assert not after[place].is_drained and not after[place].problems


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_no_send_fails_while_a_topic_loses_queues_and_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REFRESH_S", REFRESH_S)
    with ExitStack() as stack:
        cluster = OperatedCluster(tmp_path, stack)
        async with under_load(cluster, rate=100, timeout_s=30) as (admin, traffic):
            await admin.change_topic(TOPIC, queues=16)
            waits = WaitLimits(settle_s=REFRESH_S + 1, limit_s=200)
            await Scaling(admin.servers, SystemClock(), waits, print).scale(TOPIC, 4, None)
            assert {each.read_queues for each in (await admin.topic(TOPIC)).shares} == {4}
            await Scaling(admin.servers, SystemClock(), waits, print).move(TOPIC, *NAMES)
            assert {each.broker for each in (await admin.topic(TOPIC)).shares} == {"broker-b"}
        assert traffic.failed == [] and traffic.lost == set() and len(traffic.acked) > 100
