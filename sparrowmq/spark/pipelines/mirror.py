"""The pipeline `mirror`: topics of one cluster, kept as copies in another.

    orders at 10.0.0.1:9876  ->  batches of Spark  ->  orders at 10.1.0.1:9876

A copy has the body, keys, tags, properties, id (`msgId`) and born time of its original; store time and offset are its
own. Each queue goes to one queue, in its order. `message_copies.py` has how nothing is lost and nothing comes twice.
Either end may be one of Apache.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Unpack

from pyspark.sql import DataFrame

from sparrowmq.errors import ConfigError, NetworkError, NoRoute, SendFailed
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import DIVIDER, SinkOptions, SourceOptions, parse, pattern
from sparrowmq.spark.pipelines import target_topics as topics
from sparrowmq.spark.pipelines.message_copies import COLUMNS, Copied, Copying, copy_rows, ends_of, pair_queues
from sparrowmq.spark.pipelines.mirrored_groups import MirroredGroups, parse_group_names
from sparrowmq.spark.pipelines.running.checkpoint_files import is_planned, repair
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.runner import Runner, Streaming, with_defaults
from sparrowmq.spark.pipelines.running.span import first_span, has_moving_start, offsets_by_topic, span_of
from sparrowmq.spark.pipelines.seen_keys import Dropped, Repeats
from sparrowmq.spark.source.partition_ranges import Offsets, lose
from sparrowmq.spark.source.stream_source import planned_end

COLUMNS_READ: Final = (*COLUMNS, "msgId", "storeTimestamp", "keys", "tags")

_ROWS_PER_BATCH: Final = 200_000
_TOPIC_FIELD: Final = "{topic}"
_NEW_TARGET_ADVICE: Final = (
    "To copy all again name another state folder; to copy only the next ones set failOnDataLoss=false"
)
# What the name of a topic, or a list of names, does not have.
_PATTERN_CHARACTER: Final = re.compile(r"[^\w%|,\s-]")


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
        parse_group_names(groups)  # before anything is made
    runner = Runner(**(Streaming(every="1 second") | running))
    route = build_route(topic, name_server, Target(to, to_topic, to_options), runner.options)
    pipeline_state = State(state, {"topic": topic, "from": name_server, "to": to, "to_topic": to_topic or topic})
    if not pipeline_state.targets:
        route.check_topics(runner)
    if runner.dry_run:
        return report_dry_run(route, runner)
    route.make(to_cluster, runner.say)
    stream = CopyingStream(route, pipeline_state, runner, chained=chained, cluster=to_cluster)
    if groups is None:
        return stream.run("mirror")
    mirrored_groups = MirroredGroups(groups, route.source, route.sink, pipeline_state, to_cluster, runner.say)
    with mirrored_groups, mirrored_groups.in_background(once=runner.once):
        return stream.run("mirror")


@dataclass(frozen=True)
class Target:
    """Topics at other name servers, with options of the sink.

    In `topic`, `{topic}` is replaced by the name of the source; None keeps the names. With `joins`, several topics may
    be copied to one.
    """

    name_server: str
    topic: str | None = None
    options: Mapping[str, str] | None = None
    joins: bool = False


@dataclass(frozen=True)
class Route:
    """The sources, as the user names them, and the targets of copies, as `Target` names them."""

    topic: str
    options: Mapping[str, str]
    source: SourceOptions
    sink: SinkOptions
    target: str

    @property
    def follows_new_topics(self) -> bool:
        return self.source.topic_pattern is not None

    def target_name(self, topic: str) -> str:
        return self.target.replace(_TOPIC_FIELD, topic)

    def check_topics(self, runner: Runner) -> None:
        """Say which parts of a list match no topic. Raises: ConfigError, none does, and the run has an end."""
        if not self.follows_new_topics:
            return
        names = {queue.topic for queue in topics.readable_queues(self.source)}
        if not names and (runner.once or runner.dry_run):
            raise ConfigError(
                f"no topic at {';'.join(self.source.name_servers)} matches {self.topic}; correct it, or start "
                "without --once to wait for such topics"
            )
        for part in map(str.strip, DIVIDER.split(self.topic)):
            if not any(re.fullmatch(part, name) for name in names):
                runner.say(f"no topic matches {part} yet")

    def make(self, cluster: str | None, say: Say, except_for: Collection[str] = ()) -> None:
        """Make the topics of the target that are not there, like their originals; not for `except_for` originals."""
        widths: dict[str, int] = {}
        originals: dict[str, list[str]] = {}
        for name, width in topics.queues_per_broker(topics.readable_queues(self.source)).items():
            if name not in except_for:
                target_topic = self.target_name(name)
                widths[target_topic] = max(width, widths.get(target_topic, 0))
                originals.setdefault(target_topic, []).append(name)

        def nature(target_topic: str) -> topics.Nature:
            names = originals[target_topic]
            return topics.nature_of(self.source, *names) if len(names) == 1 else topics.Nature()

        for name in topics.create_topics(self.sink, widths, cluster, nature):
            say(f"made topic {name} with {widths[name]} queues on each broker")

    def targets(self, targets_known: Mapping[MessageQueue, MessageQueue]) -> dict[MessageQueue, MessageQueue]:
        """Return the target of each queue that exists now. Raises: ConfigError, a target was taken away."""
        pairs, sources = dict(targets_known), topics.readable_queues(self.source)
        names = {name: self.target_name(name) for name in sorted({queue.topic for queue in sources})}
        targets = topics.writable_queues(self.sink, set(names.values()))
        for name, target_topic in names.items():
            topic_queues = [queue for queue in sources if queue.topic == name]
            writable = [queue for queue in targets if queue.topic == target_topic]
            pairs = pair_queues(topic_queues, writable, pairs)
            for lost_queue in sorted({pairs[queue] for queue in topic_queues}.difference(writable)):
                if any(queue.broker_name == lost_queue.broker_name for queue in writable):  # else the broker is away
                    raise ConfigError(
                        f"{lost_queue} has copies, and takes no more messages: topic {target_topic} has fewer queues "
                        "now. Give it its queues again by updateTopic, or name another state folder to copy all again"
                    )
        return pairs


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
        cluster: str | None = None,
    ) -> None:
        self._route = route
        self._cluster = cluster
        self._state = state
        self._runner = runner
        self._repeats = repeats
        self._copying = Copying(route.sink, state.label, state.targets, chained=chained)

    def run(self, name: str) -> Report:
        """Run the pipeline `name`. Raises: StreamingQueryException; ConfigError, another run holds this state."""
        state, runner = self._state, self._runner
        with runner.at_work(state.folder, f"{name} {self._route.topic}"):
            state.keep_targets(self._route.targets(state.targets))
            self._target_ends(state.targets.values())
            may_plan_again = (state if self._repeats is None else self._repeats).may_plan_again
            repair(Path(state.checkpoint), may_plan_again, runner.say)
            if self._repeats is not None:
                self._repeats.repeat_lost_batch(Path(state.checkpoint), runner.say)
            options = self._from_begin(with_defaults(self._route.options, _ROWS_PER_BATCH))
            options |= {"columns": ",".join(COLUMNS_READ), "decompress": "false"}
            if self._repeats is None:
                runner.stream(options, self._copy, state.checkpoint, may_plan_again)
            else:
                options |= self._repeats.options
                with self._repeats.keys:
                    runner.stream(options, self._copy_first_ones, state.checkpoint, may_plan_again)
        return runner.report

    def _from_begin(self, options: dict[str, str]) -> dict[str, str]:
        """Fix where the first batch begins: a second start before that batch would leave messages out."""
        if is_planned(Path(self._state.checkpoint)) or not has_moving_start(options):
            return options
        span = first_span(options, self._state.begin)
        self._state.keep_begin(offsets_by_topic(span.start))
        return span.stream_options(options)

    def _copy(self, rows: DataFrame, batch: int) -> str:
        counts = self._copy_rows(rows, batch)
        self._runner.report.add_batch(batch, counts.sent + counts.already_there + counts.skipped)
        return f"{counts.sent:,} copied, {counts.already_there:,} there already"

    def _copy_first_ones(self, rows: DataFrame, batch: int) -> str:
        assert self._repeats is not None
        self._repeats.forget(self._route.options, self._state.checkpoint, batch)
        rows = self._repeats.with_sent_flags(rows).persist()
        try:
            count, dropped = self._repeats.find(rows, batch)
            counts = self._copy_rows(rows, batch, dropped)
        finally:
            rows.unpersist()
        self._runner.report.add_batch(batch, count)
        dropped_count = sum(map(len, dropped.values()))
        return f"{counts.sent:,} copied, {counts.already_there:,} there already, {dropped_count:,} dropped"

    def _copy_rows(self, rows: DataFrame, batch: int, dropped: Dropped | None = None) -> Copied:
        self._find_new_targets()
        floors = self._state.floors(batch, self._target_ends)
        incarnations = self._state.recreated(planned_end(self._state.checkpoint, batch).incarnations)
        plan = replace(self._copying, targets=self._state.targets, floors=floors, incarnations=incarnations)
        counts = copy_rows(rows, replace(plan, dropped=dropped or {}))
        self._runner.report.written += counts.sent
        return counts

    def _target_ends(self, queues: Collection[MessageQueue]) -> Offsets:
        ends = ends_of(self._route.sink, queues)
        for topic, broker in self._state.recreated_targets(ends):
            lose(
                f"topic {topic} on {broker}, the target, was deleted and made again: its earlier copies are gone",
                fail=self._route.source.fail_on_data_loss,
                advice=_NEW_TARGET_ADVICE,
            )
        return ends

    def _find_new_targets(self) -> None:
        """Find a place for new queues; while no name server answers, the known queues are copied."""
        targets = self._state.targets
        try:
            if self._route.follows_new_topics:
                self._route.make(self._cluster, self._runner.say, {queue.topic for queue in targets})
            self._state.keep_targets(self._route.targets(targets))
        except (NetworkError, NoRoute, SendFailed) as error:
            self._runner.say(f"no answer about new queues, so the known queues are copied: {error}")


def build_route(topic: str, name_server: str, target: Target, options: Mapping[str, str] | None = None) -> Route:
    """The way of a topic, of several as `a,b`, or of all that regular expressions match. Raises: ConfigError."""
    sink = topics.sink_options(target.options, target.name_server)
    target_topic, is_pattern = target.topic or _TOPIC_FIELD, _PATTERN_CHARACTER.search(topic) is not None
    source_options = {**(options or {}), "nameServer": name_server}
    source = parse(SourceOptions, {**source_options, "subscribePattern" if is_pattern else "topic": topic})
    source.check_stream()
    if _TOPIC_FIELD not in target_topic and not target.joins and (is_pattern or len(source.topics) != 1):
        raise ConfigError(
            f"to_topic={target_topic!r} renames one topic; for several write {_TOPIC_FIELD} for the name, as "
            f"{_TOPIC_FIELD}-copy"
        )
    shared_servers = set(source.name_servers) & set(sink.name_servers)
    if shared_servers and (target_topic == _TOPIC_FIELD or target_topic in source.topics):
        raise ConfigError(
            f"both clusters are at {', '.join(sorted(shared_servers))}: topics would be copied into themselves; "
            "name another topic"
        )
    own_copies = re.escape(target_topic).replace(re.escape(_TOPIC_FIELD), ".*")
    source_pattern = f"(?!(?:{own_copies})$)(?:{pattern(topic).pattern})" if shared_servers and is_pattern else topic
    source_options |= {"subscribePattern": source_pattern} if is_pattern else {"topic": topic}
    return Route(topic, source_options, parse(SourceOptions, source_options), sink, target_topic)


def report_dry_run(route: Route, runner: Runner) -> Report:
    span = span_of(route.options)
    for name in sorted({queue.topic for queue in span.end}):
        runner.say(f"copies {name} to {route.target_name(name)} at {';'.join(route.sink.name_servers)}")
    runner.say(f"{span.rows:,} messages in {len(span.end)} queues would be copied")
    runner.report.read = span.rows
    return runner.report
