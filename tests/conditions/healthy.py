"""A healthy cluster as the pages for operators set it up, and everything that could raise an alarm.

    namesrv-1, namesrv-2
    broker-a, broker-a-s    examples/clusters/2m-2s-sync as it is
    broker-b, broker-b-s    the same, the master with SYNC_FLUSH
    console                 with a history
    Prometheus              with examples/monitoring

Nothing fails in it. Each alert, condition, finding of doctor and warning in a log is a false alarm.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.examples.live_prometheus import LivePrometheus
from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch
from tests.interop.servers import REPOSITORY

EXAMPLES: Final = REPOSITORY / "examples"
CLUSTER: Final = EXAMPLES / "clusters" / "2m-2s-sync"
_NOISE: Final = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b")
_LIMIT_S: Final = 60.0


class Server(Child):
    """A process of the cluster.

    Attributes:
        log: its log file.
        metrics: the port of its metrics.
    """

    def __init__(self, name: str, folder: Path, ready: str, words: list[str], metrics: int) -> None:
        self.name = name
        self.metrics = metrics
        self.log = folder / f"{name}.log"
        self._ready = ready
        logged = [] if words[0] == "console" else ["--log-file", str(self.log)]
        super().__init__(scratch(name), [sys.executable, "-m", "sparrowmq", *words, *logged])

    @property
    def readiness(self) -> str:
        """What /readyz says, if it says more than "ok"."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/readyz", timeout=10) as answer:
                said: str = answer.read().decode().removeprefix("ok").strip()
        except urllib.error.HTTPError as error:
            return f"{error.code}: {error.read().decode().strip()}"
        except OSError as error:
            return f"no answer: {error}"
        return said

    @property
    def noise(self) -> list[str]:
        """The warnings and errors that it logged."""
        lines = self.said() + (self.log.read_text() if self.log.is_file() else "")
        return [line for line in lines.splitlines() if _NOISE.search(line)]

    def _wait_ready(self) -> None:
        self.wait_for(self._ready)


class HealthyCluster:
    """The processes, until `stack` ends them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.servers: dict[str, Server] = {}
        self._folder = folder
        self._stack = stack
        names = free_ports(2)
        self.namesrv = ";".join(f"127.0.0.1:{port}" for port in names)
        for number, port in enumerate(names, 1):
            sets = {"listenPort": port, "kvConfigPath": folder / f"kv-{number}.json"}
            self._start(f"namesrv-{number}", ["namesrv"], sets)
        for file in sorted(CLUSTER.glob("*.properties"), key=lambda path: path.stem):
            port, shipping = free_ports(2)
            own = {"flushDiskType": "SYNC_FLUSH"} if file.stem == "broker-b" else {}
            place = {"storePathRootDir": folder / file.stem, "brokerIP1": "127.0.0.1", "listenPort": port}
            sets = {**place, "haListenPort": shipping, "fastListenPort": "off", **own}
            self._start(file.stem, ["broker", "-c", str(file), "-n", self.namesrv], sets)
        console, metrics = free_ports(2)
        words = ["console", "-n", self.namesrv, "--port", str(console), "--history", str(folder / "history")]
        words += ["--metrics-port", str(metrics)]
        self._enter(Server("console", folder, "console", words, metrics))
        targets = {
            "rocketmq": [each.metrics for name, each in self.servers.items() if name.startswith("broker")],
            "rocketmq-namesrv": [each.metrics for name, each in self.servers.items() if name.startswith("names")],
        }
        self.prometheus = stack.enter_context(LivePrometheus(EXAMPLES / "monitoring", targets))

    def _start(self, name: str, words: list[str], sets: dict[str, object]) -> None:
        [metrics] = free_ports(1)
        everything = sets | {"metricsExporterType": "PROM", "metricsPromExporterPort": metrics}
        words = words + [word for key, value in everything.items() for word in ("--set", f"{key}={value}")]
        self._enter(Server(name, self._folder, "boot success", words, metrics))

    def _enter(self, server: Server) -> None:
        self.servers[server.name] = self._stack.enter_context(server)

    def conditions(self) -> list[str]:
        """Return what /readyz of any process has to say besides "ok"."""
        said = {name: each.readiness for name, each in self.servers.items()}
        return [f"unready: {name}: {text}" for name, text in said.items() if text]

    def findings(self) -> list[str]:
        """Return what doctor finds besides what is well."""
        command = [sys.executable, "-m", "sparrowmq", "doctor", "-n", self.namesrv, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        if done.returncode not in (0, 1):
            return [f"doctor: {done.returncode}: {done.stderr}"]
        rows = json.loads(done.stdout)
        return [f"doctor: {row['verdict']}: {row['what']}" for row in rows if row["verdict"] != "ok"]

    def alerts(self, hours: float) -> Counter[str]:
        """Return how often each alert was pending or firing, by its labels, at an evaluation of the rules."""
        found = Counter[str]()
        for each in self.prometheus.ask(f"count_over_time(ALERTS[{int(hours * 3600) + 60}s])"):
            labels = [text for name, text in sorted(each["metric"].items()) if name != "severity"]
            found[f"alert: {' '.join(labels)}"] = int(each["value"][1])
        return found
