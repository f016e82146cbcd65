"""Numbers about what happens: counters, rates over a few windows, and histograms. No export, no clock, no thread.

The hot path only adds: `counter.value += n`, `histogram.record(n)`. What needs time is sampled by the owner's chores,
so a message costs no clock call for its statistics.

`Figures` is where all numbers of one server meet: its parts bring theirs, and whoever tells them to somebody
(brokerStatus, a metrics endpoint, a console) reads them by name, so all of them tell the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sparrowmq.compiled import mypyc_attr

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

# The windows of Java's "putTps": ten seconds, a minute, ten minutes.
WINDOWS_S = (10, 60, 600)
_SAMPLES = 10


class Counter:
    """A number that only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Rate:
    """How fast a counter rises, over several windows.

    Call `sample` about every second; each window keeps ten samples, so what it says is of the last window's length,
    give or take a tenth. Before a window is full it speaks of the time since the first sample.
    """

    __slots__ = ("_rows", "_windows_s", "counter")

    def __init__(self, counter: Counter, windows_s: Sequence[float] = WINDOWS_S) -> None:
        self.counter = counter
        self._windows_s = tuple(windows_s)
        # Each row holds (moment, value) pairs, oldest first, at least a tenth of its window apart.
        self._rows: tuple[deque[tuple[float, int]], ...] = tuple(
            deque(maxlen=_SAMPLES + 1) for _ in windows_s
        )

    def sample(self, now_s: float) -> None:
        """Remember the counter at `now_s`, seconds of a clock that never goes back."""
        for window_s, row in zip(self._windows_s, self._rows, strict=True):
            if not row or now_s - row[-1][0] >= window_s / _SAMPLES:
                row.append((now_s, self.counter.value))

    def per_second(self, now_s: float) -> tuple[float, ...]:
        """The rate over each window."""
        return tuple(self._since_oldest(row, now_s) for row in self._rows)

    def _since_oldest(self, row: deque[tuple[float, int]], now_s: float) -> float:
        if not row or now_s <= row[0][0]:
            return 0.0
        moment, value = row[0]
        return (self.counter.value - value) / (now_s - moment)


@mypyc_attr(acyclic=True)
class _Bucket:
    """How many values fell into it. A list of such counts without making an object of each new number."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count: i64 = 0


class Histogram:
    """How often values of each magnitude were seen, to within an eighth, in a few kilobytes.

    Buckets are log-scaled: values below 8 have their own, each later power of two is cut in eight. So a quantile is at
    most 12.5 % too high, and never too low.
    """

    __slots__ = ("_buckets", "count", "greatest", "total")

    def __init__(self) -> None:
        self._buckets: list[_Bucket] = []
        self.count: i64 = 0
        self.total: i64 = 0
        self.greatest: i64 = 0

    def record(self, value: i64, times: i64 = 1) -> None:
        """Count a value that was seen so often; below zero counts as zero."""
        if value < 0:
            value = 0
        index = _bucket(value)
        if index >= len(self._buckets):
            self._grow(index + 1)
        self._buckets[index].count += times
        self.count += times
        self.total += value * times
        if value > self.greatest:
            self.greatest = value

    def _grow(self, size: i64) -> None:
        while len(self._buckets) < size:
            self._buckets.append(_Bucket())

    @property
    def mean(self) -> float:
        return int(self.total) / int(self.count) if self.count else 0.0

    def quantile(self, share: float) -> int:
        """A value that `share` of all values do not exceed; 0 without values."""
        wanted = share * int(self.count)
        seen = 0
        for index, bucket in enumerate(self._buckets):
            seen += bucket.count
            if bucket.count and seen >= wanted:
                return min(_last_of(index), self.greatest)
        return self.greatest

    def at_most(self, bounds: Iterable[int]) -> list[int]:
        """How many values lie in the buckets that end at or below each bound, as a metrics endpoint tells them."""
        ends = [(_last_of(index), bucket.count) for index, bucket in enumerate(self._buckets)]
        return [sum(count for end, count in ends if end <= bound) for bound in bounds]


def _bucket(value: i64) -> i64:
    """0..7 for themselves; then eight for each power of two, by the three bits below the highest."""
    shift: i64 = 0
    while value >= 16:
        value >>= 1
        shift += 1
    return 8 * shift + value


def _last_of(bucket: int) -> int:
    """The greatest value that falls into a bucket."""
    if bucket < 8:
        return bucket
    shift, top = divmod(bucket, 8)
    return ((top + 8 + 1) << (shift - 1)) - 1


Values = Iterable[tuple[tuple[str, ...], float]]  # what each of the labels is, and the number


class Figure:
    """One number, or one for each value of its labels.

    Attributes:
        rate: how fast it rises, if it is a counter.
    """

    __slots__ = ("labels", "meaning", "name", "rate", "read")

    def __init__(
        self, name: str, meaning: str, labels: tuple[str, ...], read: Callable[[], Values], rate: Rate | None
    ) -> None:
        self.name = name
        self.meaning = meaning
        self.labels = labels
        self.read = read
        self.rate = rate


class Figures:
    """All figures of one server, by their names."""

    def __init__(self) -> None:
        self._by_name: dict[str, Figure] = {}

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._by_name.values())

    def counter(self, name: str, meaning: str) -> Counter:
        """A new number that only rises; the part that brings it adds to it. Raises: ValueError, the name is taken."""
        counter = Counter()
        self._add(Figure(name, meaning, (), lambda: [((), counter.value)], Rate(counter)))
        return counter

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """A number that is looked up when somebody asks. Raises: ValueError, the name is taken."""
        self._add(Figure(name, meaning, (), lambda: [((), read())], None))

    def family(self, name: str, meaning: str, labels: tuple[str, ...], read: Callable[[], Values]) -> None:
        """Numbers that are told apart by labels, looked up alike. Raises: ValueError, the name is taken."""
        self._add(Figure(name, meaning, labels, read, None))

    def sample(self, now_s: float) -> None:
        """Remember where the counters are; about every second, for `rates`."""
        for figure in self._by_name.values():
            if figure.rate is not None:
                figure.rate.sample(now_s)

    def knows(self, name: str) -> bool:
        """Whether there is such a figure."""
        return name in self._by_name

    def value(self, name: str) -> float:
        """A figure without labels. Raises: KeyError."""
        ((_, value),) = self._by_name[name].read()
        return value

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """A figure by its labels. Raises: KeyError."""
        return dict(self._by_name[name].read())

    def rates(self, name: str, now_s: float) -> tuple[float, ...]:
        """How much a counter rises in a second, over ten seconds, a minute and ten minutes. Raises: KeyError."""
        rate = self._by_name[name].rate
        if rate is None:
            raise KeyError(f"{name} is no counter")
        return rate.per_second(now_s)

    def _add(self, figure: Figure) -> None:
        if figure.name in self._by_name:
            raise ValueError(f"two figures are called {figure.name}")
        self._by_name[figure.name] = figure
