"""RocketMQ topics as Spark tables: the data source, its planning, and ready pipelines.

spark = sparrowmq.spark.session()
spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("topic", "orders").load().show()
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrowmq.spark.register import session as session


if getattr(sys.modules["__main__"].__spec__, "name", "") == "pyspark.daemon":  # a worker of Spark's own daemon
    from sparrowmq.spark.worker_daemon import silence

    silence(sys.modules["__main__"])


def __getattr__(name: str) -> Any:
    # Only a session loads Spark, and not every process that reads a topic.
    if name == "session":
        from sparrowmq.spark.register import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
