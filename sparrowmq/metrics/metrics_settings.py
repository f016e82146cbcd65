"""The settings of metrics, by 5.x's keys.

    metricsExporterType=PROM           /metrics, /healthz and /readyz at a port; DISABLE is the default
    metricsPromExporterPort=5557       which one; metricsPromExporterHost is the address, that of listenPort without it
    metricsOtlpEndpoint=http://...     sent there every minute as well, or instead (otlp.py)

There is no log-in, and metrics have the names of all topics and groups. So another address than loopback needs
`insecure=true`, even if the broker has access control.
Source: BrokerConfig and BrokerMetricsManager, Java 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from sparrowmq.errors import ConfigError
from sparrowmq.remoting.listener import Listener, is_loopback
from sparrowmq.settings.setting_kinds import TEXT, Kind, choice, integer
from sparrowmq.settings.settings import Settings, setting

PORT_KEY = "metricsPromExporterPort"


class Exporter(Enum):
    DISABLE = "DISABLE"
    PROM = "PROM"


def _parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [pair.partition(":") for pair in text.split(",") if pair]
    for name, colon, _ in pairs:
        if not colon or not name.isidentifier():
            raise ValueError(name)
    return tuple((name, value) for name, _, value in pairs)


def _render_labels(pairs: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{name}:{value}" for name, value in pairs)


def _parse_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(text)
    return text


_URL_KIND = Kind(_parse_url, "an address such as http://127.0.0.1:4318/v1/metrics")
_LABELS_KIND = Kind(_parse_labels, "name:value,name:value", _render_labels)


@dataclass(frozen=True, kw_only=True)
class MetricsSettings(Settings):
    metrics: Exporter = setting("metricsExporterType", Exporter.DISABLE, choice(Exporter))
    """PROM lets Prometheus read metrics over HTTP."""
    metrics_port: int = setting(PORT_KEY, 5557, integer(0, 65535))
    """Port for metrics and health checks. 0 takes a free port."""
    metrics_host: str | None = setting("metricsPromExporterHost", None, TEXT)
    """Address to listen on for metrics. By default the address that the server listens on."""
    metrics_labels: tuple[tuple[str, str], ...] = setting("metricsLabel", (), _LABELS_KIND)
    """Labels to add to every metric."""
    metrics_series: int = setting("metricsMaxSeries", 200, integer(1, 1_000_000))
    """Most topics, or pairs of group and topic, with series of their own. The others share one."""
    metrics_otlp: str | None = setting("metricsOtlpEndpoint", None, _URL_KIND)
    """Address to send metrics to, by OTLP over HTTP."""
    metrics_otlp_ms: int = setting("metricsOtlpIntervalMillis", 60_000, integer(100, 3_600_000))
    """Interval between two pushes by OTLP, in milliseconds."""

    @property
    def is_measured(self) -> bool:
        return self.metrics is not Exporter.DISABLE or self.metrics_otlp is not None


def metrics_listener(settings: MetricsSettings, host: str, insecure: bool) -> Listener | None:
    """Bind the port for Prometheus, by default at the server's own `host`; None if it is not wanted. Raises:
    ConfigError, the address is taken, or other machines can reach it."""
    if settings.metrics is Exporter.DISABLE:
        return None
    host = settings.metrics_host or host
    if not is_loopback(host) and not insecure:
        raise ConfigError(
            f"metrics on {host} show the names of all topics and groups to other machines, without a log-in: "
            "set metricsPromExporterHost=127.0.0.1, or insecure=true if you trust the network"
        )
    listener = Listener(host, settings.metrics_port, PORT_KEY)
    listener.bind()
    return listener
