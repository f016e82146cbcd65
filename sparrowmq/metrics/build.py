"""The version of a program as a metric."""

from __future__ import annotations

import platform

from sparrowmq import stats
from sparrowmq.metrics.figures import Figures
from sparrowmq.version import VERSION


def declare_build(figures: Figures) -> None:
    """Declare it. The value is always 1; a query joins it to other series."""
    is_compiled = "true" if not str(stats.__file__).endswith(".py") else "false"
    labels = (VERSION, platform.python_version(), is_compiled)
    figures.gauges(
        "sparrowmq_build_info",
        "1; the labels say what runs",
        ("version", "python", "is_compiled"),
        lambda: [(labels, 1)],
    )
