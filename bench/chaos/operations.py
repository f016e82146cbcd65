"""Does a send fail, or a message get lost, while operators restart all brokers, take queues away, and move topics?

A master with a slave, and a group of three members that elect theirs by an etcd (tests/crash/operations.py), under
constant sends and a consumer; without an etcd, two masters with a slave each. A round is a rolling
restart, a topic's way from 16 queues to 4, and its move to one broker. Waits are those of the commands, because
producers keep a route for 30 s. SPARROWMQ_RATE is the sends per second. With SPARROWMQ_ROUTE_S producers keep routes
for so many seconds, and the commands wait for a second more, so an hour has many more rounds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench.chaos.outcome import Outcome
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.rolling_restart import RollingRestart, StepTimeouts
from sparrowmq.admin.scaling import Scaling, WaitLimits
from sparrowmq.client.cluster import routes
from sparrowmq.loop.clock import SystemClock
from tests.crash.operations import NAMES, TOPIC, OperatedCluster, Traffic, under_load
from tests.interop.etcd import PROGRAM


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Play so many rounds on one cluster."""
    outcome = Outcome("operations", seed)
    rate = float(os.environ.get("SPARROWMQ_RATE", "2000"))
    routes.REFRESH_S = route_s = float(os.environ.get("SPARROWMQ_ROUTE_S", routes.REFRESH_S))  # type: ignore[misc]
    elected = PROGRAM is not None
    with ExitStack() as stack:
        traffic = asyncio.run(_play(OperatedCluster(folder, stack, elected=elected), rounds, rate, route_s, outcome))
    outcome.acked = len(traffic.acked)
    outcome.note(f"failed: {each}" for each in traffic.failed)
    outcome.note(f"lost: message {number}" for number in sorted(traffic.lost))
    outcome.more = {
        "failed": len(traffic.failed),
        **{f"p{share}_ms": traffic.quantile_ms(share / 100) for share in (50, 99)},
        "elected": elected,
        "max_ms": traffic.quantile_ms(1.0),
        "route_s": route_s,
        "rate": round(len(traffic.took_s) / traffic.sending_s, 1),
    }
    return outcome


async def _play(cluster: OperatedCluster, rounds: int, rate: float, route_s: float, outcome: Outcome) -> Traffic:
    async with under_load(cluster, rate) as (admin, traffic):
        for number in range(rounds):
            await _restart(admin, StepTimeouts(settle_s=route_s + 1))
            await _scale_and_move(admin, WaitLimits(settle_s=route_s + 1), NAMES if number % 2 else NAMES[::-1])
            outcome.rounds += 1
            for line in traffic.failed[-3:]:
                print(line, file=sys.stderr)
            print(
                f"round {number + 1}: {len(traffic.acked):,} sent, {len(traffic.failed)} failed, "
                f"p99 {traffic.quantile_ms(0.99)} ms",
                file=sys.stderr,
                flush=True,
            )
    return traffic


async def _restart(admin: Admin, timeouts: StepTimeouts) -> None:
    rolling = RollingRestart(admin.servers, SystemClock(), None, timeouts, _quiet)
    await rolling.run(await rolling.plan(int(time.time() * 1000)))


async def _scale_and_move(admin: Admin, waits: WaitLimits, way: tuple[str, ...]) -> None:
    await admin.create_topic(TOPIC, queues=16, exist_ok=True)
    await Scaling(admin.servers, SystemClock(), waits, _quiet).scale(TOPIC, 4, None)
    source, target = way
    await Scaling(admin.servers, SystemClock(), waits, _quiet).move(TOPIC, source, target)
    await admin.create_topic(TOPIC, queues=4, exist_ok=True)


def _quiet(line: str) -> None:
    """Show nothing."""
