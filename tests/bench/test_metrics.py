"""The benchmark of what measuring costs, from its command line to its table."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.load import build


@pytest.mark.nightly
@pytest.mark.skipif(build() is None, reason="no C compiler, or not Linux")
def test_a_quick_run_shows_what_measuring_costs():
    run = subprocess.run(
        [sys.executable, "-m", "bench", "metrics", "--quick", "--windows", "64", "--warm-up", "1000"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    (row,) = {line for line in run.stdout.splitlines() if line.startswith("| 64 |")}
    _, window, off, on, cost, *_ = (cell.strip() for cell in row.split("|"))
    assert window == "64" and float(off) > 0 and float(on) > 0
    assert abs(float(cost)) < 50, "it switches what it says, and measures both alike"
