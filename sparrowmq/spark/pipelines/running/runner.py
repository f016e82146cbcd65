"""Runs a pipeline: one lock, one loop over batches, one report, and one way to end for all of them.

    runner = Runner(**running)                         the arguments that all pipelines take
    with runner.at_work(state, "table orders"):        locks the folder, and answers Prometheus
        runner.stream(given, write, checkpoint)        calls write(rows, number) for each micro-batch of Spark
    return runner.report

A pipeline checks its own arguments, and provides the function for a batch. The function counts in `runner.report`, and
returns a few words for the line about the batch. Control-C and SIGTERM end a stream after the batch at hand. A stream
that fails is started again from its checkpoint (`Restarts`).

Spark 4.1 makes one batch of `Trigger.AvailableNow`. There the source reads the checkpoint (`UnlimitedStreamReader`) and
one such run follows the other until they have reached the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypedDict

from py4j.protocol import Py4JError
from pyspark.errors import IllegalArgumentException, PySparkException, PySparkValueError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparrowmq.errors import ConfigError
from sparrowmq.spark.failures import MAX_FAILURES_WITH_END, Restarts, failure_from, has_session_ended
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.checkpoint_files import (
    MayPlanAgain,
    check_planned,
    is_planned,
    repair,
    sync_plan,
)
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.session import note_signals, own_session
from sparrowmq.spark.pipelines.running.span import Ends, current_ends, offsets_by_topic, unread_brokers, unread_notice
from sparrowmq.spark.source.stream_source import HAS_LIMITS

# Does a batch, and returns words for its line.
Step = Callable[[DataFrame, int], str]
IsStopped = Callable[[], bool]

_POLL_S: Final = 1
_SIGNAL_WAIT_S: Final = 1.0  # for the signal that Java got before
_BYTES_PER_BATCH: Final = 512 << 20
_TASK_OPTIONS: Final = frozenset({"paralleltasks", "maxpartitions"})
_AVAILABLE_NOW: Final[Mapping[str, Any]] = {"availableNow": True}


class RunningWithoutSpark(TypedDict, total=False):
    """The arguments that pipelines have in common.

    options: of the source; of the sink for `publish`. dry_run: say what would be done, and do nothing.
    say: gets lines about the progress; stderr by default.
    """

    options: Mapping[str, str] | None
    dry_run: bool
    say: Say


class Running(RunningWithoutSpark, total=False):
    """The arguments that pipelines of Spark have in common. spark: a session; by default one on this machine."""

    spark: SparkSession | None


class Streaming(Running, total=False):
    """The arguments that streams have in common.

    once: return when all messages that are there now are done. every: pause between looks for new messages.
    metrics: address for Prometheus, `host:port`. insecure: other machines may reach it.
    """

    once: bool
    every: str
    metrics: str | None
    insecure: bool


@dataclass
class Runner:
    """Runs one pipeline. The fields are those of `Streaming`, and the report."""

    options: Mapping[str, str] | None = None
    dry_run: bool = False
    spark: SparkSession | None = None
    say: Say = to_stderr
    once: bool = False
    every: str = "10 seconds"
    metrics: str | None = None
    insecure: bool = False
    report: Report = field(default_factory=Report)
    # The newest batch that is done. On a full disk Spark cannot note that, and repeats the batch.
    _newest: int = field(default=-1, init=False)

    @cached_property
    def session(self) -> SparkSession:
        """A session with the settings of pipelines. Raises: ConfigError, it is one of Spark Connect."""
        return own_session(self.spark)

    @contextmanager
    def at_work(self, folder: Path, name: str = "") -> Iterator[None]:
        """Lock the folder of a pipeline's state, and answer Prometheus about it as `name`. Raises: ConfigError."""
        with ExitStack() as stack:
            stack.enter_context(lock_folder(folder))
            if self.metrics is not None:
                from sparrowmq.spark.exposed import exposed  # needs the extra `server`

                declare = partial(self.report.declare_metrics, name=name)
                figures = exposed(self.metrics, declare, insecure=self.insecure)
                to_stderr(f"figures at http://{stack.enter_context(figures)}/metrics")
            yield

    @contextmanager
    def timed(self) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self.report.seconds += time.monotonic() - begin

    def batch(self, step: Step, rows: DataFrame, number: int) -> None:
        """Do one batch, count it, and say a line about it."""
        begin = time.monotonic()
        result = step(rows, number)
        self.report.batches += 1
        self._newest = max(self._newest, number)
        self.say(f"batch {number}: {result}, {time.monotonic() - begin:.1f} s")

    def stream(
        self,
        options: Mapping[str, str],
        step: Step,
        checkpoint: str,
        may_plan_again: MayPlanAgain = lambda _batch: False,
    ) -> None:
        """Do the batches of a stream until all is read (`once`), or until a signal comes; start it again if it fails.

        `may_plan_again` says whether a batch whose plan is damaged may have other messages than before.
        Raises: ConfigError, `every` is no time; BadStore, the checkpoint is damaged, or was removed;
        StreamingQueryException, a batch failed, and would fail again.
        """
        report, restarts = self.report, Restarts(MAX_FAILURES_WITH_END if self.once else None)
        report.count_losses(parse(SourceOptions, options))
        was_planned = False
        with note_signals() as is_stopped:
            while not is_stopped():
                if report.restarts and was_planned:
                    check_planned(Path(checkpoint))
                repair(Path(checkpoint), may_plan_again, self.say)
                was_planned, newest_before = is_planned(Path(checkpoint)), self._newest
                try:
                    self._stream(options, step, checkpoint, is_stopped)
                    return
                except (PySparkException, Py4JError, OSError) as error:
                    if self._is_stopped_with_java(is_stopped):
                        break
                    if was_planned or report.batches:
                        check_planned(Path(checkpoint))
                    if not isinstance(error, PySparkException):
                        raise
                    pause_s = restarts.pause_s(error, made_progress=self._newest > newest_before)
                    if pause_s is None or has_session_ended(self.session):
                        raise
                    report.restarts += 1
                    cause = failure_from(str(error)).reason
                    self.say(f"the stream failed, and is started again from its last batch in {pause_s:g} s: {cause}")
                self._pause(pause_s, is_stopped)
            report.stopped = self.once

    def _stream(self, source_options: Mapping[str, str], step: Step, checkpoint: str, is_stopped: IsStopped) -> None:
        """Do the batches from the checkpoint on."""

        def do_batch(rows: DataFrame, number: int) -> None:
            sync_plan(Path(checkpoint), number)
            self.batch(step, rows, number)
            check_planned(Path(checkpoint))  # before Spark notes that the batch is done

        def start(trigger: Mapping[str, Any]) -> StreamingQuery:
            options = {**source_options, "checkpointLocation": checkpoint} | parallel_tasks(
                self.session, source_options
            )
            rows = self.session.readStream.format("rocketmq").options(**options).load()
            writer = rows.writeStream.foreachBatch(do_batch)
            try:
                writer = writer.trigger(processingTime=self.every).trigger(**trigger)
            except (IllegalArgumentException, PySparkValueError):
                raise ConfigError(f"every={self.every!r} is no time; write 10 seconds, or 1 minute") from None
            return writer.option("checkpointLocation", checkpoint).start()

        if not self.once:
            self._watch(start({"processingTime": self.every}), is_stopped)
            return
        ends = current_ends(source_options, checkpoint)
        if HAS_LIMITS:
            self.report.stopped = not self._watch(start(_AVAILABLE_NOW), is_stopped)
        else:
            self._stream_by_batches(ends, lambda: start(_AVAILABLE_NOW), is_stopped)
        if not self.report.stopped and (brokers := unread_brokers(source_options, checkpoint, ends)):
            self.report.away = brokers
            self.say(unread_notice(brokers))

    def _stream_by_batches(self, ends: Ends, start: Callable[[], StreamingQuery], is_stopped: IsStopped) -> None:
        """Start a query for each batch: that of a driver that died, or the next one."""
        report = self.report
        end, has_more = offsets_by_topic(ends.present), True
        while has_more:
            batches = report.batches
            has_ended = self._watch(start(), is_stopped)
            report.stopped = not has_ended
            has_more = has_ended and report.batches > batches and _is_before(report.offsets, end)

    def _watch(self, query: StreamingQuery, is_stopped: IsStopped) -> bool:
        """Wait until a query ends, or stop it at a signal. Returns whether it ended by itself."""
        with self.timed():
            try:
                while not query.awaitTermination(_POLL_S) and not is_stopped():
                    self.report.note_progress(query)
                if is_stopped():
                    query.stop()
            finally:
                self.report.note_progress(query)
        return not is_stopped()

    def _is_stopped_with_java(self, is_stopped: IsStopped) -> bool:
        """Whether a stream failed because a signal went to all processes, as that of systemd does, and ended Java."""
        if not has_session_ended(self.session):
            return False
        self._pause(_SIGNAL_WAIT_S, is_stopped)
        if is_stopped():
            self.say("the signal ended Java, too: the next run repeats the current batch")
        return is_stopped()

    def _pause(self, pause_s: float, is_stopped: IsStopped) -> None:
        end_s = time.monotonic() + pause_s
        with self.timed():
            while not is_stopped() and (left_s := end_s - time.monotonic()) > 0:
                time.sleep(min(left_s, _POLL_S))


def with_defaults(options: Mapping[str, str], rows: int) -> dict[str, str]:
    """Options of a stream; by default from the beginning, and in batches of so many rows, and bytes, at most."""
    names = {name.lower() for name in options}
    defaults = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rows),
        "maxBytesPerTrigger": str(_BYTES_PER_BATCH),
    }
    return {name: value for name, value in defaults.items() if name.lower() not in names} | dict(options)


def parallel_tasks(session: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """The option of the source for as many tasks as the cluster runs at once now, unless the user has given it."""
    if any(name.lower() in _TASK_OPTIONS for name in options):
        return {}
    return {"parallelTasks": str(session.sparkContext.defaultParallelism)}


def _is_before(reached: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    return any(
        reached.get(topic, {}).get(broker, {}).get(queue, 0) < offset
        for topic, brokers in end.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    )
