"""The page /metrics: series in Prometheus's text format 0.0.4, and the figures of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from sparrowmq.loop.slices import Steps
from sparrowmq.metrics.figures import Kind
from sparrowmq.metrics.http_endpoint import Answer
from sparrowmq.metrics.series_limit import Series

# It reads the boot time of the machine once. Linux changes that time when the clock is set, so a new look at it would
# seem to be a restart of this process.
_PROCESS_COLLECTOR: Final = ProcessCollector(registry=None)
_SAMPLES_AT_ONCE: Final = 10  # in one step; a sample takes about 10 us


class _OneMetricCollector:
    def __init__(self, series: Series) -> None:
        self._series = series

    def collect(self) -> Iterator[Metric]:
        yield _metric(self._series)


def page(series: Iterable[Series]) -> Steps[Answer]:
    """Write the page in steps: 10,000 samples take 0.1 s of the processor."""
    chunks: list[bytes] = []
    for one_series in series:
        head = generate_latest(_OneMetricCollector(one_series._replace(rows=[], buckets=())))  # HELP and TYPE
        chunks.append(head)
        for piece in _split(one_series):
            chunks.append(generate_latest(_OneMetricCollector(piece))[len(head) :])
            yield
        yield
    return Answer(200, b"".join(chunks), CONTENT_TYPE_PLAIN_0_0_4)


def _split(series: Series) -> Iterator[Series]:
    """Yield some rows of a series, or a histogram of it, which has two dozen samples."""
    count = _SAMPLES_AT_ONCE
    for first in range(0, len(series.rows), count):
        yield series._replace(rows=series.rows[first : first + count], buckets=())
    for histogram in series.buckets:
        yield series._replace(rows=[], buckets=[histogram])


def process_series() -> Iterator[Series]:
    """Memory, CPU, descriptors and start of this process, under the names that all programs have."""
    for metric in _PROCESS_COLLECTOR.collect():
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
