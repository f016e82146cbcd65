"""A machine for the commands of a page: a folder, free ports, some extras, and the servers that the page starts."""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.environments import python_with, variables
from tests.interop.apache import free_ports

SMALL = "mappedFileSizeCommitLog=1m\nmaxHashSlotNum=5000\nmaxIndexNum=20000\nfastListenPort=off\n"
LIMIT_S = 30.0
SHELL_LIMIT_S = 120.0


class Place:
    """Runs commands of a page in a folder, with these extras only. Servers run until the stack is closed.

    Attributes:
        spare_port: a port that nothing uses yet.
        replaced: texts of a page, and what is written instead of each.
    """

    def __init__(self, folder: Path, stack: ExitStack, *extras: str) -> None:
        names, broker, _, self.spare_port = free_ports(4)  # the broker's replication port is its next one
        self.folder = folder
        self.namesrv = f"127.0.0.1:{names}"
        self.broker_port = broker
        self.replaced = {"9876": str(names), "10911": str(broker), "/data/rocketmq": str(folder)}
        self._stack = stack
        self._python = python_with(*extras)
        self._environment = variables(
            self._python,
            RMQ_NAMESRV_listenPort=str(names),
            RMQ_NAMESRV_kvConfigPath=str(folder / "kv.json"),
        )

    def text(self, piece: str) -> str:
        for there, here in self.replaced.items():
            piece = piece.replace(there, here)
        return piece

    def start(self, commands: str, until: str = "boot success") -> str:
        """Start a server by each line; return the last one's output once all have printed that they serve."""
        said = ""
        for number, line in enumerate(self.text(commands).splitlines()):
            words = shlex.split(line)
            log = self.folder / f"{words[0]}-{number}-{time.monotonic_ns()}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [self._python.with_name(words[0]), *words[1:]],
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    cwd=self.folder,
                )
            # A command that waits for the end of a process by its number needs somebody to collect the process.
            collecting = threading.Thread(target=process.wait)
            collecting.start()
            self._stack.callback(collecting.join, LIMIT_S)
            self._stack.callback(process.terminate)
            with (self.folder / "exported").open("a") as exported:
                exported.write(f"export BROKER_PID={process.pid}\n")
            deadline = time.monotonic() + LIMIT_S
            while until not in (said := log.read_text()):
                assert process.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.02)
        return said

    def shell(self, commands: str, typed: str = "") -> str:
        """Return the output of commands. They run as in one terminal: variables stay exported."""
        before = self.folder / "exported"
        before.touch()
        done = subprocess.run(
            ["bash", "-euc", f". {before}\n{self.text(commands)}\nexport -p > {before}"],
            env=self._environment,
            input=typed,
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            timeout=SHELL_LIMIT_S,
            start_new_session=True,  # without a terminal, questions are answered by `typed`
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout
