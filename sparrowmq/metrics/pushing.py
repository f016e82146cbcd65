"""Whether a server sends its metrics somewhere by itself: what that needs is loaded by those who want it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.metrics.page import Page

if TYPE_CHECKING:
    from sparrowmq.metrics.otlp import Push


def push_to(
    settings: MetricsSettings, who: Mapping[str, str], make: Callable[[], Awaitable[Page]], clock: Clock
) -> Push | None:
    """What sends the pages that `make` makes; None where they are to be sent nowhere.

    Raises:
        ConfigError: OpenTelemetry's exporter is not installed.
    """
    if settings.metrics_otlp is None:
        return None
    try:
        from sparrowmq.metrics.otlp import Push
    except ImportError as error:
        raise ConfigError(
            f"metricsOtlpEndpoint needs OpenTelemetry's exporter ({error.name} is missing): "
            "pip install 'sparrowmq[otlp]'"
        ) from None
    return Push(settings.metrics_otlp, settings.metrics_otlp_ms / 1000, who, make, clock)
