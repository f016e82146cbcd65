"""sparrowmq.core.process: page faults of a process that takes and frees one block, and what the collector looks at."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from sparrowmq.core.process import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
for _ in range(100):
    blocks = [bytearray(b"x") * 1_000_000 for _ in range(3)]
    del blocks
print(faults() - before)
"""


def faults(how: str) -> int:
    # The threshold with which glibc begins. By itself it would follow the sizes that it sees, and what it then gives
    # back depends on what lies at the heap's end.
    environment = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
    command = [sys.executable, "-c", PROGRAM, how]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_that_is_kept_costs_its_page_faults_once() -> None:
    pages = 3_000_000 // 4096
    assert faults("kept") < 5 * pages < 50 * pages < faults("given back")


FROZEN = """
import gc
import sparrowmq.client.client
from sparrowmq.core.process import freeze_loaded_objects

freeze_loaded_objects()
first = gc.get_freeze_count()
later = [[] for _ in range(1000)]
freeze_loaded_objects()
print(first, gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_the_collector_looks_only_at_what_came_later() -> None:
    run = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True, check=True)
    first, second, looked_at = map(int, run.stdout.split())
    assert first == second > 10_000
    assert 1000 < looked_at < 2000
