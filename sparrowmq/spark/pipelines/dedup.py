"""The pipeline `dedup`: a topic without its repeats, as another topic.

What repeats is said by a key: the producer's id (`msgId`), or any SQL expression, as `properties['order']`. The first
message of a key passes, in the order of `mirror` and copied as there; others of the same key do not, if they were
stored within the window. Batches decide which is the first: of the messages of one it is the earliest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Unpack

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import milliseconds
from sparrowmq.spark.pipelines.mirror import COLUMNS_READ, CopyingStream, Target, build_route, report_dry_run
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import Runner, Streaming
from sparrowmq.spark.pipelines.seen_keys import Repeats

_DAY_MS: Final = 24 * 3_600_000


def dedup(
    topic: str,
    to_topic: str,
    *,
    name_server: str,
    state: str | Path,
    by: str = "msgId",
    window: str = "7d",
    to: str | None = None,
    to_cluster: str | None = None,
    to_options: Mapping[str, str] | None = None,
    **running: Unpack[Streaming],
) -> Report:
    """Copy what a topic has, and gets, to another, but for repeats; `read` less `written` were dropped.

    Args:
        topic: one, a regular expression, as `orders-.*`, which finds new topics, too, or several of these as `a,b-.*`.
        to_topic: one topic for all of them, or a name for each with `{topic}` in it, as `{topic}-once`. A key is
            looked for in all topics.
        by: an SQL expression over the source's columns: what repeats have the same. Null is no repeat of null.
        window: a message is a repeat if it was stored within this time of one that passed: `90s`, `12h`, `7d`.
        state: a folder; it belongs to this pipeline. to: name servers of another cluster.
    Raises:
        ConfigError: an argument is wrong, or the state is that of another pipeline.
        StreamingQueryException: the query failed; run it again to go on.
    """
    runner = Runner(**(Streaming(every="1 second") | running))
    target = Target(to or name_server, to_topic, to_options, joins=True)
    route = build_route(topic, name_server, target, runner.options)
    settings = {"topic": topic, "from": name_server, "to": target.name_server, "to_topic": to_topic, "by": by}
    pipeline_state = State(state, settings)
    repeats = Repeats(pipeline_state.part("seen"), by, _window_ms(window))
    if not pipeline_state.targets:
        route.check_topics(runner)
    if runner.dry_run:
        return report_dry_run(route, runner)
    source = runner.session.read.format("rocketmq").options(**route.options)
    repeats.check(source.option("columns", ",".join(COLUMNS_READ)).load())
    route.make(to_cluster, runner.say)
    return CopyingStream(route, pipeline_state, runner, repeats=repeats, chained=True, cluster=to_cluster).run("dedup")


def _window_ms(window: str) -> int:
    try:
        days = window.strip().removesuffix("d")
        window_ms = int(days) * _DAY_MS if days != window.strip() else milliseconds(window)
    except ValueError:
        raise ConfigError(f"window={window!r} is no time; write 90s, 12h or 7d") from None
    if window_ms <= 0:
        raise ConfigError(f"window={window!r} keeps no key, so no repeat would be dropped; write 90s, 12h or 7d")
    return window_ms
