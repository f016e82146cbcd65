"""The same metrics sent to a collector: OTLP over HTTP, every minute.

    series, as /metrics shows them ── OTLP's gauges, sums and histograms ── POST to metricsOtlpEndpoint

Names and labels are those of `/metrics`, so one alert fits both. The exporter is OpenTelemetry's own: it sends again
after a failure, and reads OTEL_EXPORTER_OTLP_HEADERS and _CERTIFICATE in the environment. Counters go on rising while
no collector can be reached. Source: OpenTelemetry's data model of metrics, 1.5.
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

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.series_limit import Buckets, Series
from sparrowmq.version import VERSION

log = logging.getLogger(__name__)

_EXPORT_TIMEOUT_S: Final = 10.0
_SCOPE: Final = InstrumentationScope("sparrowmq", VERSION)
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class Push:
    """Sends all series now and then, to an endpoint such as http://127.0.0.1:4318/v1/metrics. `resource` has the
    attributes of the program: service.name and so on."""

    def __init__(
        self,
        endpoint: str,
        period_s: float,
        resource: Mapping[str, str],
        read_series: Callable[[], Awaitable[Iterable[Series]]],
        clock: Clock,
    ) -> None:
        self._endpoint = endpoint
        self._period_s = period_s
        self._resource = Resource({**resource, "service.version": VERSION})
        self._read_series = read_series
        self._clock = clock
        self._began_ns = time.time_ns()
        self._exporter = OTLPMetricExporter(endpoint, timeout=_EXPORT_TIMEOUT_S)
        self._is_reachable = True

    async def run(self) -> None:
        """Run until cancelled. The log has a line when sending fails, and one when it works again."""
        try:
            while True:
                await self._clock.sleep(self._period_s)
                await self.send()
        finally:
            self._exporter.shutdown()

    async def send(self) -> None:
        metrics = [
            _metric(series, self._began_ns, time.time_ns())
            for series in await self._read_series()
            if series.rows or series.buckets
        ]
        scopes = [ScopeMetrics(_SCOPE, metrics, "")]
        export_data = MetricsData([ResourceMetrics(self._resource, scopes, "")])
        is_exported = await asyncio.to_thread(self._exporter.export, export_data) is MetricExportResult.SUCCESS
        if is_exported and not self._is_reachable:
            log.info("metrics reach %s again", self._endpoint)
        elif not is_exported and self._is_reachable:
            log.warning("metrics do not reach %s; they are tried again every %g s", self._endpoint, self._period_s)
        self._is_reachable = is_exported


def _metric(series: Series, began_ns: int, now_ns: int) -> Metric:
    data: Gauge | Sum | Histogram
    if series.kind == "histogram":
        points = [
            _histogram_point(dict(zip(series.labels, values, strict=True)), buckets, began_ns, now_ns)
            for values, buckets in series.buckets
        ]
        data = Histogram(points, _CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(dict(zip(series.labels, values, strict=True)), began_ns, now_ns, float(number))
            for values, number in series.rows
        ]
        data = Sum(numbers, _CUMULATIVE, True) if series.kind == "counter" else Gauge(numbers)
    return Metric(series.name, series.help, None, data)


def _histogram_point(labels: Mapping[str, str], buckets: Buckets, began_ns: int, now_ns: int) -> HistogramDataPoint:
    """Prometheus counts the values up to each bound, OTLP those between two bounds."""
    cumulative = [*buckets.at_most, buckets.size]
    return HistogramDataPoint(
        labels,
        began_ns,
        now_ns,
        count=buckets.size,
        sum=buckets.total,
        bucket_counts=[count - before for before, count in zip([0, *cumulative], cumulative, strict=False)],
        explicit_bounds=buckets.bounds,
        min=None,  # type: ignore[arg-type]  # not known of all time
        max=None,  # type: ignore[arg-type]
    )
