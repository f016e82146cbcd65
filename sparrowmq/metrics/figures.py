"""The registry of a program's figures. The part that knows a figure declares it once, under the name that users see.

    figures = Figures()
    sent = figures.counter("sparrowmq_messages_sent_total", "messages handed to consumers")     # sent.value += 1
    figures.gauge("sparrowmq_log_end_offset", "offset behind the newest message", lambda: store.end)

    /metrics            series_limit.py reads all figures, in slices, and metrics_page.py writes them as text
    OTLP                otlp.py sends the same series
    brokerStatus        broker/metrics/status.py writes some of them with the names and forms of Apache's tools

A figure is read when a writer asks for it. Only `sample` looks at counters meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from sparrowmq.core.stats import Counter, Histogram, Rate

Kind = Literal["counter", "gauge", "histogram"]
Row = tuple[tuple[str, ...], float]  # a value for each label, and the number
Rows = Iterable[Row]  # a generator may be paused between two rows, so it goes through nothing that changes
Histograms = Iterable[tuple[tuple[str, ...], Histogram]]

# Bounds of buckets from 0.1 ms to 10 s.
_MICROSECONDS: Final = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, or one for each combination of its labels' values.

    The name of a counter ends in `_total`. `along_with` is a figure with the same first label: if there are too many
    rows, those of the labels that it shows come first, so an alert that compares both misses nothing. `bounds` are
    those of a histogram's buckets, as integers of its own unit; `scale` is the size of that unit in the unit of the
    metric. `rate` is that of a counter that a part adds to.
    """

    name: str
    kind: Kind
    help: str
    labels: Sequence[str]
    read: Callable[[], Rows | Histograms]
    along_with: str = ""
    bounds: Sequence[int] = ()
    scale: float = 1
    rate: Rate | None = None


class Figures:
    """All figures of one program, by name. Each method raises ValueError for a name that is taken."""

    def __init__(self) -> None:
        self._by_name: dict[str, Figure] = {}

    def __iter__(self) -> Iterator[Figure]:
        return iter(list(self._by_name.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def counter(self, name: str, help: str) -> Counter:
        """A number that only rises. The caller adds to it."""
        counter = Counter()
        self._add(Figure(name, "counter", help, (), lambda: [((), counter.value)], rate=Rate(counter)))
        return counter

    def read_counter(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A number that only rises. The caller has it."""
        self._add(Figure(name, "counter", help, (), lambda: [((), read())]))

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A number that rises and falls."""
        self._add(Figure(name, "gauge", help, (), lambda: [((), read())]))

    def add_alias(self, name: str, other: str) -> None:
        self._add(replace(self._by_name[other], name=name))

    def counters(self, name: str, help: str, labels: Sequence[str], read: Callable[[], Rows]) -> None:
        """Numbers with labels that only rise."""
        self._add(Figure(name, "counter", help, labels, read))

    def gauges(
        self, name: str, help: str, labels: Sequence[str], read: Callable[[], Rows], *, along_with: str = ""
    ) -> None:
        """Numbers with labels that rise and fall."""
        self._add(Figure(name, "gauge", help, labels, read, along_with))

    def time_histogram(self, name: str, help: str, read: Callable[[], Histogram]) -> None:
        """A histogram of microseconds, in seconds."""
        self.histograms(name, help, (), lambda: [((), read())], _MICROSECONDS, 1e-6)

    def histograms(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        read: Callable[[], Histograms],
        bounds: Sequence[int],
        scale: float,
    ) -> None:
        """The number of values below each bound, with labels."""
        self._add(Figure(name, "histogram", help, labels, read, bounds=bounds, scale=scale))

    def sample(self, now_s: float) -> None:
        """Remember the counters; call this about every second, for `rates`."""
        for figure in self._by_name.values():
            if figure.rate is not None:
                figure.rate.sample(now_s)

    def value(self, name: str) -> float:
        """A figure without labels. Raises: KeyError."""
        return self.values(name)[()]

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """A figure by the values of its labels. Raises: KeyError."""
        return dict(self._by_name[name].read())  # type: ignore[arg-type]  # not of a histogram

    def rates(self, name: str, now_s: float) -> tuple[float, ...]:
        """The rise of a counter per second over ten seconds, a minute and ten minutes. Raises: KeyError."""
        rate = self._by_name[name].rate
        if rate is None:
            raise KeyError(f"{name} is no counter")
        return rate.per_second(now_s)

    def _add(self, figure: Figure) -> None:
        if figure.name in self._by_name:
            raise ValueError(f"two figures are called {figure.name}")
        self._by_name[figure.name] = figure
