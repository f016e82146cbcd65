"""A standalone cluster of Spark on this machine: a master and two workers, as the package pyspark has their classes.

Workers start executors with a Python that has none of our packages, and in folders of their own, as on other machines.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from sparrowmq.spark.commands.spark_commands import spark_home
from sparrowmq.spark.java import spark_environment
from tests.interop.apache import free_ports

START_LIMIT_S: Final = 200
RUN_LIMIT_S: Final = 300
MEMORY: Final = "700m"
# Of the interpreter below every environment: nobody has installed anything there.
BARE_PYTHON: Final = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


@dataclass
class Standalone:
    """The cluster.

    Attributes:
        master: its address. workers: their processes.
    """

    master: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]

    def command(self, *program: str) -> list[str]:
        """What submits a program, or `pipeline NAME`, with its arguments."""
        settings = {
            "spark.executor.memory": MEMORY,
            "spark.driver.memory": MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }
        confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        submit = [sys.executable, "-m", "sparrowmq", "spark", "submit", "--python", BARE_PYTHON]
        return [*submit, "--master", self.master, *confs, *program]

    def run(self, *program: str) -> str:
        """What a program says on stdout, when it has ended well."""
        done = subprocess.run(
            self.command(*program), capture_output=True, text=True, timeout=RUN_LIMIT_S, cwd=self.folder
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-8000:]}\n{self.logs()}"
        return done.stdout

    def executors(self) -> list[psutil.Process]:
        """The processes of executors that are there now."""
        found = []
        for worker in self.workers:
            for child in psutil.Process(worker.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any(_EXECUTOR in word for word in child.cmdline()):
                        found.append(child)
        return found

    def logs(self) -> str:
        """The ends of what executors wrote last."""
        files = sorted(self.folder.glob("work*/*/*/stderr"), key=lambda path: path.stat().st_mtime)
        return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in files[-2:])


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """Start it; all of it is gone afterwards."""
    port, page = free_ports(2)
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        where = ["--host", "127.0.0.1"]
        _start(stack, folder, "master.Master", [*where, "--port", str(port), "--webui-port", str(page)])
        _wait_for(f"http://127.0.0.1:{page}/json/", lambda page: b'"status"' in page)
        given = [*where, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        started = [
            _start(stack, folder, "worker.Worker", [*given, "--work-dir", str(folder / f"work{number}"), master])
            for number in range(workers)
        ]
        _wait_for(f"http://127.0.0.1:{page}/json/", lambda page: page.count(b'"ALIVE"') >= workers + 1)
        yield Standalone(master, folder, started)


def _start(stack: ExitStack, folder: Path, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, **spark_environment(), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": "/usr/bin:/bin", "PYTHONPATH": "", "SPARK_NO_DAEMONIZE": "1",
    }  # fmt: skip
    program = [str(spark_home({}) / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    log = stack.enter_context((folder / f"{name}.log").open("ab"))
    started = subprocess.Popen([*program, *arguments], env=environment, stdout=log, stderr=log, start_new_session=True)
    stack.callback(_end, started)
    return started


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started: executors have sessions of their own."""
    children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(url: str, is_right: object) -> None:
    assert callable(is_right)
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
            if is_right(page.read()):
                return
        assert time.monotonic() < deadline, f"no answer from {url}"
        time.sleep(0.1)
