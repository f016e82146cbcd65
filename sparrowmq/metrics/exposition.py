"""The figures of one moment, as series for Prometheus and OTLP, and in Prometheus's text format 0.0.4.

A figure with labels has at most `most` series and one more, `(others)`. Gauges show their greatest values, since users
look for those. Counters show the first series by name, because a counter that comes and goes looks like a restart.
`sparrowmq_series_left_out` counts the series behind `(others)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final, NamedTuple, cast

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from sparrowmq.core.stats import Histogram
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.metrics.figures import Figure, Figures, Histograms, Kind, Row, Rows
from sparrowmq.metrics.http_endpoint import Answer

OTHERS: Final = "(others)"
_ROWS_AT_ONCE: Final = 100
# It reads the boot time of the machine once. Linux changes that time when the clock is set, so a new look at it would
# seem to be a restart of this process.
_PROCESS: Final = ProcessCollector(registry=None)
_SAMPLES_AT_ONCE: Final = 10  # in one step; a sample takes about 10 us


class Buckets(NamedTuple):
    """A histogram's values: how many are at most each bound, how many there are, and their sum."""

    bounds: list[float]
    at_most: list[int]
    size: int
    total: float


class Series(NamedTuple):
    """The numbers of one figure: `labels` are names, a row has their values."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    rows: list[Row]
    buckets: Sequence[tuple[tuple[str, ...], Buckets]] = ()


def series_of(figures: Figures, common: Mapping[str, str], most: int) -> list[Series]:
    """All figures.

    Args:
        common: labels that every series has beside its own.
    """
    return at_once(all_series(figures, common, most))


def all_series(figures: Figures, common: Mapping[str, str], most: int) -> Steps[list[Series]]:
    """Collect `series_of`. A figure may have a row for each of 10,000 groups, which takes many steps."""
    names, values = tuple(common), tuple(common.values())
    shown: dict[str, set[str]] = {}  # by gauge, the values of the first label
    left_out: list[Row] = []
    found: list[Series] = []
    for figure in figures:
        yield
        labels = (*names, *figure.labels)
        if figure.kind == "histogram":
            read = cast(Histograms, figure.read())
            buckets = [((*values, *own), _buckets(figure, seen)) for own, seen in read]
            found.append(Series(figure.name, figure.kind, figure.help, labels, [], buckets))
            continue
        rows = yield from _rows(figure)
        if len(rows) > most:
            kept = yield from _largest_rows(figure, rows, most, shown.get(figure.along_with, set()))
            left_out.append(((*values, figure.name), len(rows) - len(kept)))
            rest = sum(value for _, value in rows) - sum(value for _, value in kept)
            rows = [*kept, ((OTHERS,) * len(figure.labels), rest)]
        shown[figure.name] = {own[0] for own, _ in rows if own}
        rows = [((*values, *own), value) for own, value in rows]
        found.append(Series(figure.name, figure.kind, figure.help, labels, rows))
    if left_out:
        about = "series that share the one of (others): metricsMaxSeries"
        found.append(Series("sparrowmq_series_left_out", "gauge", about, (*names, "family"), left_out))
    return found


def _rows(figure: Figure) -> Steps[list[Row]]:
    rows: list[Row] = []
    for row in cast(Rows, figure.read()):
        rows.append(row)
        if len(rows) % _ROWS_AT_ONCE == 0:
            yield
    yield
    return rows


def _buckets(figure: Figure, seen: Histogram) -> Buckets:
    bounds = [float(f"{bound * figure.scale:g}") for bound in figure.bounds]
    return Buckets(bounds, seen.at_most(figure.bounds), int(seen.count), int(seen.total) * figure.scale)


def _largest_rows(figure: Figure, rows: Sequence[Row], most: int, leading: set[str]) -> Steps[list[Row]]:
    """The rows to show: of a gauge first the greatest of each label in `leading`."""
    if figure.kind == "counter":
        return nsmallest(most, rows)
    greatest: dict[str, Row] = {}
    for row in rows:
        label = row[0][0]
        if label in leading and (label not in greatest or greatest[label][1] < row[1]):
            greatest[label] = row
    yield
    led = list(greatest.values())[:most]
    labels = {own for own, _ in led}
    others = (row for row in rows if row[0] not in labels)
    kept = [*led, *nlargest(most - len(led), others, key=lambda row: row[1])]
    yield
    return kept


class _Collected:
    """A source of one metric for the client library."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def collect(self) -> Iterator[Metric]:
        yield _metric(self._series)


def page(series: Iterable[Series]) -> Steps[Answer]:
    """Write the page in steps: 10,000 samples take 0.1 s of the processor."""
    text: list[bytes] = []
    for each in series:
        head = generate_latest(_Collected(each._replace(rows=[], buckets=())))  # HELP and TYPE
        text.append(head)
        for piece in _pieces(each):
            text.append(generate_latest(_Collected(piece))[len(head) :])
            yield
        yield
    return Answer(200, b"".join(text), CONTENT_TYPE_PLAIN_0_0_4)


def _pieces(series: Series) -> Iterator[Series]:
    """Yield some rows of a series, or a histogram of it, which has two dozen samples."""
    count = _SAMPLES_AT_ONCE
    for first in range(0, len(series.rows), count):
        yield series._replace(rows=series.rows[first : first + count], buckets=())
    for each in series.buckets:
        yield series._replace(rows=[], buckets=[each])


def process_series() -> Iterator[Series]:
    """Memory, CPU, descriptors and start of this process, under the names that all programs have."""
    for metric in _PROCESS.collect():
        for sample in metric.samples:
            yield Series(sample.name, cast(Kind, metric.type), metric.documentation, (), [((), sample.value)])


def _metric(series: Series) -> Metric:
    # The library gives the suffix to counters again. Gauges of rocketmq-exporter have it, too.
    name = series.name.removesuffix("_total") if series.kind == "counter" else series.name
    metric = Metric(name, series.help, series.kind)
    for values, number in series.rows:
        metric.add_sample(series.name, dict(zip(series.labels, values, strict=True)), number)
    for values, buckets in series.buckets:
        labels = dict(zip(series.labels, values, strict=True))
        for bound, count in zip(buckets.bounds, buckets.at_most, strict=True):
            metric.add_sample(f"{series.name}_bucket", labels | {"le": f"{bound:g}"}, count)
        metric.add_sample(f"{series.name}_bucket", labels | {"le": "+Inf"}, buckets.size)
        metric.add_sample(f"{series.name}_count", labels, buckets.size)
        metric.add_sample(f"{series.name}_sum", labels, buckets.total)
    return metric
