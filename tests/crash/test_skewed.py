"""A process whose time of day is wrong, by as much as a file says."""

import subprocess
import sys
import time
from pathlib import Path

from tests.crash.skewed import Skew
from tests.interop.servers import REPOSITORY

PROGRAM = """
import sys
from pathlib import Path
from sparrowmq.loop.clock import SystemClock
from tests.crash.skewed import skew_clock
skew_clock(Path(sys.argv[1]))
for _ in sys.stdin:
    print(SystemClock().now_ms(), SystemClock().monotonic(), flush=True)
"""


def test_the_time_of_day_jumps_and_the_steady_clock_does_not(tmp_path: Path) -> None:
    skew = Skew(tmp_path / "skew")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(skew.file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for jump_ms in (0, 3_600_000, -86_400_000):
            skew.set(jump_ms)
            process.stdin.write(b"\n")
            process.stdin.flush()
            now_ms, steady_s = map(float, process.stdout.readline().split())
            assert abs(now_ms - time.time() * 1000 - jump_ms) < 5000
            assert abs(steady_s - time.monotonic()) < 5
        process.stdin.close()
