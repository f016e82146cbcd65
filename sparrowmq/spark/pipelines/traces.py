"""The pipeline `trace`: what producers and consumers reported of their messages, as tables of latencies.

    send      from a producer's call to the broker's answer
    deliver   from then until a consumer of the group began with it, its first try
    handle    how long the handler took

The trace topic (RMQ_SYS_TRACE_TOPIC) is read once, as of one moment; brokers have it with traceTopicEnable=true.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages import trace as traces
from sparrowmq.protocol.messages.trace import PubTrace, SubAfterTrace, SubBeforeTrace, Trace
from sparrowmq.protocol.names import TRACE_TOPIC
from sparrowmq.spark.options import null_bad_records
from sparrowmq.spark.pipelines.running.folders import check_absent, new_folder
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.session import own_session
from sparrowmq.spark.pipelines.running.span import offsets_by_topic, since_until, span_of
from sparrowmq.spark.pipelines.sql import Answer

_FIELDS: Final = {
    "step": ("string", pa.string()),
    "at_ms": ("bigint", pa.int64()),
    "topic": ("string", pa.string()),
    "group": ("string", pa.string()),
    "msg_id": ("string", pa.string()),
    "request_id": ("string", pa.string()),
    "cost_ms": ("bigint", pa.int64()),
    "retries": ("int", pa.int32()),
    "is_success": ("boolean", pa.bool_()),
}
_DDL: Final = ", ".join(f"`{name}` {kind}" for name, (kind, _) in _FIELDS.items())
_ARROW: Final = pa.schema([(name, kind) for name, (_, kind) in _FIELDS.items()])


def trace(
    *,
    name_server: str,
    topic: str = TRACE_TOPIC,
    since: str | None = None,
    until: str | None = None,
    to: str | Path | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    say: Say = to_stderr,
) -> Answer:
    """Latencies by step, topic and group: how many, how many failed, and the median, 99 of 100 and most, in ms.

    Args:
        since, until: only reports stored at or after the one, and before the other.
        to: a folder that is not there yet, for the single reports as Parquet files.
    Raises: NoRoute, there is no such topic; ConfigError, the folder is there.
    """
    if to is not None:
        check_absent(to)
    source_options = {**(options or {}), "nameServer": name_server, "topic": topic}
    source_options = null_bad_records(source_options) | since_until(
        since, until
    )  # everybody may send to the trace topic
    begin, session, span = time.monotonic(), own_session(spark), span_of(source_options)
    messages = session.read.format("rocketmq").options(**span.batch_options(source_options), columns="body").load()
    reports = messages.mapInArrow(_decode_batches, _DDL).persist()
    if to is not None:
        with new_folder(to) as folder:
            reports.write.parquet(str(folder))
    unreadable = reports.where("step = 'unreadable'").count()
    if unreadable:
        say(f"{unreadable:,} trace messages cannot be read")
    report = Report(read=span.rows, errors=unreadable, offsets=offsets_by_topic(span.end))
    report.seconds = time.monotonic() - begin
    return Answer(latencies(reports), report, {topic: f"{span.rows:,} trace messages"})


def latencies(reports: DataFrame) -> DataFrame:
    """Reports as one line for each step, topic and group."""
    sends = reports.where("step = 'send'").dropDuplicates(["msg_id"])
    begins = reports.where("step = 'begin'").dropDuplicates(["request_id", "msg_id"])
    sent_times = sends.select("msg_id", "topic", (f.col("at_ms") + f.col("cost_ms")).alias("sent_ms"))
    received = begins.drop("topic").join(sent_times, "msg_id", "left")
    delivered = received.where("retries = 0 and sent_ms is not null").withColumn(
        "cost_ms", f.greatest(f.lit(0), f.col("at_ms") - f.col("sent_ms"))
    )
    consumers = received.select("request_id", "msg_id", "topic", "group")
    ends = reports.where("step = 'end'").drop("topic", "group")
    handled = ends.join(consumers, ["request_id", "msg_id"], "left")
    steps = (("1 send", sends), ("2 deliver", delivered), ("3 handle", handled))
    lines = [_latency_line(name, rows) for name, rows in steps]
    table = lines[0].unionByName(lines[1]).unionByName(lines[2]).orderBy("topic", "step", "group")
    return table.withColumn("step", f.expr("substr(step, 3)"))


def _latency_line(step: str, rows: DataFrame) -> DataFrame:
    cost = f.col("cost_ms")
    return (
        rows.groupBy("topic", "group")
        .agg(
            f.count("*").alias("count"),
            f.count_if(~f.coalesce(f.col("is_success"), f.lit(True))).alias("failed"),
            f.percentile(cost, 0.5).alias("p50_ms"),
            f.percentile(cost, 0.99).alias("p99_ms"),
            f.max(cost).alias("max_ms"),
        )
        .select(f.lit(step).alias("step"), "*")
    )


def _decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [row for body in batch.column("body").to_pylist() for row in _trace_rows(body)]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def _trace_rows(body: bytes | None) -> list[dict[str, Any]]:
    if body is None:
        return [{"step": "unreadable"}]
    try:
        rows = map(_trace_row, traces.decode(body.decode()))
        return [row for row in rows if row is not None]
    except (RemoteProtocolError, UnicodeDecodeError):
        return [{"step": "unreadable"}]


def _trace_row(entry: Trace) -> dict[str, Any] | None:
    match entry:
        case PubTrace():
            step = {"step": "send", "at_ms": entry.time_ms, "topic": entry.topic, "group": entry.group}
            return step | {"msg_id": entry.msg_id, "cost_ms": entry.cost_ms, "is_success": entry.is_success}
        case SubBeforeTrace():
            step = {"step": "begin", "at_ms": entry.time_ms, "group": entry.group, "msg_id": entry.msg_id}
            return step | {"request_id": entry.request_id, "retries": entry.retries}
        case SubAfterTrace():
            step = {"step": "end", "at_ms": entry.time_ms, "group": entry.group, "msg_id": entry.msg_id}
            return step | {"request_id": entry.request_id, "cost_ms": entry.cost_ms, "is_success": entry.is_success}
    return None
