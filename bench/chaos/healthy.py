"""Does a healthy cluster with slaves raise an alarm, when nothing is wrong with it?

Two name servers, two masters with a slave each, a console and a Prometheus with the alert rules of examples/monitoring
(tests/conditions/healthy.py), as real processes under light traffic. A round is a minute: `--rounds 1440` is a day.
Each minute /readyz of each process is read, and each five minutes doctor runs. At the end come the alerts of the whole
time, pending ones too, and the warnings in the logs. Each of them is a broken promise.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from sparrowmq import connect
from tests.conditions.healthy import HealthyCluster
from tests.conditions.light_traffic import LightTraffic
from tests.crash.not_here import NotHere
from tests.examples.live_prometheus import PROGRAM

_MINUTE_S: Final = 60.0
_DOCTOR_EACH: Final = 5  # minutes
_SENDS_PER_S: Final = 20


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Watch one cluster for so many minutes."""
    if PROGRAM is None:
        raise NotHere("Debian: apt install prometheus")
    outcome = Outcome("healthy", seed)
    with ExitStack() as stack:
        asyncio.run(watch(HealthyCluster(folder, stack), rounds, outcome))
    return outcome


async def watch(cluster: HealthyCluster, minutes: int, outcome: Outcome) -> None:
    """Watch a cluster under light traffic for so many minutes."""
    before = {name: len(each.noise) for name, each in cluster.servers.items()}
    began, doctors, ended = time.monotonic(), 0, asyncio.Event()
    traffic = LightTraffic(ended.is_set, 1 / _SENDS_PER_S)
    sending = asyncio.create_task(_use(cluster, traffic))
    for minute in range(1, minutes + 1):
        await asyncio.sleep(max(began + minute * _MINUTE_S - time.monotonic(), 0))
        said = await asyncio.to_thread(cluster.conditions)
        if minute % _DOCTOR_EACH == 0 or minute == minutes:
            said += await asyncio.to_thread(cluster.findings)
            doctors += 1
        outcome.note(f"{each}, at minute {minute}" for each in said)
        outcome.rounds += 1
        for line in said:
            print(f"minute {minute}: {line}", file=sys.stderr, flush=True)
    hours = (time.monotonic() - began) / 3600
    alerts = cluster.alerts(hours)
    outcome.note(f"{alert}, at {times} evaluations" for alert, times in alerts.items())
    ended.set()
    await sending
    outcome.note(traffic.problems)
    for name, server in cluster.servers.items():
        outcome.note(f"log: {name}: {line}" for line in server.noise[before[name] :])
    outcome.acked = traffic.sent
    outcome.more = {"hours": round(hours, 2), "doctors": doctors, "alerts": len(alerts)}


async def _use(cluster: HealthyCluster, traffic: LightTraffic) -> None:
    async with connect(cluster.namesrv) as mq:
        await traffic.run(mq)
