"""A real Prometheus reads a master, a slave and a name server, three processes, by the files of examples/monitoring.

All panels show something, sums are right, and no alert fires. Then the disk of the master is filled, and it is killed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sparrowmq import connect
from sparrowmq.client.client import Client
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk
from tests.examples.live_prometheus import LivePrometheus, needs_prometheus
from tests.interop.apache import free_ports
from tests.interop.servers import OurBroker, OurNamesrv

MONITORING: Final = Path(__file__).parents[2] / "examples" / "monitoring"
SMALL: Final = {"mappedFileSizeCommitLog": 1 << 20, "defaultTopicQueueNums": 1}
# Panels that are empty in a healthy cluster without TLS.
EMPTY: Final = {
    "Conditions: what brokers do less than expected",
    "Alerts that fire",
    "Time until certificates end",
}
SENT: Final = 20
# Shorter waits than those of the files, for the test that runs always.
QUICK: Final = {r"(_interval: )10s": r"\g<1>1s", r"for: [23]0s": "for: 1s"}
LIMIT_S: Final = 240

pytestmark = [needs_prometheus, pytest.mark.timeout(900)]


class Watched:
    """A master, a slave and a name server, and the Prometheus that reads them."""

    def __init__(self, folder: Path, stack: ExitStack, disk: SmallDisk, replaced: dict[str, str]) -> None:
        ports = free_ports(4)
        on = [{"metricsExporterType": "PROM", "metricsPromExporterPort": port} for port in ports[:3]]
        namesrv = stack.enter_context(OurNamesrv(on[0]))
        self.namesrv = namesrv.address
        self.disk = disk
        shared = SMALL | {"haListenPort": ports[3], "flushDiskType": "SYNC_FLUSH"}
        self.master = stack.enter_context(
            OurBroker(self.namesrv, disk.folder / "store", shared | on[1] | {"brokerRole": "SYNC_MASTER"})
        )
        slave = SMALL | on[2] | {"brokerRole": "SLAVE", "brokerId": 1}
        self.slave = stack.enter_context(OurBroker(self.namesrv, folder / "slave", slave))
        targets = {"rocketmq": ports[1:3], "rocketmq-namesrv": ports[:1]}
        self.prometheus = stack.enter_context(LivePrometheus(MONITORING, targets, replaced))

    async def until(self, condition: Callable[[], object]) -> float:
        """Return once a condition holds, and after how many seconds."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < LIMIT_S, self.state()
            await asyncio.sleep(0.2)
        return time.monotonic() - began

    def state(self) -> Any:
        return [self.prometheus.alerts(state) for state in ("firing", "pending")], self.prometheus.ask("up")


@pytest.fixture(params=[pytest.param(QUICK, id="quick"), pytest.param({}, id="as it is", marks=pytest.mark.nightly)])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    with ExitStack() as stack:
        with skipped_without("a loop device"):
            disk = SmallDisk(tmp_path, 96 << 20)
        stack.enter_context(disk)
        yield Watched(tmp_path, stack, disk, request.param)


@pytest.mark.slow
async def test_a_healthy_cluster_has_no_alert_and_what_happens_to_it_has_one(watched: Watched) -> None:
    prometheus = watched.prometheus
    async with connect(watched.namesrv) as mq, used(mq):
        await watched.until(lambda: len(prometheus.ask("up == 1")) == 3)
        await watched.until(lambda: not alerts(prometheus))
        await watched.until(lambda: not [title for title in panels() if empty(prometheus, title)])
        await sums_are_right(watched)
        assert not alerts(prometheus)

        watched.disk.fill()
        full = ("BrokerCondition", "disk_full", "master")
        sending = asyncio.create_task(send_on(mq))
        try:
            filled_s = await watched.until(lambda: full in prometheus.alerts("firing"))
        finally:
            sending.cancel()
    watched.disk.free()
    await watched.until(lambda: full not in prometheus.alerts("firing"))
    watched.master.kill()
    killed_s = await watched.until(lambda: ("BrokerDown",) in prometheus.alerts("firing"))
    assert [each["metric"]["instance"] for each in prometheus.ask('ALERTS{alertname="BrokerDown"}')] == [
        each["metric"]["instance"] for each in prometheus.ask("up == 0")
    ]
    print(f"a full disk fires after {filled_s:.0f} s, a killed master after {killed_s:.0f} s")


def alerts(prometheus: LivePrometheus) -> set[tuple[str, ...]]:
    """All alerts, except that this machine has much to do."""
    found = prometheus.alerts("firing") | prometheus.alerts("pending")
    return {alert for alert in found if "process_paused" not in alert}


@asynccontextmanager
async def used(mq: Client) -> AsyncIterator[None]:
    """Messages, and a group that is online, rejected one and has one left."""
    for number in range(SENT):
        await mq.send("orders", b"%d" % number)
    async with mq.subscribe("orders", group="billing", start="earliest") as orders:
        for number in range(SENT - 1):
            message = await anext(aiter(orders))
            async with message.process():
                if number == 0:
                    message.reject("no such order")
        yield


async def send_on(mq: Client) -> None:
    """Send until cancelled; what cannot be stored is lost."""
    while True:
        for _ in range(10):
            try:
                await mq.send("orders", bytes(100_000))
            except Exception:
                await asyncio.sleep(0.1)


def panels() -> dict[str, list[str]]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return {panel["title"]: [each["expr"] for each in panel["targets"]] for panel in dashboard["panels"]}


def empty(prometheus: LivePrometheus, title: str) -> list[str]:
    return [expression for expression in panels()[title] if not prometheus.ask(expression) and title not in EMPTY]


async def sums_are_right(watched: Watched) -> None:
    """Sums over all brokers, although the slave has the same messages; and each expression of a rule is one."""
    prometheus = watched.prometheus
    await watched.until(lambda: prometheus.number('sum(rocketmq_consumer_lag_messages{topic="orders"})') == 1)
    assert prometheus.number('sum(rocketmq_messages_in_total{topic="orders"})') == SENT
    assert prometheus.number("sum(rocketmq_send_to_dlq_messages_total)") == 1
    assert prometheus.number("count(sparrowmq_ready == 1)") == 3  # both brokers and the name server
    for rule in yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"][0]["rules"]:
        prometheus.ask(rule["expr"])
