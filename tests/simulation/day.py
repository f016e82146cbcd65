"""`python -m tests.simulation.day`: a healthy day of a cluster with slaves, in some minutes.

Two name servers and two masters with a slave each, one of them with SYNC_FLUSH, run with a simulated clock under
light traffic. Nothing fails. A program scrapes the metrics port of each server as a Prometheus does, each 15 s, into a
file of OpenMetrics. Then a real Prometheus evaluates the rules of examples/monitoring over the whole day
(past_alerts.py). Each minute /readyz of each server is read, each five minutes doctor runs.

The day begins at 08:00 UTC, so midnight and the hour of deleteWhen are in it; fileReservedTime is 12 hours, and log
files are small. Nothing is sent from 22:00 to 02:00. `--hours 2.6 --begin 02:42 --reserved 1` shows the deletion alone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TextIO

from sparrowmq.admin.findings import Verdict
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.client.client import Client
from sparrowmq.metrics.metrics_settings import Exporter
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.store.store_settings import Flush
from tests.conditions.light_traffic import LightTraffic
from tests.simulation.files import ROOT
from tests.simulation.past_alerts import SCRAPE_S, Past, Wanted, labelled, pasts
from tests.simulation.world import BEGIN_MS, Host, Process, SimClock, World, this_process

_PORT: Final = 10911
_NAMESRV_PORT: Final = 9876
_METRICS_PORT: Final = 5557
_START_S: Final = 30.0  # until all brokers know each other
_DAY_MS: Final = 86_400_000
_MINUTE_S: Final = 60.0
_DOCTOR_S: Final = 300.0
_NIGHT_H: Final = (22, 2)  # from, to
_ROLES: Final = {
    ("broker-a", 0): BrokerRole.SYNC_MASTER,
    ("broker-a", 1): BrokerRole.SLAVE,
    ("broker-b", 0): BrokerRole.SYNC_MASTER,
    ("broker-b", 1): BrokerRole.SLAVE,
}


class Day:
    """The cluster, its clients and its Prometheus.

    Args:
        hours: simulated hours.
        pause_s: time between two sends.
        sink: takes the metrics.
        begin_ms: when it begins.
        retention_h: fileReservedTime.
    Attributes:
        problems: everything that could raise an alarm.
    """

    def __init__(
        self,
        seed: int,
        hours: float,
        pause_s: float,
        sink: TextIO,
        begin_ms: int = BEGIN_MS,
        retention_h: int = 12,
    ) -> None:
        self.world = World(seed, begin_ms)
        self._retention_h = retention_h
        self.problems: list[str] = []
        self.counts = Counter[str]()
        self._hours = hours
        self.traffic = LightTraffic(lambda: self._is_over, pause_s, self._is_night)
        self._sink = sink
        self._is_wanted = cache(Wanted().has)
        self._is_over = False
        self._namesrvs = [self.world.add(f"namesrv-{number}", f"10.0.0.{20 + number}") for number in (1, 2)]
        self._brokers = {
            who: self.world.add(f"{who[0]}-{who[1]}", f"10.0.0.{10 + number}") for number, who in enumerate(_ROLES)
        }
        self.world.on_end = self._ended

    def run(self) -> None:
        """Let the day pass."""
        with self.world.entered():
            handler = _Warnings(self.world, self.problems)
            logging.getLogger("sparrowmq").addHandler(handler)
            try:
                self._play()
            finally:
                logging.getLogger("sparrowmq").removeHandler(handler)

    def _play(self) -> None:
        scheduler = self.world.scheduler
        for host in self._namesrvs:
            host.start(partial(self._run_namesrv, host))
        for (name, broker_id), host in self._brokers.items():
            host.start(partial(self._run_broker, name, broker_id, host))
        scheduler.run(_START_S)
        self.counts["warnings at the start"] = len(self.problems)
        self.problems.clear()
        watcher = self._client("prometheus")
        watcher.start(self._watch)
        for number, program in enumerate((self.traffic.run, self._examine)):
            self._client(f"client-{number}").start(partial(self._connected, program))
        end = _START_S + 3600 * self._hours
        while scheduler.now < end:
            scheduler.run(min(scheduler.now + 3600, end))
            print(
                f"{scheduler.now / 3600:.1f} h, {time.process_time():.0f} s CPU, {len(self.problems)} problems",
                file=sys.stderr,
                flush=True,
            )
        self._is_over = True
        scheduler.run(end + 2 * _MINUTE_S)
        self.problems += scheduler.unhandled
        self.problems += self.traffic.problems
        self.counts["sent"] = self.traffic.sent
        for host in self._brokers.values():
            first = min(path for path in host.disk.names if "/commitlog/" in path)
            self.counts["deleted bytes"] += int(first.rpartition("/")[2])

    def _client(self, name: str) -> Host:
        return self.world.add(name, f"10.0.0.{50 + len(self.world.hosts)}")

    def _ended(self, process: Process) -> None:
        if not self._is_over:
            self.problems.append(f"ended: {process}: {process.ended} {process.why}")

    def _is_night(self) -> bool:
        hour = (self.world.begin_ms / 3_600_000 + self.world.scheduler.now / 3600) % 24
        return not _NIGHT_H[1] <= hour < _NIGHT_H[0]

    def _said(self, text: str) -> None:
        self.problems.append(f"{text}, at {self.world.scheduler.now / 3600:.3f} h")

    # Servers ----------------------------------------------------------------------------------------------------------

    @property
    def _namesrv_text(self) -> str:
        return ";".join(f"{host.ip}:{_NAMESRV_PORT}" for host in self._namesrvs)

    async def _run_namesrv(self, host: Host) -> None:
        settings = NamesrvSettings(
            port=_NAMESRV_PORT,
            bind_address=host.ip,
            insecure=True,
            kv_path=Path(ROOT) / "kvConfig.json",
            metrics=Exporter.PROM,
            metrics_port=_METRICS_PORT,
        )
        async with Namesrv(settings, SimClock(this_process(self.world))) as namesrv:
            await namesrv.serve()

    async def _run_broker(self, name: str, broker_id: int, host: Host) -> None:
        settings = BrokerSettings(
            name=name,
            broker_id=broker_id,
            namesrv=tuple(f"{each.ip}:{_NAMESRV_PORT}" for each in self._namesrvs),
            port=_PORT,
            ip=host.ip,
            insecure=True,
            fast_port=0,
            store_path=Path(ROOT) / "store",
            role=_ROLES[name, broker_id],
            flush=Flush.SYNC if (name, broker_id) == ("broker-b", 0) else Flush.ASYNC,
            commit_log_file_bytes=256 << 10,
            consume_queue_file_bytes=20 * 500,
            index_slots=1000,
            index_entries=4000,
            busy_poll=False,
            retention_h=self._retention_h,
            metrics=Exporter.PROM,
            metrics_port=_METRICS_PORT,
        )
        async with Broker(settings, SimClock(this_process(self.world))) as broker:
            await broker.serve()

    # Prometheus -------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        targets = {f"{host.ip}:{_METRICS_PORT}": "rocketmq" for host in self._brokers.values()}
        targets |= {f"{host.ip}:{_METRICS_PORT}": "rocketmq-namesrv" for host in self._namesrvs}
        loop, due, asked = asyncio.get_running_loop(), 0.0, 0.0
        while not self._is_over:
            due = max(due, loop.time()) + SCRAPE_S
            for target, job in targets.items():
                await self._scrape(target, job)
                if loop.time() >= asked + _MINUTE_S:
                    status, text = await _get(target, "/readyz")
                    if (status, text) != (200, "ok\n"):
                        self._said(f"readyz: {target}: {status} {text.strip()}")
                    self.counts["readyz"] += 1
            if loop.time() >= asked + _MINUTE_S:
                asked = loop.time()
            await asyncio.sleep(due - loop.time())

    async def _scrape(self, target: str, job: str) -> None:
        at = self.world.begin_ms / 1000 + self.world.scheduler.now
        status, text = await _get(target, "/metrics")
        page = f"up {int(status == 200)}\n{text if status == 200 else ''}"
        for name, labels, rest in labelled(page, job, target, at):
            if self._is_wanted(name, labels):
                self._sink.write(f"{name}{{{labels}}} {rest}\n")
        self.counts["scrapes"] += 1

    # Clients ----------------------------------------------------------------------------------------------------------

    async def _connected(self, program: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        process = this_process(self.world)
        async with Client(self._namesrv_text, clock=SimClock(process)) as mq:
            await program(mq)

    async def _examine(self, mq: Client) -> None:
        while not self._is_over:
            await asyncio.sleep(_DOCTOR_S)
            for each in await mq.admin.examine(None, None, ()):
                if each.verdict is not Verdict.OK:
                    self._said(f"doctor: {each.verdict.value}: {each.what}")
            self.counts["doctor"] += 1


class _Warnings(logging.Handler):
    """Notes what the servers and clients log as a warning or an error."""

    def __init__(self, world: World, problems: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        loop, hours = self._world.scheduler.current, self._world.scheduler.now / 3600
        who = loop.owner if loop is not None else "-"
        self._problems.append(f"log: {who}: {record.levelname} {record.getMessage()}, at {hours:.3f} h")


async def _get(target: str, path: str) -> tuple[int, str]:
    """Return the status and text of a page; 0 if there is no answer."""
    host, _, port = target.partition(":")
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
    except OSError as error:
        return 0, str(error)
    head, _, text = answer.partition("\r\n\r\n")
    return int(head.split()[1]), text


def main() -> int:
    """Show the day and its alerts; the exit status is 1 if there is anything that could raise an alarm."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.day", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two sends")
    parser.add_argument("--begin", default="08:00", help="the time of day, HH:MM")
    parser.add_argument("--reserved", type=int, default=12, help="hours of fileReservedTime")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation.day", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    hour, _, minute = arguments.begin.partition(":")
    begin_ms = BEGIN_MS - BEGIN_MS % _DAY_MS + (60 * int(hour) + int(minute)) * 60_000
    with tempfile.TemporaryDirectory(prefix="day-") as folder:
        file = Path(folder) / "metrics"
        with file.open("w") as sink:
            rest = (sink, begin_ms, arguments.reserved)
            day = Day(arguments.seed, arguments.hours, arguments.pause, *rest)
            day.run()
            sink.write("# EOF\n")
        found: list[Past] = pasts(file, begin_ms / 1000 + _START_S, arguments.hours)
    print("\n".join([*day.problems, *map(str, found)]))
    print(f"{dict(day.counts)}, {len(found)} alerts, {len(day.problems)} problems")
    return 1 if found or day.problems else 0


if __name__ == "__main__":
    sys.exit(main())
