"""Ready pipelines: what a data engineer would otherwise write around the source and the sink.

    from sparrowmq.spark.pipelines import table
    print(table("orders", "/lake/orders", name_server="127.0.0.1:9876", format="delta", once=True).line())

Each is also a command: `sparrowmq pipeline table orders --to /lake/orders --format delta --once`.
"""

from sparrowmq.spark.pipelines.archive import archive, archived
from sparrowmq.spark.pipelines.audit import Findings, audit
from sparrowmq.spark.pipelines.dead_letter_replay import dlq_replay
from sparrowmq.spark.pipelines.dedup import dedup
from sparrowmq.spark.pipelines.lag_report import Lag, lag
from sparrowmq.spark.pipelines.lake.address import Catalog
from sparrowmq.spark.pipelines.mirror import mirror
from sparrowmq.spark.pipelines.publish import publish
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.sql import Answer, sql
from sparrowmq.spark.pipelines.table import backfill, compact, preview, redrive, table
from sparrowmq.spark.pipelines.traces import trace

__all__ = [
    "Answer",
    "Catalog",
    "Findings",
    "Lag",
    "Report",
    "archive",
    "archived",
    "audit",
    "backfill",
    "compact",
    "dedup",
    "dlq_replay",
    "lag",
    "mirror",
    "preview",
    "publish",
    "redrive",
    "sql",
    "table",
    "trace",
]
