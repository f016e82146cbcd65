"""Lets Spark find `format("rocketmq")` by itself.

Spark looks through the Python path for top-level modules whose name begins with `pyspark_` and takes their
`DefaultSource`.
"""

from sparrowmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
