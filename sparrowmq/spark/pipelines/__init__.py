"""Ready pipelines: what a data engineer would otherwise write around the source and the sink.

    from sparrowmq.spark.pipelines import table
    print(table("orders", "/lake/orders", name_server="127.0.0.1:9876", format="delta", once=True).line())

Each is also a command: `sparrowmq pipeline table orders --to /lake/orders --format delta --once`.
"""

from sparrowmq.spark.pipelines.report import Report
from sparrowmq.spark.pipelines.table import preview, table

__all__ = ["Report", "preview", "table"]
