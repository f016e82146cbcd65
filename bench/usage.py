"""What a process took of the machine: read from /proc, without any package."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Memory:
    """What a process holds, in MiB: `resident` counts mapped files too, `anonymous` is what it keeps for itself."""

    resident: float
    anonymous: float


def memory(pid: int) -> Memory:
    """Read /proc/<pid>/smaps_rollup."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {name: int(size) for name, size in re.findall(r"^(Rss|Anonymous):\s+(\d+) kB", text, re.MULTILINE)}
    return Memory(kib["Rss"] / 1024, kib["Anonymous"] / 1024)


def cpu_s(pid: int) -> float:
    """The seconds of CPU that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads_cpu_us(pid: int) -> float:
    """Microseconds of CPU that the live threads of a process have had: finer than `cpu_s`."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e3
