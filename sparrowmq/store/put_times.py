"""The times that puts take, from the first message of a burst until the burst is as safe as its answers promise.

    burst    append, append, append ── written, synced, at a slave ── record(ms, 3)
    minute   0 ms: 1200 puts, 1 ms: 7, 250 ms: 2                     the minute before it is what tools see

A time is one of whole milliseconds, and nearly all are 0. So the store counts those of a burst at once, and a put costs
no look at a clock. Java looks at the clock twice for each message.
Source: StoreStatsService, Java 4.9.8: the spans of putMessageDistributeTime, the buckets of findPutMessageEntireTimePX.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from time import perf_counter
from typing import Final

from sparrowmq.loop.durability import Durability

# The ends of Java's spans: its first one holds 0 ms, and its last one has no end.
_SPANS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
# Java's buckets for quantiles: the greatest value of each.
_STEPS: Final = 20 * (1,) + 15 * (2,) + 10 * (5,) + 10 * (10,) + 6 * (50,) + 5 * (100,) + 9 * (1000,)
_BUCKETS_MS: Final = (*accumulate(_STEPS), (1 << 63) - 1)
_LONGEST_MS: Final = 20_000  # longer times count as this one: both tables end before it
_MINUTE_S: Final = 60.0


class PutTimes:
    """The times of one store.

    Attributes:
        greatest_ms: the longest time since the start.
        failed: puts that were not as safe as promised in time.
    """

    def __init__(self) -> None:
        self.greatest_ms = 0
        self.failed = 0
        self._now: dict[int, int] = {}
        self._last: dict[int, int] | None = None
        self._turned_s: float | None = None

    def record(self, took_ms: int, count: int) -> None:
        self.greatest_ms = max(self.greatest_ms, took_ms)
        took_ms = min(took_ms, _LONGEST_MS)
        self._now[took_ms] = self._now.get(took_ms, 0) + count

    def burst(self, safety: Durability, began_s: float, count: int, end: int) -> None:
        """Note the puts of a burst that is written, once the log is safe up to its `end`.

        Args:
            began_s: when its first message came, by perf_counter.
        """
        if safety.holds(end):
            self.record(int((perf_counter() - began_s) * 1000), count)
        else:
            safety.when(end, lambda error: self._on_end(began_s, count, error))

    def _on_end(self, began_s: float, count: int, error: BaseException | None) -> None:
        self.record(int((perf_counter() - began_s) * 1000), count)
        if error is not None:
            self.failed += count

    def sample(self, now_s: float) -> None:
        """Begin another minute if one is over; called about every second."""
        if self._turned_s is None:
            self._turned_s = now_s
        elif now_s - self._turned_s >= _MINUTE_S:
            self._turned_s = now_s
            self._last, self._now = self._now, {}

    @property
    def spans(self) -> list[int]:
        """The puts of the last full minute in each of Java's 13 spans; before, those since the start."""
        counts = [0] * (len(_SPANS_MS) + 1)
        for took_ms, count in self._minute.items():
            counts[bisect_right(_SPANS_MS, took_ms)] += count
        return counts

    def quantile_ms(self, share: float) -> float:
        """The time that `share` of the same puts did not exceed, as Java interpolates it in its buckets."""
        counts = [0] * len(_BUCKETS_MS)
        for took_ms, count in self._minute.items():
            counts[bisect_left(_BUCKETS_MS, took_ms)] += count
        wanted, begin_ms = int(sum(counts) * share), 0
        for end_ms, count in zip(_BUCKETS_MS, counts, strict=True):
            if wanted <= count:
                return begin_ms + ((end_ms - begin_ms) * wanted / count if count else 0.0)
            wanted -= count
            begin_ms = end_ms
        return float(begin_ms)

    @property
    def _minute(self) -> dict[int, int]:
        return self._now if self._last is None else self._last
