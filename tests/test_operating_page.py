"""docs/operating.md: every command that stands in a box, in its order, at a broker that is started as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparrowmq.broker.config import BrokerSettings
from sparrowmq.config import build, load
from tests.interop.apache import free_ports

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operating.md").read_text()
PIECES = re.findall(r"```(sh|start|properties)\n(.*?)```", PAGE, re.DOTALL)
SMALL = "mappedFileSizeCommitLog=1m\nmaxHashSlotNum=5000\nmaxIndexNum=20000\nfastListenPort=off\n"
LIMIT_S = 30.0


class Place:
    """A machine of its own: a folder, ports, and the servers that were started there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        names, broker = free_ports(2)
        self._ours = {"9876": str(names), "10911": str(broker), "/data/rocketmq": str(folder)}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        others = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        self._environment = others | {
            "PATH": path,
            "RMQ_NAMESRV_listenPort": str(names),
            "RMQ_NAMESRV_kvConfigPath": str(folder / "kv.json"),
        }

    def text(self, piece: str) -> str:
        for there, here in self._ours.items():
            piece = piece.replace(there, here)
        return piece

    def start(self, commands: str) -> None:
        """Each line is a server; returns when all serve."""
        for number, line in enumerate(self.text(commands).splitlines()):
            words = line.split()
            log = self.folder / f"{words[0]}-{number}-{time.monotonic_ns()}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    words, stdout=output, stderr=output, env=self._environment, cwd=self.folder
                )
            # Whoever waits for the end of a process by its number waits for somebody to collect it.
            collecting = threading.Thread(target=process.wait)
            collecting.start()
            self._stack.callback(collecting.join, LIMIT_S)
            self._stack.callback(process.terminate)
            self._environment["BROKER_PID"] = str(process.pid)
            deadline = time.monotonic() + LIMIT_S
            while b"boot success" not in log.read_bytes():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)

    def shell(self, commands: str) -> str:
        """As in one terminal: what is exported stays so."""
        before = self.folder / "exported"
        before.touch()
        done = subprocess.run(
            ["bash", "-euc", f". {before}\n{self.text(commands)}\nexport -p > {before}"],
            env=self._environment,
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.mark.timeout(180)
def test_every_command_works_in_its_order(tmp_path):
    with ExitStack() as stack:
        place = Place(tmp_path, stack)
        said = ""
        for kind, piece in PIECES:
            if kind == "properties":
                (tmp_path / "broker.conf").write_text(place.text(piece) + SMALL)
            elif kind == "start":
                place.start(piece)
            else:
                said = place.shell(piece)
    assert "hello" in said, "what was sent before the store was lost is there again"
    assert load(tmp_path / "broker.conf")["fileReservedTime"] == "48", "what `set` changed is kept"


def test_every_setting_that_is_named_is_one():
    keys = {key for each in re.findall(r"`([a-z]+[A-Z]\w+)(?:=[^`]*)?`", PAGE) for key in [each]}
    known = BrokerSettings().as_properties().keys() | {"rocketmqHome"}
    optional = {"brokerIP2", "bindAddress", "fastListenPort", "haListenPort"}
    assert sorted(keys - known - optional) == []
    [conf] = [piece for kind, piece in PIECES if kind == "properties"]
    given = dict(line.split("=", 1) for line in conf.splitlines())
    _, report = build(BrokerSettings, given, "operating.md")
    assert not report.unknown and not report.without_effect


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
