"""The restart of a process on request: the same process runs the same command line again."""

import asyncio
import os
import subprocess
import sys

import pytest

from sparrowmq.core.process import Restart
from sparrowmq.errors import ConfigError

PROGRAM = """
import asyncio, os, sys
from sparrowmq.core.process import RESTART

print(os.getpid(), sys.argv[2:], os.environ.pop("NOTIFY_SOCKET"), flush=True)
if os.path.exists(sys.argv[1]):
    sys.exit(7)
open(sys.argv[1], "w").close()

async def main():
    stopped = asyncio.Event()
    RESTART.stop = stopped.set
    RESTART.request()
    await stopped.wait()

asyncio.run(main())
assert RESTART.is_requested
RESTART.begin()
"""


def test_the_same_process_begins_again_with_the_same_arguments(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "begun"), "one", "two words"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "NOTIFY_SOCKET": "@here"},
    )
    assert done.returncode == 7, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second and first.endswith("['one', 'two words'] @here")


async def test_a_server_inside_another_program_is_not_restarted():
    with pytest.raises(ConfigError, match="inside another program"):
        Restart().request()


async def test_nothing_stops_if_the_next_start_would_fail():
    restart, stops = Restart(), list[int]()
    restart.stop = lambda: stops.append(1)

    def check() -> None:
        raise ConfigError("listenPort=x")

    restart.check = check
    with pytest.raises(ConfigError, match="listenPort=x"):
        restart.request()
    restart.check = lambda: None
    restart.request()
    restart.request()
    await asyncio.sleep(0.3)
    assert stops == [1]
