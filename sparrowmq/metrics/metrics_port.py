"""The metrics of one program: a port with three paths, OTLP, and what measures the loop meanwhile.

/metrics            all figures; with ?compat=exporter those with the names of rocketmq-exporter
/healthz            200 while the loop runs
/readyz             200 while the program does its work, else 503 with the reason
"""

from __future__ import annotations

import asyncio
import gc
import platform
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from sparrowmq import kernel
from sparrowmq.core.stats import Histogram
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import run_to_end
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.http_endpoint import Answer, Endpoint, Query
from sparrowmq.metrics.metrics_page import page, process_series
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.metrics.series_limit import Series, all_series
from sparrowmq.remoting.listener import Listener
from sparrowmq.version import VERSION

if TYPE_CHECKING:
    from sparrowmq.metrics.otlp import Push

_LOOP_CHECK_PERIOD_S: Final = 1.0
_REST_FACTOR: Final = 4  # times as long as the page took
_MAX_REST_S: Final = 1.0  # a scrape has 10 s by default


def _push() -> type[Push]:
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
    is_compiled = "true" if kernel.is_compiled() else "false"
    labels = (VERSION, platform.python_version(), is_compiled)
    names = ("version", "python", "is_compiled")
    figures.gauges("sparrowmq_build_info", "1; the labels say what runs", names, lambda: [(labels, 1)])


async def _always_ready() -> None:
    """For a program that is ready when it answers."""


class MetricsPort:
    """Answers Prometheus and sends to a collector. Raises: ConfigError, OpenTelemetry's exporter is needed and absent.

    `listener` is bound, or an endpoint that runs and shows these pages meanwhile; None if metrics are only sent.
    `labels` are added to each series. `program` names the program to a collector: service.name and so on. `ready`
    raises SparrowError with the reason if the program is not ready. `lookup` is entered while the figures are read.
    `exporter` has the figures with the names of rocketmq-exporter. `tasks` are to run as long as the program runs, by
    name.
    """

    def __init__(
        self,
        listener: Listener | Endpoint | None,
        settings: MetricsSettings,
        figures: Figures,
        labels: Mapping[str, str],
        program: Mapping[str, str],
        clock: Clock,
        *,
        ready: Callable[[], Awaitable[object]] = _always_ready,
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
        self._shared_page, self._shared_exporter_page = (
            SharedPage(self._make_page),
            SharedPage(self._make_exporter_page),
        )
        _declare_build(figures)
        figures.gauge(
            "sparrowmq_time_seconds", "time of day by the clock of this machine", lambda: clock.now_ms() / 1000
        )
        pauses = Pauses(figures)
        self.tasks: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {"pauses": pauses.run}
        paths = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}
        if isinstance(listener, Endpoint):
            self.tasks["metrics"] = partial(listener.show, paths)
        elif listener is not None:
            self.tasks["metrics"] = Endpoint(listener, paths).run
        if settings.metrics_otlp is not None:
            period_s = settings.metrics_otlp_ms / 1000
            self.tasks["metrics by OTLP"] = _push()(settings.metrics_otlp, period_s, program, self._series, clock).run

    async def _series(self) -> list[Series]:
        return [*await self._read(self._figures, self._labels), *process_series()]

    async def _read(self, figures: Figures, labels: Mapping[str, str]) -> list[Series]:
        async with self._one_at_a_time, self._lookup():
            common = {**labels, **dict(self._settings.metrics_labels)}
            return await run_to_end(all_series(figures, common, self._settings.metrics_series))

    async def _metrics(self, query: Query) -> Answer:
        if self._exporter is not None and query.get("compat") == "exporter":
            return await self._shared_exporter_page.get()
        return await self._shared_page.get()

    async def _make_page(self) -> Answer:
        return await run_to_end(page(await self._series()))

    async def _make_exporter_page(self) -> Answer:
        assert self._exporter is not None
        return await run_to_end(page(await self._read(self._exporter, {})))

    async def _health(self, _: Query) -> Answer:
        return Answer(200, b"ok\n")

    async def _readiness(self, _: Query) -> Answer:
        text = await self._ready()
        return Answer(200, text.encode() if isinstance(text, str) else b"ok\n")


class Pauses:
    """The pauses of the event loop, measured while `run` runs, and only for a server with metrics. Every second a timer
    measures the time that a request would have waited; `gc.callbacks` measure garbage collections."""

    def __init__(self, figures: Figures) -> None:
        self._delays = Histogram()
        self._gc_pauses = Histogram()
        self._collecting_since = 0.0
        figures.time_histogram(
            "sparrowmq_loop_lag_seconds", "delay of a timer; requests wait as long", lambda: self._delays
        )
        figures.time_histogram("sparrowmq_gc_pause_seconds", "pauses for garbage collection", lambda: self._gc_pauses)

    async def run(self) -> None:
        gc.callbacks.append(self._on_collection)
        loop = asyncio.get_running_loop()
        try:
            while True:
                due = loop.time() + _LOOP_CHECK_PERIOD_S
                await asyncio.sleep(_LOOP_CHECK_PERIOD_S)
                self._delays.record(int((loop.time() - due) * 1e6))
        finally:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = perf_counter()
        else:
            self._gc_pauses.record(int((perf_counter() - self._collecting_since) * 1e6))


class SharedPage:
    """A page that costs much: visitors of one moment share it, and it is made for at most a fifth of the time. A scrape
    of a large broker takes 50 ms of its processor, and the port has no log-in: one program that asks again and again
    would take half of the broker. A visitor gets only figures that were read after the request."""

    def __init__(self, make: Callable[[], Awaitable[Answer]]) -> None:
        self._make = make
        self._make_lock = asyncio.Lock()
        self._answer: Answer | None = None
        self._began_s = 0.0
        self._next_s = 0.0

    async def get(self) -> Answer:
        """Return the page as of now. Raises: the error of its making."""
        now_s = asyncio.get_running_loop().time
        asked_s = now_s()
        async with self._make_lock:
            if self._answer is not None and self._began_s >= asked_s:
                return self._answer
            await asyncio.sleep(self._next_s - now_s())
            self._answer, self._began_s = None, now_s()
            try:
                self._answer = await self._make()
                return self._answer
            finally:
                self._next_s = now_s() + min(_REST_FACTOR * (now_s() - self._began_s), _MAX_REST_S)
