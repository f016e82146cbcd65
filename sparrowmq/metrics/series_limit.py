"""The limit of series: which topics and groups have lines of their own in /metrics, and which share one.

A figure with labels has at most `max_series` series (metricsMaxSeries, 200 by default) and one more, `(others)`. Gauges
show their greatest values, since users look for those. Counters show the first series by name, because a counter that
comes and goes looks like a restart. `sparrowmq_series_left_out` counts the series behind `(others)`. The series are
those of one moment, for Prometheus (metrics_page.py) and OTLP (otlp.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final, NamedTuple, cast

from sparrowmq.core.stats import Histogram
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.metrics.figures import Figure, Figures, Histograms, Kind, Row, Rows

OTHERS: Final = "(others)"
_ROWS_AT_ONCE: Final = 100


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


def series_of(figures: Figures, common: Mapping[str, str], max_series: int) -> list[Series]:
    """All figures as series. `common` are labels that every series has beside its own."""
    return at_once(all_series(figures, common, max_series))


def all_series(figures: Figures, common: Mapping[str, str], max_series: int) -> Steps[list[Series]]:
    """Collect `series_of`. A figure may have a row for each of 10,000 groups, which takes many steps."""
    names, values = tuple(common), tuple(common.values())
    shown_labels: dict[str, set[str]] = {}  # by gauge, the values of the first label
    omitted_counts: list[Row] = []
    series: list[Series] = []
    for figure in figures:
        yield
        labels = (*names, *figure.labels)
        if figure.kind == "histogram":
            histograms = cast(Histograms, figure.read())
            buckets = [((*values, *own_labels), _buckets_of(figure, histogram)) for own_labels, histogram in histograms]
            series.append(Series(figure.name, figure.kind, figure.help, labels, [], buckets))
            continue
        rows = yield from _read_rows(figure)
        if len(rows) > max_series:
            shown_rows = yield from _largest_rows(figure, rows, max_series, shown_labels.get(figure.along_with, set()))
            omitted_counts.append(((*values, figure.name), len(rows) - len(shown_rows)))
            rest_total = sum(value for _, value in rows) - sum(value for _, value in shown_rows)
            rows = [*shown_rows, ((OTHERS,) * len(figure.labels), rest_total)]
        shown_labels[figure.name] = {own_labels[0] for own_labels, _ in rows if own_labels}
        rows = [((*values, *own_labels), value) for own_labels, value in rows]
        series.append(Series(figure.name, figure.kind, figure.help, labels, rows))
    if omitted_counts:
        about = "series that share the one of (others): metricsMaxSeries"
        series.append(Series("sparrowmq_series_left_out", "gauge", about, (*names, "family"), omitted_counts))
    return series


def _read_rows(figure: Figure) -> Steps[list[Row]]:
    rows: list[Row] = []
    for row in cast(Rows, figure.read()):
        rows.append(row)
        if len(rows) % _ROWS_AT_ONCE == 0:
            yield
    yield
    return rows


def _buckets_of(figure: Figure, histogram: Histogram) -> Buckets:
    bounds = [float(f"{bound * figure.scale:g}") for bound in figure.bounds]
    return Buckets(bounds, histogram.at_most(figure.bounds), int(histogram.count), int(histogram.total) * figure.scale)


def _largest_rows(figure: Figure, rows: Sequence[Row], max_series: int, leading: set[str]) -> Steps[list[Row]]:
    """The rows to show: of a gauge first the greatest of each label in `leading`."""
    if figure.kind == "counter":
        return nsmallest(max_series, rows)
    greatest: dict[str, Row] = {}
    for row in rows:
        label = row[0][0]
        if label in leading and (label not in greatest or greatest[label][1] < row[1]):
            greatest[label] = row
    yield
    leading_rows = list(greatest.values())[:max_series]
    labels = {own_labels for own_labels, _ in leading_rows}
    others = (row for row in rows if row[0] not in labels)
    shown_rows = [*leading_rows, *nlargest(max_series - len(leading_rows), others, key=lambda row: row[1])]
    yield
    return shown_rows
