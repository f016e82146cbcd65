"""A program under test as a child process: its output kept, ready when it says so, ended as an operator would."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import ClassVar, Final, Self

START_LIMIT_S: Final = 60
_STOP_LIMIT_S: Final = 30


def listens(host: str, port: int) -> bool:
    """Return whether a server listens there.

    A socket may get the number of the free port for itself, and is connected with itself then.
    """
    try:
        with socket.create_connection((host, port), timeout=5) as peer:
            return bool(peer.getsockname() != peer.getpeername())
    except OSError:
        return False


class Child:
    """Runs `command` while its context is entered, in a scratch folder `home` that goes with it; then SIGTERM."""

    STDIN: ClassVar[int] = subprocess.DEVNULL

    def __init__(self, home: tempfile.TemporaryDirectory[str], command: list[str], **environment: str) -> None:
        self._scratch = home
        self.home = Path(home.name)
        self.output = self.home / "output"
        self._command = command
        self._environment = {**os.environ, **environment}
        self._environment.pop("NAMESRV_ADDR", None)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    def __enter__(self) -> Self:
        self.home.mkdir(exist_ok=True)  # a start that failed has removed it
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                self._command,
                stdin=self.STDIN,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.home,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()
        self._scratch.cleanup()

    def stop(self) -> None:
        """Ask it to end, and kill it only when it does not."""
        process = self._running()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as a power cut would, file caches apart."""
        self._running().kill()
        self._running().wait()

    def said(self) -> str:
        """What it wrote so far."""
        return self.output.read_text(errors="replace")

    def wait_for(self, text: str, limit_s: float = START_LIMIT_S) -> None:
        """Return once `text` stands in the output. Raises: TimeoutError, or ChildProcessError when it ended first."""
        deadline = time.monotonic() + limit_s
        while text not in self.said():
            ended = self._running().poll()
            if ended is not None and text not in self.said():
                raise ChildProcessError(f"ended with {ended} before saying {text!r}:\n{self.said()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"did not say {text!r} within {limit_s} s:\n{self.said()}")
            time.sleep(0.02)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "not started"
        return self.process

    def _wait_ready(self) -> None:
        """Subclasses wait until it serves."""


def scratch(name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for a child; what a dying process still writes there does not matter."""
    return tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True)
