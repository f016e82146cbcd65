"""The broker's metrics as a part of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.group_lags import GroupLags
from sparrowmq.broker.metrics import exporter_names, names_of_5x
from sparrowmq.broker.metrics.consumer_lag import Progress
from sparrowmq.broker.metrics.measured_parts import Measured
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.pop.pop_table import PopTable
from sparrowmq.broker.store import folders
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.disks import declare_disks
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.http_endpoint import Endpoint
from sparrowmq.metrics.metrics_port import MetricsPort
from sparrowmq.remoting.door import Door
from sparrowmq.remoting.latencies import Latencies


def metrics_part(
    door: Door | Endpoint | None,
    settings: BrokerSettings,
    parts: Measured,
    pops: PopTable,
    latencies: Latencies,
    clock: Clock,
    ready: Callable[[], Awaitable[str]],
) -> Part:
    """Answers Prometheus and sends to a collector, as the settings say.

    Args:
        door: as of a MetricsPort.
        ready: returns the text of /readyz. Raises: SparrowError, the broker cannot do its work.
    Raises:
        ConfigError: metrics are to be sent, and OpenTelemetry's exporter is not installed.
    """
    lags = GroupLags(parts.store, parts.topics, parts.offsets, parts.clients, pops)
    progress, of_exporter = Progress(parts.store, parts.offsets, lags, parts.clients), Figures()
    names_of_5x.declare(parts, progress, settings, latencies, clock)
    declare_disks(parts.figures, folders(parts.store) | _audit_folder(settings))
    if not settings.is_slave:  # Apache's exporter asks masters only
        exporter_names.declare(of_exporter, parts, progress, settings, clock)
    role = "slave" if settings.is_slave else "master"

    port = MetricsPort(
        door,
        settings,
        parts.figures,
        {"cluster": settings.cluster, "node_type": "broker", "node_id": settings.name, "role": role},
        {
            "service.name": "sparrowmq-broker",
            "service.instance.id": f"{settings.name}:{settings.broker_id}",
        },
        clock,
        ready=ready,
        lookup=lambda: progress.looked_up(settings.metrics_series),
        exporter=of_exporter,
    )
    return Part(tasks=tuple(Task(name, start) for name, start in port.tasks.items()))


def _audit_folder(settings: BrokerSettings) -> dict[str, str | Path]:
    return {} if settings.audit_path is None else {"audit": settings.audit_path.parent}
