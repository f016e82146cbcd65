"""A stream of messages from topics to topics: what `mirror` and `dedup` have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrowmq.errors import ConfigError, NetworkError, NoRoute, SendFailed
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.pipelines.copying import target_topics as topics
from sparrowmq.spark.pipelines.copying.copied_rows import COLUMNS, Copying, copy_rows
from sparrowmq.spark.pipelines.copying.message_copies import ends_of, paired
from sparrowmq.spark.pipelines.copying.seen_keys import Repeats
from sparrowmq.spark.pipelines.running.locked import locked
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.span import span_of
from sparrowmq.spark.pipelines.running.stream_runs import Stream, with_defaults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS_READ: Final = (*COLUMNS, "msgId", "storeTimestamp", "keys", "tags")

_ROWS_PER_BATCH: Final = 200_000


@dataclass(frozen=True)
class Route:
    """From where to where.

    Attributes:
        names: what each topic is called at the target.
    """

    given: Mapping[str, str]
    source: SourceOptions
    sink: SinkOptions
    names: Mapping[str, str]

    def make(self, cluster: str | None, say: Say) -> None:
        """Make the topics of the target that are not there, as wide as their originals."""
        widths = {
            self.names[name]: width for name, width in topics.widest(topics.readable(self.source)).items()
        }
        for made in topics.make(self.sink, widths, cluster):
            say(f"made topic {made} with {widths[made]} queues on each broker")

    def targets(self, known: Mapping[MessageQueue, MessageQueue]) -> dict[MessageQueue, MessageQueue]:
        """Where each queue that there is now goes. Raises: NoRoute, SendFailed, NetworkError."""
        found = dict(known)
        sources, targets = topics.readable(self.source), topics.writable(self.sink, set(self.names.values()))
        for name, to in self.names.items():
            own = [queue for queue in sources if queue.topic == name]
            found = paired(own, [queue for queue in targets if queue.topic == to], found)
        return found


class Flow:
    """A stream that is copied, batch by batch."""

    def __init__(
        self, route: Route, state: State, say: Say, *, chained: bool = False, repeats: Repeats | None = None
    ) -> None:
        self._route = route
        self._state = state
        self._say = say
        self._repeats = repeats
        self._copying = Copying(route.sink, state.label, state.targets, chained=chained)
        self.report = Report()

    def run(self, spark: SparkSession, *, once: bool, every: str, metrics: str | None = None) -> Report:
        """Raises: StreamingQueryException; ConfigError, another run is at work with this state."""
        name = f"{'mirror' if self._repeats is None else 'dedup'} {','.join(self._route.names)}"
        with locked(self._state.folder), self.report.told_at(metrics, name):
            return self._run(spark, once=once, every=every)

    def _run(self, spark: SparkSession, *, once: bool, every: str) -> Report:
        self._state.keep(self._route.targets(self._state.targets))
        given = with_defaults(self._route.given, _ROWS_PER_BATCH)
        given |= {"columns": ",".join(COLUMNS_READ), "decompress": "false"}
        if self._repeats is not None:
            given |= self._repeats.options
        Stream(spark, given, self._copy, self._state.checkpoint).run(self.report, once=once, every=every)
        return self.report

    def _copy(self, rows: DataFrame, batch: int) -> None:
        begin, report = time.monotonic(), self.report
        self._look_for_queues()
        kept = rows if self._repeats is None else self._repeats.without(rows, batch)
        floors = self._state.floors(batch, partial(ends_of, self._route.sink))
        copied = copy_rows(kept, replace(self._copying, targets=self._state.targets, floors=floors))
        if self._repeats is not None:
            report.add_batch(batch, self._repeats.keep(batch))
        else:
            report.add_batch(batch, copied.sent + copied.there + copied.passed)
        report.written += copied.sent
        report.batches += 1
        self._say(
            f"batch {batch}: {copied.sent:,} copied, {copied.there:,} there already, "
            f"{time.monotonic() - begin:.1f} s"
        )

    def _look_for_queues(self) -> None:
        """New queues need a place to go; while nobody tells of them, the known ones are copied."""
        try:
            self._state.keep(self._route.targets(self._state.targets))
        except (NetworkError, NoRoute, SendFailed) as error:
            self._say(f"the queues are taken to be those that are known: {error}")


def routed(
    topic: str,
    name_server: str,
    to: str,
    to_topic: str | None,
    options: Mapping[str, str] | None,
    to_options: Mapping[str, str] | None,
) -> Route:
    given = {**(options or {}), "nameServer": name_server, "topic": topic}
    source, sink = parse(SourceOptions, given), topics.sink(to_options, to)
    source.check_stream()
    if to_topic is not None and len(source.topics) != 1:
        raise ConfigError("to_topic renames one topic; run one mirror for each that is renamed")
    names = {name: to_topic or name for name in source.topics}
    same = set(source.name_servers) & set(sink.name_servers)
    if same and any(name == renamed for name, renamed in names.items()):
        raise ConfigError(
            f"both clusters are at {', '.join(sorted(same))}: topics would be copied into themselves; "
            "name another topic"
        )
    return Route(given, source, sink, names)


def look(route: Route, say: Say) -> Report:
    """What a first run would copy."""
    span = span_of(route.given)
    for name, renamed in route.names.items():
        say(f"copies {name} to {renamed} at {';'.join(route.sink.name_servers)}")
    say(f"{span.rows:,} messages in {len(span.end)} queues are there to be copied")
    return Report(read=span.rows)
