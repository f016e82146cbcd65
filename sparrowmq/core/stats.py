"""Numbers about what happens: counters, rates over a few windows, histograms, and events that repeat.

The hot path only adds: `counter.value += n`, `histogram.record(n)`. What needs time is sampled by the owner's chores,
so a message costs no clock call for its statistics.

`sparrowmq.metrics.figures` gives such numbers the names that users see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from sparrowmq.loop.clock import Clock

# The windows of Java's "putTps": ten seconds, a minute, ten minutes.
WINDOWS_S = (10, 60, 600)
_SAMPLES_PER_WINDOW = 10
PERIOD_S: Final = 30.0  # in which events of `RecentEvents` count


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Rate:
    """The rate of a counter over several windows.

    Call `sample` about every second. Each window keeps ten samples, so it covers its length within a tenth. Before a
    window is full, it covers the time since the first sample.
    """

    __slots__ = ("_rows", "_windows_s", "counter")

    def __init__(self, counter: Counter, windows_s: Sequence[float] = WINDOWS_S) -> None:
        self.counter = counter
        self._windows_s = tuple(windows_s)
        # Each row holds (moment, value) pairs, oldest first, at least a tenth of its window apart.
        self._rows: tuple[deque[tuple[float, int]], ...] = tuple(
            deque(maxlen=_SAMPLES_PER_WINDOW + 1) for _ in windows_s
        )

    def sample(self, now_s: float) -> None:
        """Remember the counter at `now_s`, seconds of a clock that never goes back."""
        for window_s, row in zip(self._windows_s, self._rows, strict=True):
            if not row or now_s - row[-1][0] >= window_s / _SAMPLES_PER_WINDOW:
                row.append((now_s, self.counter.value))

    def per_second(self, now_s: float) -> tuple[float, ...]:
        oldest = [row[0] if row else (now_s, 0) for row in self._rows]
        value = self.counter.value
        return tuple(
            (value - former_value) / (now_s - since_s) if now_s > since_s else 0.0 for since_s, former_value in oldest
        )


class Histogram:
    """A histogram of values in a few kilobytes, with buckets of one eighth.

    Values below 8 have a bucket each; each higher power of two has eight buckets. So a quantile is at most 12.5 % too
    high, and never too low.
    """

    __slots__ = ("_buckets", "count", "greatest", "total")

    def __init__(self) -> None:
        self._buckets: list[int] = []  # the number of values in each
        self.count = 0
        self.total = 0
        self.greatest = 0

    def record(self, value: int, times: int = 1) -> None:
        """Count a value that was seen so often; below zero counts as zero."""
        if value < 0:
            value = 0
        index = _bucket(value)
        if index >= len(self._buckets):
            self._buckets.extend([0] * (index + 1 - len(self._buckets)))
        self._buckets[index] += times
        self.count += times
        self.total += value * times
        if value > self.greatest:
            self.greatest = value

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> int:
        """A value that `share` of all values do not exceed; 0 without values."""
        wanted_count = share * self.count
        seen_count = 0
        for end, count in self._counts():
            seen_count += count
            if seen_count >= wanted_count:
                return min(end, self.greatest)
        return self.greatest

    def at_most(self, bounds: Iterable[int]) -> list[int]:
        """The number of values in the buckets that end at or below each bound."""
        counts = self._counts()
        return [sum(count for end, count in counts if end <= bound) for bound in bounds]

    def _counts(self) -> list[tuple[int, int]]:
        """The greatest value that falls into each bucket, and the number of values in it."""
        return [(_bucket_end(index), count) for index, count in enumerate(self._buckets) if count]


def _bucket(value: int) -> int:
    """0..7 for themselves; then eight for each power of two, by the three bits below the highest."""
    shift = max(0, value.bit_length() - 4)
    return 8 * shift + (value >> shift)


def _bucket_end(bucket: int) -> int:
    if bucket < 8:
        return bucket
    shift, top = divmod(bucket, 8)
    return ((top + 8 + 1) << (shift - 1)) - 1


class RecentEvents:
    """Remembers the latest events of one sort; `min_count` within PERIOD_S are worth a report."""

    def __init__(self, clock: Clock, min_count: int = 1) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=min_count)
        self._last = ""

    def note(self, event: str) -> None:
        self._times.append(self._clock.monotonic())
        self._last = event

    def forget(self) -> None:
        self._times.clear()

    @property
    def last(self) -> str:
        """The text of the latest event, if there were enough of them within PERIOD_S; otherwise ""."""
        times = self._times
        is_full = len(times) == times.maxlen
        return self._last if is_full and self._clock.monotonic() - times[0] < PERIOD_S else ""
