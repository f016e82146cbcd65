"""The time that requests take, as 5.x's exporter shows it.

Unlike 5.x's, the time begins when a request was read and ends when its answer is made. There are also buckets below a
millisecond, as most requests are that fast. Source: RemotingMetricsConstant and RemotingMetricsManager, Java 5.3.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.metrics.figures import Figures, Histograms
from sparrowmq.remoting.latencies import Latencies, name_of, response_name

LABELS: Final = ("protocol_type", "request_code", "response_code", "is_long_polling")
# In microseconds: 5.x's bounds of 1, 3, 5, 7, 10, 100 ms and 1, 2, 3 s, and some between and below.
_BOUNDS: Final = (
    *(100, 300, 1000, 3000, 5000, 7000, 10_000, 30_000),
    *(100_000, 300_000, 1_000_000, 2_000_000, 3_000_000, 10_000_000),
)


def declare_latencies(figures: Figures, latencies: Latencies) -> None:
    """Declare the histogram in milliseconds, by request and response code."""

    def read() -> Histograms:
        for code, response_code, held, seen in latencies.kinds():
            is_held = "true" if held else "false"
            yield ("remoting", name_of(code).lower(), response_name(response_code), is_held), seen

    figures.histograms(
        "rocketmq_rpc_latency_milliseconds",
        "time from the arrival of a request to its answer",
        LABELS,
        read,
        _BOUNDS,
        1e-3,
    )
    figures.counters(
        "sparrowmq_long_steps_total",
        "times that a request's handler kept all other requests waiting for more than 5 ms",
        ("request_code",),
        lambda: [((name_of(code).lower(),), times) for code, times in sorted(latencies.long_steps.items())],
    )
