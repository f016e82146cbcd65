"""The broker's metrics as a part of it: a port, three pages, what measures the loop meanwhile, and OTLP.

/metrics                    native.py; with ?compat=exporter exporter.py
/healthz                    the loop runs
/readyz                     some name server knows the broker, or it needs none
"""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.metrics import exporter, native
from sparrowmq.broker.metrics.consumer_lag import Progress
from sparrowmq.broker.metrics.measured_parts import Known
from sparrowmq.broker.part import Part, Task
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.endpoint import Answer, Endpoint, Query
from sparrowmq.metrics.latency_histograms import tell_latencies
from sparrowmq.metrics.page import Page
from sparrowmq.metrics.pauses import Pauses
from sparrowmq.metrics.pushing import push_to
from sparrowmq.remoting.door import Door
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.store.message_store import MessageStore

# In microseconds: 0.1 ms to 10 s.
_SYNC_BOUNDS: Final = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)


class MetricsPort:
    """Answers Prometheus.

    Args:
        door: bound; None where nobody comes, and metrics are only sent.
    Raises:
        ConfigError: they are to be sent, and what sends them is not installed.
    """

    def __init__(
        self,
        door: Door | None,
        settings: BrokerSettings,
        store: MessageStore,
        known: Known,
        clock: Clock,
        latencies: Latencies,
    ) -> None:
        self._latencies = latencies
        self._settings = settings
        self._known = known
        self._store = store
        self._progress = Progress(store, known.offsets)
        self._clock = clock
        self._pauses = Pauses()
        self._one_at_a_time = asyncio.Lock()
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}
        self._endpoint = Endpoint(door, pages) if door is not None else None
        who = {"service.name": "sparrowmq-broker", "service.instance.id": settings.name}
        self._push = push_to(settings, who, self._page, clock)

    def part(self) -> Part:
        """It answers and sends for as long as the broker runs."""
        tasks = [Task("pauses", self._pauses.run)]
        if self._endpoint is not None:
            tasks.append(Task("metrics", self._endpoint.run))
        if self._push is not None:
            tasks.append(Task("metrics by OTLP", self._push.run))
        return Part(tasks=tuple(tasks))

    async def _metrics(self, query: Query) -> Answer:
        async with self._one_at_a_time:
            page = await (self._exporters() if query.get("compat") == "exporter" else self._native())
            return Answer(200, page.text(), CONTENT_TYPE_PLAIN_0_0_4)

    async def _page(self) -> Page:
        async with self._one_at_a_time:
            return await self._native()

    async def _native(self) -> Page:
        settings, known, now_ms = self._settings, self._known, self._clock.now_ms()
        who = {"cluster": settings.cluster, "node_type": "broker", "node_id": settings.name}
        page = Page(who | dict(settings.metrics_labels), settings.metrics_series)
        native.tell_names(page, known.topics, known.groups, settings.permission)
        native.tell_figures(page, known.figures)
        await native.tell_messages(page, self._progress, known.consumption, settings.metrics_series, now_ms)
        native.tell_clients(page, known.clients)
        tell_latencies(page, self._latencies)
        syncs = "what it took to have the log on disk, for all that had come meanwhile"
        page.histogram("sparrowmq_sync_seconds", syncs, self._store.sync_times, _SYNC_BOUNDS, 1e-6)
        self._pauses.tell(page)
        page.process()
        return page

    async def _exporters(self) -> Page:
        settings, known, now_ms = self._settings, self._known, self._clock.now_ms()
        page = Page(dict(settings.metrics_labels), settings.metrics_series)
        exporter.tell_broker(page, settings, known.status.table(), known.figures)
        await exporter.tell_topics(page, settings, self._progress)
        await exporter.tell_groups(page, settings, self._progress, known.clients, known.consumption, now_ms)
        return page

    async def _health(self, _: Query) -> Answer:
        return Answer(200, b"ok\n")

    async def _readiness(self, _: Query) -> Answer:
        if self._known.registration.is_known:
            return Answer(200, b"ok\n")
        return Answer(503, b"no name server knows this broker yet, so no client finds it\n")
