"""A name server's metrics: its brokers, topics, connections and process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.endpoint import Answer, Endpoint, Query
from sparrowmq.metrics.latency_histograms import tell_latencies
from sparrowmq.metrics.page import Page
from sparrowmq.metrics.pauses import Pauses
from sparrowmq.metrics.pushing import push_to
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.namesrv.route_table import Routes
from sparrowmq.remoting.door import Door
from sparrowmq.remoting.latencies import Latencies


class MetricsPort:
    """Serves Prometheus, and pushes to OTLP if the settings ask for it.

    Args:
        door: already bound; None if metrics are only pushed.
        connections: returns the number of connections.
    """

    def __init__(
        self,
        door: Door | None,
        settings: NamesrvSettings,
        routes: Routes,
        connections: Callable[[], int],
        latencies: Latencies,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._connections = connections
        self._latencies = latencies
        self._pauses = Pauses()
        ok = self._ok  # a name server that answers is healthy and ready
        pages = {"/metrics": self._metrics, "/healthz": ok, "/readyz": ok}
        self._endpoint = Endpoint(door, pages) if door is not None else None
        place = f"{settings.bind_address}:{settings.port}"
        who = {"service.name": "sparrowmq-namesrv", "service.instance.id": place}
        self._push = push_to(settings, who, self._page, clock)

    async def run(self) -> None:
        """Run until cancelled. Raises: ConfigError, the port cannot be listened on."""
        async with asyncio.TaskGroup() as tasks:
            if self._endpoint is not None:
                tasks.create_task(self._endpoint.run())
            if self._push is not None:
                tasks.create_task(self._push.run())
            tasks.create_task(self._pauses.run())

    async def _metrics(self, _: Query) -> Answer:
        return Answer(200, (await self._page()).text(), CONTENT_TYPE_PLAIN_0_0_4)

    async def _page(self) -> Page:
        page = Page(
            {"node_type": "namesrv"} | dict(self._settings.metrics_labels), self._settings.metrics_series
        )
        clusters = self._routes.clusters().cluster_addr_table
        brokers = [((cluster,), len(names)) for cluster, names in clusters.items()]
        page.gauges("sparrowmq_namesrv_brokers", "brokers, by their names", ("cluster",), brokers)
        page.gauge("sparrowmq_namesrv_topics", "topics of all of them", len(self._routes.topics().topic_list))
        page.gauge("sparrowmq_connections", "clients and brokers that are connected", self._connections())
        tell_latencies(page, self._latencies)
        self._pauses.tell(page)
        page.process()
        return page

    async def _ok(self, _: Query) -> Answer:
        return Answer(200, b"ok\n")
