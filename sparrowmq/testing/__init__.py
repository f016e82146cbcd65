"""A whole cluster inside the test's process, a clock that tests turn by hand, and the pytest plugin that offers both.

async with Cluster(tmp_path) as cluster:
    async with sparrowmq.connect(cluster.namesrv) as mq:
        await mq.send("orders", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrowmq.testing.clock import ManualClock
    from sparrowmq.testing.cluster import Cluster

__all__ = ["Cluster", "ManualClock"]


def __getattr__(name: str) -> Any:
    # Imported on first use: pytest loads the plugin of this package in every project that has it installed.
    if name == "Cluster":
        from sparrowmq.testing.cluster import Cluster

        return Cluster
    if name == "ManualClock":
        from sparrowmq.testing.clock import ManualClock

        return ManualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
