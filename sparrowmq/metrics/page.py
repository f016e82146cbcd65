"""One visit's metrics, as Prometheus reads them: families of samples, made anew for each visit and then forgotten.

    page = Page({"cluster": "c", "node_id": "broker-a"}, most=200)
    page.gauge("rocketmq_topic_number", "topics", len(topics))
    page.counters("rocketmq_messages_in_total", "messages stored", ("topic",), rows)

Nothing is kept between visits, so labels that are gone are gone. A family with labels of its own has at most `most`
series and one more, `(others)`: gauges show their greatest values, since those are looked for; counters the first by
name, because a counter that comes and goes looks like a restart. A gauge that alerts compare with another one is told
`along_with` it. How many are behind `(others)` is told in `sparrowmq_series_left_out`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from sparrowmq.stats import Figures, Histogram

OTHERS: Final = "(others)"
Row = tuple[tuple[str, ...], float]  # what each of the labels is, and the number
Rows = Iterable[Row]


class Page:
    """What is told in one visit.

    Args:
        common: labels that every series has, beside its own.
        most: series of a family that are told apart by labels of their own.
    """

    def __init__(self, common: Mapping[str, str], most: int) -> None:
        self._names = tuple(common)
        self._values = tuple(common.values())
        self._most = most
        self._families: list[Metric] = []
        self._left_out: list[Row] = []
        self._shown: dict[str, set[str]] = {}

    def gauge(self, name: str, meaning: str, value: float) -> None:
        """A number that rises and falls."""
        self._add(GaugeMetricFamily(name, meaning, labels=self._names), [((), value)])

    def counter(self, name: str, meaning: str, value: float) -> None:
        """A number that only rises; its name ends in `_total`."""
        self._add(CounterMetricFamily(name, meaning, labels=self._names), [((), value)])

    def gauges(
        self, name: str, meaning: str, labels: Sequence[str], rows: Rows, along_with: str = ""
    ) -> None:
        """Numbers told apart by labels, the greatest of them.

        Args:
            along_with: a family told before with the same first label. Whatever that shows is shown here, too, so
                that an alert which compares both misses nothing.
        """
        found = list(rows)
        leading = self._leading(found, along_with) if len(found) > self._most else []
        told = self._cut(name, found, greatest=True, leading=leading)
        self._shown[name] = {values[0] for values, _ in told if values}
        self._add(GaugeMetricFamily(name, meaning, labels=(*self._names, *labels)), told)

    def counters(self, name: str, meaning: str, labels: Sequence[str], rows: Rows) -> None:
        """The same of numbers that only rise."""
        told = self._cut(name, list(rows), greatest=False)
        self._add(CounterMetricFamily(name, meaning, labels=(*self._names, *labels)), told)

    def histogram(self, name: str, meaning: str, seen: Histogram, bounds: Sequence[int], unit: float) -> None:
        """How often values of each size were seen.

        Args:
            bounds: of the buckets, in the histogram's unit.
            unit: what one of that is in the metric's own.
        """
        self.histograms(name, meaning, (), [((), seen)], bounds, unit)

    def histograms(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str],
        rows: Iterable[tuple[tuple[str, ...], Histogram]],
        bounds: Sequence[int],
        unit: float,
    ) -> None:
        """The same told apart by labels, of which there are few."""
        family = HistogramMetricFamily(name, meaning, labels=(*self._names, *labels))
        for values, seen in rows:
            told = zip([f"{bound * unit:g}" for bound in bounds], seen.at_most(bounds), strict=True)
            ends = [*told, ("+Inf", int(seen.count))]
            family.add_metric((*self._values, *values), ends, int(seen.total) * unit)
        self._families.append(family)

    def figures(self, figures: Figures) -> None:
        """All of a server's figures, as `sparrowmq_...`."""
        for figure in figures:
            name = f"sparrowmq_{figure.name}"
            rows = list(figure.read())
            if figure.rate is not None:
                self.counters(f"{name}_total", figure.meaning, figure.labels, rows)
            else:
                self.gauges(name, figure.meaning, figure.labels, rows)

    def process(self) -> None:
        """Memory, CPU, descriptors and the start of the process, under the names that all programs have."""
        self._families += ProcessCollector(registry=None).collect()

    def collect(self) -> list[Metric]:
        """All families."""
        if self._left_out:
            family = GaugeMetricFamily(
                "sparrowmq_series_left_out",
                "series that share the one of (others): metricsMaxSeries",
                labels=(*self._names, "family"),
            )
            self._add(family, self._left_out)
            self._left_out = []
        return list(self._families)

    def text(self) -> bytes:
        """The page in Prometheus' text format 0.0.4."""
        return generate_latest(self)

    def _leading(self, rows: list[Row], family: str) -> list[Row]:
        """The greatest row of each first label that another family shows."""
        shown = self._shown.get(family, set())
        greatest: dict[str, Row] = {}
        for row in rows:
            label = row[0][0]
            if label in shown and (label not in greatest or greatest[label][1] < row[1]):
                greatest[label] = row
        return list(greatest.values())[: self._most]

    def _cut(self, name: str, rows: list[Row], greatest: bool, leading: Sequence[Row] = ()) -> list[Row]:
        if len(rows) <= self._most:
            return rows
        if greatest:
            led = {labels for labels, _ in leading}
            others = (row for row in rows if row[0] not in led)
            kept = [*leading, *nlargest(self._most - len(leading), others, key=lambda row: row[1])]
        else:
            kept = nsmallest(self._most, rows)
        rest = sum(value for _, value in rows) - sum(value for _, value in kept)
        self._left_out.append(((name,), len(rows) - len(kept)))
        return [*kept, ((OTHERS,) * len(rows[0][0]), rest)]

    def _add(self, family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> None:
        for labels, value in rows:
            family.add_metric((*self._values, *labels), value)
        self._families.append(family)
