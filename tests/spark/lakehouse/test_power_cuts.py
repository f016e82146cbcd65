"""Lakes that are killed, or lose power, at their file operations; `power_cuts.py` is the program for it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(1800)
KINDS = ("delta", "delta --key", "iceberg", "iceberg --key", "parquet")


def deaths(line: str, *, first: int, every: int, most: int) -> int:
    """How often the lake died; the program fails if messages were lost, doubled or refused."""
    program = [sys.executable, "-m", "tests.spark.lakehouse.power_cuts", *line.split()]
    chosen = [f"--first={first}", f"--every={every}", f"--most={most}"]
    found = subprocess.run([*program, *chosen], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert found.returncode == 0, found.stdout
    # The log of the lake may be there, too: it warns that the newest metadata of a table is gone.
    said = re.search(r"^(\d+) deaths, 0 faults", found.stdout, re.MULTILINE)
    assert said is not None, found.stdout
    return int(said[1])


@pytest.mark.slow
@pytest.mark.parametrize("line", ["delta --key --cut", "iceberg --cut"])
def test_a_death_at_some_file_operations_loses_and_doubles_nothing(line):
    assert deaths(line, first=7, every=29, most=4) == 4


@pytest.mark.nightly
@pytest.mark.parametrize("cut", ["", " --cut"])
@pytest.mark.parametrize("line", KINDS)
def test_a_death_at_each_second_file_operation_loses_and_doubles_nothing(line, cut):
    assert deaths(line + cut, first=1, every=2, most=10_000) > 50
