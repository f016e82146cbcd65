"""A lake as people start it: `sparrowmq lake run` in a process of its own, with its Java and its workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.spark.pipelines.killing import START_LIMIT_S, environment

T = TypeVar("T")


class LakeProcess:
    """A running lake.

    Args:
        path: its file of settings, with an address of the status page.
        folder: gets what it writes to the terminal, and Spark's own files.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        command = [sys.executable, "-m", "sparrowmq", "lake", "run", str(path)]
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment(folder), start_new_session=True
            )

    def ask(self, page: str) -> bytes:
        """A page of the lake, as "status"."""
        [address] = self.until(lambda: re.findall(r"status page at (http://\S+)/\n", self.said())[-1:])
        with urllib.request.urlopen(f"{address}/{page}", timeout=10) as answer:
            return bytes(answer.read())

    def tables(self) -> list[dict[str, Any]]:
        """The rows of the status page."""
        tables: list[dict[str, Any]] = json.loads(self.ask("status"))["tables"]
        return tables

    def said(self) -> str:
        return self.log.read_text()

    def until(self, look: Callable[[], T], limit_s: float = START_LIMIT_S) -> T:
        """Wait until `look` finds something. Raises: AssertionError, the lake has ended, or it takes too long."""
        deadline = time.monotonic() + limit_s
        while not (found := look()):
            assert self.process.poll() is None, self.said()[-5000:]
            assert time.monotonic() < deadline, self.said()[-5000:]
            time.sleep(0.1)
        return found

    def family(self) -> list[psutil.Process]:
        """The process, its Java and its workers."""
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def stop(self) -> None:
        """End it as an operator does. Raises: AssertionError, it did not end well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.said()[-3000:]

    def kill(self) -> None:
        """Kill it with all that it started; no harm if it has ended."""
        if self.process.poll() is None:
            for each in self.family():
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
            self.process.wait(30)
