"""How the memory of processes grows, by their samples over a run. Pure, but for `resident_mb`."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

HOUR_S: Final = 3600.0
# What a process takes at its start is no growth.
WARM_PART: Final = 0.25
MOST_MB_AN_HOUR: Final = 1.0
SHORTEST_S: Final = HOUR_S  # a shorter run says little: it is reported, and is no violation

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """Samples by name; a process that is started again under its name goes on with the same samples."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def sample(self, name: str, at_s: float, size_mb: float) -> None:
        self._samples[name].append((at_s, size_mb))

    def growth(self) -> dict[str, float]:
        """MB an hour of each, as the straight line through its samples rises after it has warmed up."""
        return {name: _slope(_warm(samples)) * HOUR_S for name, samples in sorted(self._samples.items())}

    def last(self) -> dict[str, float]:
        """MB of each at its last sample."""
        return {name: samples[-1][1] for name, samples in sorted(self._samples.items())}


def resident_mb(pid: int) -> float | None:
    """The resident memory of a process; None if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6
    except (OSError, IndexError):
        return None


def _warm(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    begin, end = samples[0][0], samples[-1][0]
    return [each for each in samples if each[0] >= begin + (end - begin) * WARM_PART]


def _slope(samples: list[tuple[float, float]]) -> float:
    """MB a second, by least squares."""
    count = len(samples)
    mean_s, mean_mb = sum(each[0] for each in samples) / count, sum(each[1] for each in samples) / count
    spread = sum((at - mean_s) ** 2 for at, _ in samples)
    return sum((at - mean_s) * (size - mean_mb) for at, size in samples) / spread if spread else 0.0
