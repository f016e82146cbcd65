"""How the memory of processes grows, by their samples over a run. Pure, but for `weigh`.

A process that was just started is smaller, and brokers are started again each minute or two. So only samples of like
age are compared: those of one life or of several, whose ages have as many binary digits.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

HOUR_S: Final = 3600.0
# What a process takes at its start is no growth.
WARM_PART: Final = 0.25
MOST_MB_AN_HOUR: Final = 1.0
SHORTEST_S: Final = HOUR_S  # a shorter run says little: it is reported, and is no violation

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STARTED_AT: Final = 19  # behind the name, which is in parentheses


class Sample(NamedTuple):
    """The memory of a process at some time, and how long it had run."""

    at_s: float
    age_s: float
    size_mb: float


class Memory:
    """Samples by name; a process that is started again under its name goes on with the same samples."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, list[Sample]] = defaultdict(list)

    def add(self, name: str, sample: Sample) -> None:
        self._samples[name].append(sample)

    def growth(self) -> dict[str, float]:
        """MB an hour of each, as straight lines through its samples of like age rise after the run has warmed up."""
        return {name: _slope(_warm(samples)) * HOUR_S for name, samples in sorted(self._samples.items())}

    def last(self) -> dict[str, float]:
        """MB of each at its last sample."""
        return {name: samples[-1].size_mb for name, samples in sorted(self._samples.items())}


def weigh(pid: int) -> Sample | None:
    """A sample of a process; None if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STARTED_AT])
    except (OSError, IndexError):
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS
    return Sample(time.monotonic(), age_s, pages * _PAGE_BYTES / 1e6)


def _warm(samples: list[Sample]) -> list[Sample]:
    begin, end = samples[0].at_s, samples[-1].at_s
    return [each for each in samples if each.at_s >= begin + (end - begin) * WARM_PART]


def _slope(samples: list[Sample]) -> float:
    """MB a second, by least squares; the lines of all ages rise alike."""
    pairs = [pair for some in _of_like_age(samples) for pair in _from_their_mean(some)]
    spread = sum(at_s * at_s for at_s, _ in pairs)
    return sum(at_s * size_mb for at_s, size_mb in pairs) / spread if spread else 0.0


def _of_like_age(samples: list[Sample]) -> Iterator[list[Sample]]:
    found: defaultdict[int, list[Sample]] = defaultdict(list)
    for each in samples:
        found[int(each.age_s).bit_length()].append(each)
    yield from found.values()


def _from_their_mean(samples: list[Sample]) -> Iterator[tuple[float, float]]:
    """The time and the size of each, as they differ from the mean of these samples."""
    count = len(samples)
    mean_s, mean_mb = (
        sum(each.at_s for each in samples) / count,
        sum(each.size_mb for each in samples) / count,
    )
    yield from ((each.at_s - mean_s, each.size_mb - mean_mb) for each in samples)
