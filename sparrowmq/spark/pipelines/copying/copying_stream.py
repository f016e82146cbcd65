"""A stream of messages from topics to topics, for `mirror` and `dedup`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrowmq.errors import ConfigError, NetworkError, NoRoute, SendFailed
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.pipelines.copying import target_topics as topics
from sparrowmq.spark.pipelines.copying.copied_rows import COLUMNS, Copying, copy_rows
from sparrowmq.spark.pipelines.copying.message_copies import Copied, ends_of, paired
from sparrowmq.spark.pipelines.copying.seen_keys import Dropped, Repeats
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.runner import Runner, with_defaults
from sparrowmq.spark.pipelines.running.span import span_of
from sparrowmq.spark.source.spark41_stream import planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS_READ: Final = (*COLUMNS, "msgId", "storeTimestamp", "keys", "tags")

_ROWS_PER_BATCH: Final = 200_000


@dataclass(frozen=True)
class Target:
    """A topic at other name servers; `options` are those of the sink."""

    name_server: str
    topic: str | None = None
    options: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Route:
    """The sources and the targets of copies.

    Attributes:
        names: of the topics at the target.
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
        """Return the target of each queue that exists now. Raises: NoRoute, SendFailed, NetworkError."""
        found = dict(known)
        sources, targets = topics.readable(self.source), topics.writable(self.sink, set(self.names.values()))
        for name, to in self.names.items():
            own = [queue for queue in sources if queue.topic == name]
            found = paired(own, [queue for queue in targets if queue.topic == to], found)
        return found


class CopyingStream:
    """A stream that is copied, batch by batch."""

    def __init__(
        self,
        route: Route,
        state: State,
        runner: Runner,
        *,
        chained: bool = False,
        repeats: Repeats | None = None,
    ) -> None:
        self._route = route
        self._state = state
        self._runner = runner
        self._repeats = repeats
        self._copying = Copying(route.sink, state.label, state.targets, chained=chained)

    def run(self, name: str) -> Report:
        """Run the pipeline `name`. Raises: StreamingQueryException; ConfigError, another run holds this state."""
        state, runner = self._state, self._runner
        with runner.at_work(state.folder, f"{name} {','.join(self._route.names)}"):
            state.keep(self._route.targets(state.targets))
            given = with_defaults(self._route.given, _ROWS_PER_BATCH)
            given |= {"columns": ",".join(COLUMNS_READ), "decompress": "false"}
            if self._repeats is None:
                runner.stream(given, self._copy, state.checkpoint)
            else:
                with self._repeats.known:
                    runner.stream(given | self._repeats.options, self._copy_first_ones, state.checkpoint)
        return runner.report

    def _copy(self, rows: DataFrame, batch: int) -> str:
        copied = self._copied(rows, batch)
        self._runner.report.add_batch(batch, copied.sent + copied.there + copied.passed)
        return f"{copied.sent:,} copied, {copied.there:,} there already"

    def _copy_first_ones(self, rows: DataFrame, batch: int) -> str:
        """Copy the messages of a batch that are no repeats."""
        assert self._repeats is not None
        self._repeats.forget(self._route.given, self._state.checkpoint, batch)
        rows = self._repeats.as_sent(rows).persist()
        try:
            count, dropped = self._repeats.find(rows, batch)
            copied = self._copied(rows, batch, dropped)
        finally:
            rows.unpersist()
        self._runner.report.add_batch(batch, count)
        return f"{copied.sent:,} copied, {copied.there:,} there already, {sum(map(len, dropped.values())):,} dropped"

    def _copied(self, rows: DataFrame, batch: int, dropped: Dropped | None = None) -> Copied:
        self._look_for_queues()
        floors = self._state.floors(batch, partial(ends_of, self._route.sink))
        again = self._state.made_again(planned(self._state.checkpoint, batch).incarnations)
        plan = replace(self._copying, targets=self._state.targets, floors=floors, again=again)
        copied = copy_rows(rows, replace(plan, dropped=dropped or {}))
        self._runner.report.written += copied.sent
        return copied

    def _look_for_queues(self) -> None:
        """Find a place for new queues; while no name server answers, the known queues are copied."""
        try:
            self._state.keep(self._route.targets(self._state.targets))
        except (NetworkError, NoRoute, SendFailed) as error:
            self._runner.say(f"no answer about new queues, so the known queues are copied: {error}")


def routed(topic: str, name_server: str, target: Target, options: Mapping[str, str] | None = None) -> Route:
    """The way of a topic, or of several as `a,b`. Raises: ConfigError."""
    given = {**(options or {}), "nameServer": name_server, "topic": topic}
    source = parse(SourceOptions, given)
    sink = topics.sink(target.options, target.name_server)
    source.check_stream()
    if target.topic is not None and len(source.topics) != 1:
        raise ConfigError("to_topic renames one topic; run one mirror for each that is renamed")
    names = {name: target.topic or name for name in source.topics}
    same = set(source.name_servers) & set(sink.name_servers)
    if same and any(name == renamed for name, renamed in names.items()):
        raise ConfigError(
            f"both clusters are at {', '.join(sorted(same))}: topics would be copied into themselves; "
            "name another topic"
        )
    return Route(given, source, sink, names)


def look(route: Route, runner: Runner) -> Report:
    """Say what a first run would copy."""
    span = span_of(route.given)
    for name, renamed in route.names.items():
        runner.say(f"copies {name} to {renamed} at {';'.join(route.sink.name_servers)}")
    runner.say(f"{span.rows:,} messages in {len(span.end)} queues are there to be copied")
    runner.report.read = span.rows
    return runner.report
