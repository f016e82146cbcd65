"""The benchmark of many producers, from its command line to its table."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.load import build


@pytest.mark.nightly
@pytest.mark.skipif(build() is None, reason="no C compiler, or not Linux")
def test_a_quick_run_shows_a_row_for_each_number_of_connections():
    options = ["--quick", "--peers", "ours", "--flush", "ASYNC_FLUSH", "--connections", "2,5"]
    run = subprocess.run(
        [sys.executable, "-m", "bench", "many", *options, "--warm-up", "1000"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    rows = [line.split(" | ")[:4] for line in run.stdout.splitlines() if line.startswith("| ASYNC")]
    assert rows == [["| ASYNC", "128", "2", "ours"], ["| ASYNC", "128", "5", "ours"]]
