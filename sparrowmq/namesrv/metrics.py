"""A name server's metrics: what it knows, and how its process is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from sparrowmq.metrics.endpoint import Answer, Endpoint, Query
from sparrowmq.metrics.page import Page
from sparrowmq.metrics.pauses import Pauses
from sparrowmq.namesrv.config import NamesrvSettings
from sparrowmq.namesrv.routes import Routes
from sparrowmq.remoting.door import Door


class MetricsPort:
    """Answers Prometheus.

    Args:
        door: bound.
        connections: how many there are.
    """

    def __init__(
        self, door: Door, settings: NamesrvSettings, routes: Routes, connections: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._connections = connections
        self._pauses = Pauses()
        ok = self._ok  # who answers is healthy, and ready
        self._endpoint = Endpoint(door, {"/metrics": self._metrics, "/healthz": ok, "/readyz": ok})

    async def run(self) -> None:
        """Until cancelled. Raises: ConfigError, nobody can listen."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._endpoint.run())
            tasks.create_task(self._pauses.run())

    async def _metrics(self, _: Query) -> Answer:
        page = Page(
            {"node_type": "namesrv"} | dict(self._settings.metrics_labels), self._settings.metrics_series
        )
        clusters = self._routes.clusters().cluster_addr_table
        brokers = [((cluster,), len(names)) for cluster, names in clusters.items()]
        page.gauges("sparrowmq_namesrv_brokers", "brokers, by their names", ("cluster",), brokers)
        page.gauge("sparrowmq_namesrv_topics", "topics of all of them", len(self._routes.topics().topic_list))
        page.gauge("sparrowmq_connections", "clients and brokers that are connected", self._connections())
        self._pauses.tell(page)
        page.process()
        return Answer(200, page.text(), CONTENT_TYPE_PLAIN_0_0_4)

    async def _ok(self, _: Query) -> Answer:
        return Answer(200, b"ok\n")
