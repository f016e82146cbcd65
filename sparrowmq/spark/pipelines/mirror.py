"""The pipeline `mirror`: topics of one cluster, kept as copies in another.

    orders at 10.0.0.1:9876  ->  batches of Spark  ->  orders at 10.1.0.1:9876

A copy has the body, keys, tags, properties, id (`msgId`) and born time of its original; store time and offset are its
own. Each queue goes to one queue, in its order. `message_copies.py` has how nothing is lost and nothing comes twice.
Either end may be one of Apache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from sparrowmq.spark.pipelines.copying.copying_stream import CopyingStream, Target, look, routed
from sparrowmq.spark.pipelines.copying.mirrored_groups import MirroredGroups, names_in
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Streaming


def mirror(
    topic: str,
    *,
    name_server: str,
    to: str,
    state: str | Path,
    to_topic: str | None = None,
    to_cluster: str | None = None,
    to_options: Mapping[str, str] | None = None,
    chained: bool = False,
    groups: str | None = None,
    **running: Unpack[Streaming],
) -> Report:
    """Copy what topics have, and get, to another cluster; returns when all is there (`once`), or when it is stopped.

    Args:
        topic: one, a regular expression, as `orders-.*`, which finds new topics, too, or several of these as `a,b-.*`.
        to_topic: another name there; for several topics with `{topic}` in it, as `east-{topic}`.
        to: name servers of the other cluster. to_cluster: in which of its clusters topics are made, if it has several.
        state: a folder, for this mirror alone; without it a mirror begins from the start.
        chained: copy also what a mirror has brought.
        groups: carry the offsets of these consumer groups, each second: names as `a,b`, or a regular expression.
        to_options: of the sink.
        running: as `Streaming` has them, but `every` is a second by default.
    Raises:
        ConfigError: an argument is wrong, or the state is that of another mirror.
        StreamingQueryException: the query failed; run it again to go on.
    """
    if groups is not None:
        names_in(groups)  # before anything is made
    runner = Runner(**(Streaming(every="1 second") | running))
    route = routed(topic, name_server, Target(to, to_topic, to_options), runner.options)
    kept = State(state, {"topic": topic, "from": name_server, "to": to, "to_topic": to_topic or topic})
    if not kept.targets:
        route.check_topics(runner)
    if runner.dry_run:
        return look(route, runner)
    route.make(to_cluster, runner.say)
    stream = CopyingStream(route, kept, runner, chained=chained, cluster=to_cluster)
    if groups is None:
        return stream.run("mirror")
    carrying = MirroredGroups(groups, route.source, route.sink, kept, to_cluster, runner.say)
    with carrying, carrying.carried(once=runner.once):
        return stream.run("mirror")
