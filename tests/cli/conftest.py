"""Servers as real processes."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest


class Process:
    """`python -m sparrowmq ARGS`, ended with the test; `line` is what it said when it was ready.

    `program` is what python runs instead of `-m sparrowmq`.
    `files` is how many files it may have open, as `ulimit -n` sets it: for good.
    """

    def __init__(self, *args, env=None, files=None, program=("-m", "sparrowmq")):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "NAMESRV"))}
        limited = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "-"] if files else []
        self.process = subprocess.Popen(
            [*limited, sys.executable, *program, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean | (env or {}),
        )
        self.line = ""

    def ready(self):
        assert self.process.stdout and self.process.stderr
        self.line = self.process.stdout.readline()
        assert "boot success" in self.line, self.process.stderr.read()
        return self

    @property
    def address(self):
        return re.findall(r"127\.0\.0\.1:\d+", self.line)[0]

    @property
    def port(self):
        return int(self.address.rpartition(":")[2])

    def stop(self, number=signal.SIGTERM):
        """Returns the exit status and what it logged."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        _, log = self.process.communicate(timeout=90)
        return self.process.returncode, log


@pytest.fixture
def start():
    """`start("broker", ...)`: a process; it is killed if it is still there at the end."""
    started = []

    def start(*args, **options):
        started.append(Process(*args, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.fixture
def namesrv(start, tmp_path):
    return start("namesrv", "--set", "listenPort=0", "--set", f"kvConfigPath={tmp_path}/kvConfig.json").ready()


@pytest.fixture
def broker_args(tmp_path):
    """A broker with small files on a free port."""
    settings = {
        "listenPort": 0,
        "brokerName": "broker-a",
        "storePathRootDir": tmp_path / "store",
        "mappedFileSizeCommitLog": "1m",
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
    }
    return ["broker", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


@pytest.fixture
def until():
    def until(condition, limit_s=10):
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, "it never came to pass"
            time.sleep(0.01)

    return until
