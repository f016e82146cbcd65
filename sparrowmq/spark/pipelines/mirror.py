"""The pipeline `mirror`: topics of one cluster, kept as copies in another.

    orders at 10.0.0.1:9876  ->  batches of Spark  ->  orders at 10.1.0.1:9876

A copy has the body, keys, tags, properties, id (`msgId`) and born time of its original; store time and offset are its
own. Each queue goes to one queue, in its order. `message_copies.py` has how nothing is lost and nothing comes twice.
Either end may be one of Apache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.pipelines.copying.copying_stream import Flow, look, routed
from sparrowmq.spark.pipelines.running.own_session import own_session
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mirror(
    topic: str,
    *,
    name_server: str,
    to: str,
    state: str | Path,
    to_topic: str | None = None,
    to_cluster: str | None = None,
    chained: bool = False,
    once: bool = False,
    every: str = "1 second",
    options: Mapping[str, str] | None = None,
    to_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    say: Say = to_stderr,
    metrics: str | None = None,
) -> Report:
    """Copy what topics have, and get, to another cluster; returns when all is there (`once`), or when it is stopped.

    Args:
        topic: one, or several as `a,b`. to_topic: another name there, for one topic.
        to: name servers of the other cluster. to_cluster: in which of its clusters topics are made, if it has several.
        state: a folder; it belongs to this mirror, and without it a mirror begins anew.
        chained: copy also what a mirror has brought.
        options, to_options: of the source, and of the sink: `tags`, `accessKey`, ...
        dry_run: say what would be copied, and do nothing.
        metrics: where Prometheus can read how it is doing, `host:port`.
    Raises:
        ConfigError: an argument is wrong, or the state is that of another mirror.
        StreamingQueryException: the query failed; run it again to go on.
    """
    route = routed(topic, name_server, to, to_topic, options, to_options)
    kept = State(state, {"topic": topic, "from": name_server, "to": to, "to_topic": to_topic or topic})
    if dry_run:
        return look(route, say)
    route.make(to_cluster, say)
    flow = Flow(route, kept, say, chained=chained)
    return flow.run(own_session(spark), once=once, every=every, metrics=metrics)
