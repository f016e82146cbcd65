"""A name server's metrics: its brokers, topics, connections and process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.conditions import Conditions
from sparrowmq.metrics.denials import declare_denials
from sparrowmq.metrics.disks import declare_disks
from sparrowmq.metrics.figures import Rows
from sparrowmq.metrics.latency_histograms import declare_latencies
from sparrowmq.metrics.metrics_port import MetricsPort
from sparrowmq.metrics.server_figures import Port, declare_port
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.namesrv.route_table import Routes
from sparrowmq.remoting.door import Door
from sparrowmq.remoting.latencies import Latencies

if TYPE_CHECKING:  # a name server without access control loads nothing of it
    from sparrowmq.auth.audit_log import Audit


def metrics_port(
    conditions: Conditions,
    door: Door | None,
    settings: NamesrvSettings,
    routes: Routes,
    port: Port,
    latencies: Latencies,
    clock: Clock,
    audit: Audit | None = None,
) -> MetricsPort:
    """Serve Prometheus, and send to a collector if the settings ask for it.

    Args:
        conditions: what can be wrong; the other figures are added to theirs.
        door: already bound; None if metrics are only sent.
    """

    figures = conditions.figures

    def brokers() -> Rows:
        clusters = routes.clusters().cluster_addr_table
        return [((cluster,), len(names)) for cluster, names in clusters.items()]

    figures.gauges("sparrowmq_namesrv_brokers", "brokers by cluster", ("cluster",), brokers)
    figures.gauge("sparrowmq_namesrv_topics", "topics of all brokers", lambda: routes.topic_count)
    declare_port(figures, port)
    declare_disks(figures, _folders(settings))
    declare_latencies(figures, latencies)
    declare_denials(figures, audit)
    place = f"{settings.bind_address}:{settings.port}"
    program = {"service.name": "sparrowmq-namesrv", "service.instance.id": place}
    return MetricsPort(
        door, settings, figures, {"node_type": "namesrv"}, program, clock, ready=conditions.ready
    )


def _folders(settings: NamesrvSettings) -> dict[str, Path]:
    """Return the folders with files of the name server, by what they are for."""
    folders = {"kv": settings.kv_path.parent}
    return folders if settings.audit_path is None else folders | {"audit": settings.audit_path.parent}
