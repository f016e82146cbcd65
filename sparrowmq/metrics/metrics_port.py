"""The metrics of one program: a port with three paths, OTLP, and what measures the loop meanwhile.

/metrics            all figures; with ?compat=exporter those with the names of rocketmq-exporter
/healthz            200 while the loop runs
/readyz             200 while the program does its work, else 503 with the reason
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrowmq.core import stats
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import to_end
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.http_endpoint import Answer, Endpoint, Query
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.metrics.pauses import Pauses
from sparrowmq.metrics.prometheus_text import page, process_series
from sparrowmq.metrics.series import Series, all_series
from sparrowmq.metrics.shared_page import SharedPage
from sparrowmq.remoting.door import Door
from sparrowmq.version import VERSION

if TYPE_CHECKING:
    from sparrowmq.metrics.otlp import Push


def _push() -> type[Push]:
    """Load OpenTelemetry, which only senders need."""
    try:
        from sparrowmq.metrics.otlp import Push
    except ImportError as error:
        raise ConfigError(
            f"metricsOtlpEndpoint needs OpenTelemetry's exporter ({error.name} is missing): "
            "pip install 'sparrowmq[otlp]'"
        ) from None
    return Push


def _declare_build(figures: Figures) -> None:
    """Declare the version of the program. The value is always 1; a query joins it to other series."""
    is_compiled = "true" if not str(stats.__file__).endswith(".py") else "false"
    labels = (VERSION, platform.python_version(), is_compiled)
    figures.gauges(
        "sparrowmq_build_info",
        "1; the labels say what runs",
        ("version", "python", "is_compiled"),
        lambda: [(labels, 1)],
    )


async def _always() -> None:
    """For a program that is ready when it answers."""


class MetricsPort:
    """Answers Prometheus and sends to a collector.

    Args:
        door: bound, or an endpoint that runs and shows these pages meanwhile; None if metrics are only sent.
        labels: of each series, beside its own.
        program: its name and instance for a collector: service.name and so on.
        ready: raises SparrowError with the reason if the program is not ready.
        lookup: what the figures need while they are read; entered once at a time.
        exporter: the figures with the names of rocketmq-exporter.
    Attributes:
        tasks: to run as long as the program runs, by name.
    Raises:
        ConfigError: metrics are to be sent, and OpenTelemetry's exporter is not installed.
    """

    def __init__(
        self,
        door: Door | Endpoint | None,
        settings: MetricsSettings,
        figures: Figures,
        labels: Mapping[str, str],
        program: Mapping[str, str],
        clock: Clock,
        *,
        ready: Callable[[], Awaitable[object]] = _always,
        lookup: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        exporter: Figures | None = None,
    ) -> None:
        self._settings = settings
        self._figures = figures
        self._labels = labels
        self._ready = ready
        self._lookup = lookup
        self._exporter = exporter
        self._one_at_a_time = asyncio.Lock()
        self._own, self._of_exporter = SharedPage(self._own_page), SharedPage(self._page_of_exporter)
        _declare_build(figures)
        figures.gauge(
            "sparrowmq_time_seconds",
            "time of day by the clock of this machine",
            lambda: clock.now_ms() / 1000,
        )
        pauses = Pauses(figures)
        self.tasks: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {"pauses": pauses.run}
        paths = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}
        if isinstance(door, Endpoint):
            self.tasks["metrics"] = partial(door.show, paths)
        elif door is not None:
            self.tasks["metrics"] = Endpoint(door, paths).run
        if settings.metrics_otlp is not None:
            period_s = settings.metrics_otlp_ms / 1000
            self.tasks["metrics by OTLP"] = _push()(
                settings.metrics_otlp, period_s, program, self._series, clock
            ).run

    async def _series(self) -> list[Series]:
        return [*await self._read(self._figures, self._labels), *process_series()]

    async def _read(self, figures: Figures, labels: Mapping[str, str]) -> list[Series]:
        async with self._one_at_a_time, self._lookup():
            common = {**labels, **dict(self._settings.metrics_labels)}
            return await to_end(all_series(figures, common, self._settings.metrics_series))

    async def _metrics(self, query: Query) -> Answer:
        if self._exporter is not None and query.get("compat") == "exporter":
            return await self._of_exporter.get()
        return await self._own.get()

    async def _own_page(self) -> Answer:
        return await to_end(page(await self._series()))

    async def _page_of_exporter(self) -> Answer:
        assert self._exporter is not None
        return await to_end(page(await self._read(self._exporter, {})))

    async def _health(self, _: Query) -> Answer:
        return Answer(200, b"ok\n")

    async def _readiness(self, _: Query) -> Answer:
        said = await self._ready()
        return Answer(200, said.encode() if isinstance(said, str) else b"ok\n")
