"""Brokers and name servers as processes of their own, which can be killed, restarted and moved."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.apache import free_ports
from tests.interop.servers import OURS, SETTINGS, Target

REPOSITORY: Final = Path(__file__).parents[3]
READY: Final = b"boot success"
READY_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 30.0
POLL_S: Final = 0.02
# Questions come soon and as often as it takes: no message is given up while its producer is there.
TRANSACTIONS: Final = {
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 1000,
}


class Node:
    """A name server or a broker that outlives its processes.

    Args:
        role: "namesrv" or "broker", as the command line calls it.
        folder: for its configuration, its store and what it says.
        settings: of its configuration file.
    """

    def __init__(self, name: str, role: str, folder: Path, settings: Mapping[str, object]) -> None:
        self.name = name
        self.port = free_port()
        self.log = folder / f"{name}.log"
        self._role = role
        self._settings = settings
        self._conf = folder / f"{name}.conf"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process that serves now, if there is one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Return when it serves. Raises: RuntimeError, with what it said last."""
        settings = {**self._settings, "listenPort": self.port}
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "sparrowmq", self._role, "-c", str(self._conf)]
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=REPOSITORY
            )
        deadline = time.monotonic() + READY_LIMIT_S
        while READY not in self.log.read_bytes()[begin:]:
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()[-2000:]}")
            await asyncio.sleep(POLL_S)

    async def end(self, how: signal.Signals) -> None:
        """Send it the signal, and return when it is gone."""
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(how)
            await asyncio.wait_for(process.wait(), STOP_LIMIT_S)

    def move(self) -> None:
        """Let it start at another address the next time."""
        self.port = free_port()


class Nodes:
    """A cluster: name servers, and brokers that know them all."""

    def __init__(self, folder: Path, brokers: tuple[str, ...], name_servers: int) -> None:
        self.name_servers = [
            Node(f"namesrv-{number}", "namesrv", folder, {"kvConfigPath": folder / f"kv-{number}.json"})
            for number in range(name_servers)
        ]
        self.brokers = {name: Node(name, "broker", folder, self._settings(name, folder)) for name in brokers}

    @property
    def namesrv(self) -> str:
        """The addresses of all name servers, as clients want them."""
        return ";".join(node.address for node in self.name_servers)

    async def start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.name_servers))
        await asyncio.gather(*(node.start() for node in self.brokers.values()))

    async def stop(self, how: signal.Signals) -> None:
        """End whatever runs still."""
        nodes = [*self.brokers.values(), *self.name_servers]
        await asyncio.gather(*(node.end(how) for node in nodes))

    def create_group(self, broker: str, group: str) -> None:
        self._ask(broker).create_group(group, retries=16)

    def _ask(self, broker: str) -> Target:
        return Target(OURS, self.namesrv, self.brokers[broker].address)

    def _settings(self, name: str, folder: Path) -> dict[str, object]:
        own = {"brokerName": name, "namesrvAddr": self.namesrv, "storePathRootDir": folder / name}
        return {
            **SETTINGS,
            **own,
            "registerNameServerPeriod": 10_000,
            "traceTopicEnable": "false",
            **TRANSACTIONS,
        }


def free_port() -> int:
    return free_ports(1)[0]
