"""The pipeline `lag`: the lag of groups, once or repeatedly, also as a history that Spark can read.

Brokers count it; no Spark is started. A query of the source is there too, by its options `group` and `commitOffsets`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from sparrowmq.admin.groups import GroupLag
from sparrowmq.errors import ConfigError, NetworkError, NoGroup, NoRoute
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.span import offsets_by_topic
from sparrowmq.spark.pipelines.target_topics import admin_of


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a group in a topic; its retries are a topic of their own.

    The oldest of `behind` messages has waited for `behind_s`, if brokers tell when the group last consumed.
    `per_second` counts the messages that the group consumes, in all its topics.
    """

    at: str
    group: str
    topic: str
    behind: int
    behind_s: float | None
    per_second: float


def lag(
    groups: Sequence[str] = (),
    *,
    name_server: str,
    to: str | Path | None = None,
    every_s: float = 10.0,
    rounds: int | None = 1,
    above: int | None = None,
    options: Mapping[str, str] | None = None,
    show: Callable[[list[Lag]], object] | None = None,
    say: Say = to_stderr,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Report the lag of groups; the report's `written` has the lines.

    `errors` counts, in the last round, the lines above a limit and the groups without an answer. A cluster that does
    not answer is one error of its round, and the next round asks again.

    Args:
        groups: all of the cluster if none is named. to: a file that gets each line as JSON.
        rounds: one every `every_s` seconds; None continues until interrupted.
        above: messages; a greater lag counts as an error.
        options: `accessKey`, `tls.enable` and the other options to reach a cluster, as in the source.
    Raises: NoGroup, a group that was named is not there; ConfigError; NetworkError.
    """
    if not 0 < every_s < inf or (rounds is not None and rounds < 1):
        raise ConfigError(f"every_s={every_s:g}, rounds={rounds}: every_s must be above 0, and rounds 1 or more")
    source_options = parse(SourceOptions, {"topic": "none", **(options or {}), "nameServer": name_server})
    begin, report, finished_rounds = time.monotonic(), Report(), 0
    try:
        while rounds is None or finished_rounds < rounds:
            if finished_rounds:
                sleep(every_s)
            lags, unanswered = _measure(source_options, groups, report, say)
            finished_rounds += 1
            if to is not None:
                with open(to, "a", encoding="utf-8") as file:
                    file.writelines(json.dumps(asdict(line)) + "\n" for line in lags)
            report.written += len(lags)
            report.errors = unanswered + sum(above is not None and line.behind > above for line in lags)
            if show is not None:
                show(lags)
    except KeyboardInterrupt:
        report.stopped = rounds is not None
    report.batches, report.seconds = finished_rounds, time.monotonic() - begin
    return report


def _measure(options: SourceOptions, groups: Sequence[str], report: Report, say: Say) -> tuple[list[Lag], int]:
    lags, unanswered = asyncio.run(_ask_groups(options, groups, say))
    report.offsets = {
        group_lag.group: offsets_by_topic({queue.queue: queue.committed for queue in group_lag.queues})
        for group_lag in lags
    }
    report.add_read(sum(len(group_lag.queues) for group_lag in lags))
    return [line for group_lag in lags for line in _lines(group_lag)], unanswered


async def _ask_groups(options: SourceOptions, groups: Sequence[str], say: Say) -> tuple[list[GroupLag], int]:
    async with admin_of(options) as admin:
        lags, unanswered = list[GroupLag](), 0
        try:
            names = groups or await admin.groups()
        except NetworkError as error:
            say(f"the groups of the cluster are not known: {error}")
            return lags, 1
        for group in names:
            try:
                lags.append(await admin.lag(group))
            except (NoGroup, NoRoute, NetworkError) as error:
                if groups and isinstance(error, NoGroup):
                    raise
                say(f"group {group}: {error}")
                unanswered += not isinstance(error, NoGroup)  # it was deleted since it was listed
        return lags, unanswered


def _lines(lag: GroupLag) -> Iterator[Lag]:
    now = datetime.now(UTC)
    for topic in sorted({queue.queue.topic for queue in lag.queues}):
        topic_queues = [queue for queue in lag.queues if queue.queue.topic == topic]
        last_times = [
            queue.last_consumed for queue in topic_queues if queue.lag > 0 and queue.last_consumed is not None
        ]
        behind_s = round((now - min(last_times)).total_seconds(), 3) if last_times else None
        at = now.isoformat(timespec="milliseconds")
        yield Lag(at, lag.group, topic, sum(queue.lag for queue in topic_queues), behind_s, round(lag.per_second, 3))
