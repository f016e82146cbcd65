"""Kills drivers of pipelines while they are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

START_LIMIT_S = 200  # of Spark, on a busy machine


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a driver that a test kills, so that its temporary files are in a folder of the test."""
    java = f"-Djava.io.tmpdir={folder}"
    return {**os.environ, "JAVA_TOOL_OPTIONS": java, "SPARK_LOCAL_DIRS": str(folder)}


def kill_at_work(command: Sequence[str], state: Path, log: Path, after_s: float) -> None:
    """Start a driver, and kill it some time after it has planned a batch, but before it is done.

    Args:
        state: of the pipeline; Spark's checkpoint is in it.
        log: gets what the driver says.
    """
    seen = _planned(state)
    with (
        open(log, "w") as told,
        subprocess.Popen(
            command, stdout=told, stderr=told, env=environment(log.parent), start_new_session=True
        ) as driver,
    ):
        deadline = time.monotonic() + START_LIMIT_S
        while _planned(state) <= seen:
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        time.sleep(after_s)
        assert driver.poll() is None, log.read_text()
        os.killpg(driver.pid, signal.SIGKILL)


def kill_when(command: Sequence[str], work: Path, log: Path, after_s: float) -> bool:
    """Start a driver, and kill it some time after it has written to a path; returns whether it was still at work.

    Args:
        log: gets the output of the driver.
    """
    begin_ns = time.time_ns()
    with (
        open(log, "w") as output,
        subprocess.Popen(
            command, stdout=output, stderr=output, env=environment(log.parent), start_new_session=True
        ) as driver,
    ):
        deadline = time.monotonic() + START_LIMIT_S
        while not (work.exists() and work.stat().st_mtime_ns > begin_ns) and driver.poll() is None:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.005)
        time.sleep(after_s)
        ended = driver.poll()
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    assert ended in (None, 0, 1), log.read_text()
    return ended is None


def forget_last_commit(state: Path) -> None:
    """As if the driver had died when it had written a batch, and before Spark knew.

    Args:
        state: the folder that has Spark's checkpoint.
    """
    commits = state / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def _planned(state: Path) -> int:
    """How many batches Spark has planned."""
    return len(list(state.glob("checkpoint/offsets/[0-9]*")))
