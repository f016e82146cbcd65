"""Lets Spark find `format("rocketmq")` by itself.

Spark looks through the Python path for top-level modules whose name begins with `pyspark_` and takes their
`DefaultSource`.
"""

try:
    from sparrowmq.spark.source_and_sink import RocketMQSource as DefaultSource
except ImportError:  # of a Spark that is too old, or without pyarrow; Spark would not tell
    from sparrowmq.spark.import_error_source import UnusableSource as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
