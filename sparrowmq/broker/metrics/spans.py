"""Amounts of the last minute, hour and day, for very many keys of which few are busy.

    totals      Orders 120, Bills 7 ...     of counters that only rise, looked at every ten seconds
    minute      6 intervals of 10 s         each holds what was added in it, for the keys to which something was
    hour        6 of 10 min
    day         24 of 1 h

An idle key costs one number, and a key that its counter forgot costs nothing. Sends and pulls count nothing here: a
chore of the owner calls `sample`.
Source: StatsItem, Java 4.9.8, which keeps 39 samples for each key that ever was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SAMPLE_PERIOD_S: Final = 10.0
# The length of one interval in seconds, and how many of them make the span: a minute, an hour, a day.
INTERVALS: Final = ((10.0, 6), (600.0, 6), (3600.0, 24))


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount in a span, and per second."""

    sum: int
    per_second: float


class Spans(Generic[K]):
    def __init__(self, now_s: float) -> None:
        self._last: Mapping[K, int] | None = None
        self._spans = [_Span[K](length_s, count, now_s) for length_s, count in INTERVALS]

    def sample(self, totals: Iterable[tuple[K, int]], now_s: float) -> None:
        """Remember all counters; called about every ten seconds.

        The first time says where they begin. Later a key that is new begins at 0, and so does one that is lower than
        before: it was deleted, and made again.
        """
        last = dict(totals)
        if self._last is not None:
            before = self._last
            grown = {
                key: total - known if total >= (known := before.get(key, 0)) else total
                for key, total in last.items()
                if total != before.get(key, 0)
            }
            for span in self._spans:
                span.add(grown, now_s)
        self._last = last

    def of(self, key: K, now_s: float) -> tuple[Amount, ...] | None:
        """The amounts of the last minute, hour and day; None if all are 0."""
        found = tuple(span.of(key, now_s) for span in self._spans)
        return found if any(amount.sum for amount in found) else None


class _Span(Generic[K]):
    """One of the spans: its full intervals, and the one that is being filled."""

    def __init__(self, length_s: float, count: int, now_s: float) -> None:
        self._length_s = length_s
        self._full: deque[tuple[float, dict[K, int]]] = deque(maxlen=count)  # each with its beginning
        self._begin_s = now_s
        self._fresh: dict[K, int] = {}

    def add(self, grown: Mapping[K, int], now_s: float) -> None:
        for key, more in grown.items():
            self._fresh[key] = self._fresh.get(key, 0) + more
        if now_s - self._begin_s >= self._length_s:
            self._full.append((self._begin_s, self._fresh))
            self._begin_s, self._fresh = now_s, {}

    def of(self, key: K, now_s: float) -> Amount:
        total = self._fresh.get(key, 0) + sum(row.get(key, 0) for _, row in self._full)
        begin_s = self._full[0][0] if self._full else self._begin_s
        # A rate over less than an interval would be wrong.
        return Amount(total, total / max(now_s - begin_s, self._length_s))
