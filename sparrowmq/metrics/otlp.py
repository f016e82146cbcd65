"""The same metrics sent to a collector: OTLP over HTTP, every minute.

    page ── families as /metrics tells them ── OTLP's gauges, sums and histograms ── POST to metricsOtlpEndpoint

Names and labels are those of `/metrics`, so one alert fits both; what is the same for all of a server is also its
resource: `service.name`, `service.instance.id`. The exporter is OpenTelemetry's own: it repeats what a collector cannot
take now, and reads the environment's OTEL_EXPORTER_OTLP_HEADERS and _CERTIFICATE. While none can be reached, numbers go
on rising here, so what comes then has lost nothing but points in between.

This needs `pip install 'sparrowmq[otlp]'`. Source: OpenTelemetry's data model of metrics, 1.5.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.page import Page
from sparrowmq.version import VERSION

log = logging.getLogger(__name__)

_LIMIT_S: Final = 10.0
_SCOPE: Final = InstrumentationScope("sparrowmq", VERSION)
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class Push:
    """Sends a page now and then.

    Args:
        endpoint: where to, as http://127.0.0.1:4318/v1/metrics.
        who: what the resource says: service.name and so on.
        make: the page of this moment.
    """

    def __init__(
        self,
        endpoint: str,
        period_s: float,
        who: Mapping[str, str],
        make: Callable[[], Awaitable[Page]],
        clock: Clock,
    ) -> None:
        self._endpoint = endpoint
        self._period_s = period_s
        self._resource = Resource({**who, "service.version": VERSION})
        self._make = make
        self._clock = clock
        self._began_ns = time.time_ns()
        self._exporter = OTLPMetricExporter(endpoint, timeout=_LIMIT_S)
        self._reaches = True

    async def run(self) -> None:
        """Until cancelled; what cannot be sent is told in the log, once."""
        try:
            while True:
                await self._clock.sleep(self._period_s)
                await self.send()
        finally:
            self._exporter.shutdown()

    async def send(self) -> None:
        """Send what there is now."""
        families = (await self._make()).collect()
        metrics = [_metric(family, self._began_ns, time.time_ns()) for family in families]
        scopes = [ScopeMetrics(_SCOPE, [each for each in metrics if each is not None], "")]
        told = MetricsData([ResourceMetrics(self._resource, scopes, "")])
        reached = await asyncio.to_thread(self._exporter.export, told) is MetricExportResult.SUCCESS
        if reached and not self._reaches:
            log.info("metrics reach %s again", self._endpoint)
        elif not reached and self._reaches:
            log.warning(
                "metrics do not reach %s; they are tried again every %g s", self._endpoint, self._period_s
            )
        self._reaches = reached


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric | None:
    """A family as OTLP has it; None without any number."""
    if not family.samples:
        return None
    if family.type == "histogram":
        points = _histograms(family, began_ns, now_ns)
        return Metric(family.name, family.documentation, None, Histogram(points, _CUMULATIVE))
    numbers = [
        NumberDataPoint(sample.labels, began_ns, now_ns, float(sample.value))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    if family.type == "counter":
        name = f"{family.name}_total"
        return Metric(name, family.documentation, None, Sum(numbers, _CUMULATIVE, True))
    return Metric(family.name, family.documentation, None, Gauge(numbers))


def _histograms(family: Family, began_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """Prometheus counts all that is at most a bound, OTLP what lies between two."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        by_labels.setdefault(labels, []).append(sample)
    return [_point(dict(labels), samples, began_ns, now_ns) for labels, samples in by_labels.items()]


def _point(
    labels: Mapping[str, str], samples: Iterable[Sample], began_ns: int, now_ns: int
) -> HistogramDataPoint:
    buckets = [sample for sample in samples if sample.name.endswith("_bucket")]
    [total] = [sample.value for sample in samples if sample.name.endswith("_sum")]
    upto = [int(bucket.value) for bucket in buckets]
    return HistogramDataPoint(
        labels,
        began_ns,
        now_ns,
        count=upto[-1],
        sum=total,
        bucket_counts=[count - before for before, count in zip([0, *upto], upto, strict=False)],
        explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
        min=None,  # type: ignore[arg-type]  # of all time nobody knows
        max=None,  # type: ignore[arg-type]
    )
