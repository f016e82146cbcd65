"""The broker's metrics as a part of it: a port, three pages, and what measures the loop meanwhile.

/metrics                    native.py; with ?compat=exporter exporter.py
/healthz                    the loop runs
/readyz                     some name server knows the broker, or it needs none
"""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from sparrowmq.broker.config import BrokerSettings
from sparrowmq.broker.metrics import exporter, native
from sparrowmq.broker.metrics.known import Known
from sparrowmq.broker.metrics.progress import Progress
from sparrowmq.broker.part import Part, Task
from sparrowmq.clock import Clock
from sparrowmq.metrics.endpoint import Answer, Endpoint, Query
from sparrowmq.metrics.page import Page
from sparrowmq.metrics.pauses import Pauses
from sparrowmq.remoting.door import Door
from sparrowmq.store.message_store import MessageStore


class MetricsPort:
    """Answers Prometheus.

    Args:
        door: bound.
    """

    def __init__(
        self, door: Door, settings: BrokerSettings, store: MessageStore, known: Known, clock: Clock
    ) -> None:
        self._settings = settings
        self._known = known
        self._progress = Progress(store, known.offsets)
        self._clock = clock
        self._pauses = Pauses()
        self._one_at_a_time = asyncio.Lock()
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}
        self._endpoint = Endpoint(door, pages)

    def part(self) -> Part:
        """It answers for as long as the broker runs."""
        return Part(tasks=(Task("metrics", self._endpoint.run), Task("pauses", self._pauses.run)))

    async def _metrics(self, query: Query) -> Answer:
        async with self._one_at_a_time:
            page = await (self._exporters() if query.get("compat") == "exporter" else self._native())
            return Answer(200, page.text(), CONTENT_TYPE_PLAIN_0_0_4)

    async def _native(self) -> Page:
        settings, known, now_ms = self._settings, self._known, self._clock.now_ms()
        who = {"cluster": settings.cluster, "node_type": "broker", "node_id": settings.name}
        page = Page(who | dict(settings.metrics_labels), settings.metrics_series)
        native.tell_names(page, known.topics, known.groups, settings.permission)
        native.tell_figures(page, known.figures)
        native.tell_clients(page, known.clients)
        await native.tell_messages(page, self._progress, known.consumption, settings.metrics_series, now_ms)
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
