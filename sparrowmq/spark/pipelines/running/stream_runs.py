"""Runs the stream of a pipeline, in batches of a bounded size: to the end of what is there, or until it is stopped.

Spark 4.1 makes one batch of `Trigger.AvailableNow`, and does not tell a source where its stream is. There a source is
told its checkpoint (`spark41_stream.py`), and one such run follows the other until they have reached what was the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import IllegalArgumentException

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.report import Report, watch
from sparrowmq.spark.pipelines.running.span import span_of, told
from sparrowmq.spark.read_limits import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_FROM_THE_BEGINNING: Final = {"startingOffsets": "earliest"}
_ALL_THERE_IS: Final[Mapping[str, Any]] = {"availableNow": True}


@dataclass(frozen=True)
class Stream:
    """What is to run.

    Attributes:
        given: options of the source.
        take: gets each batch, with its number.
    """

    spark: SparkSession
    given: Mapping[str, str]
    take: Callable[[DataFrame, int], None]
    checkpoint: str

    def run(self, report: Report, *, once: bool, every: str) -> None:
        """Returns when all is read that was there (`once`), or when it is stopped.

        Raises:
            ConfigError: `every` is no time.
            StreamingQueryException
        """
        report.count_losses(parse(SourceOptions, self.given))
        if not once:
            watch(self._start({"processingTime": every}), report)
        elif HAS_LIMITS:
            report.stopped = not watch(self._start(_ALL_THERE_IS), report)
        else:
            self.run_by_batches(report)

    def run_by_batches(self, report: Report) -> None:
        """Each run has one batch: that of a driver that died, or the next one."""
        end, has_more = told(span_of(self.given).end), True
        while has_more:
            batches = report.batches
            ended_by_itself = watch(self._start(_ALL_THERE_IS), report)
            report.stopped = not ended_by_itself
            has_more = ended_by_itself and report.batches > batches and _is_before(report.offsets, end)

    def _start(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        given = {**self.given, "checkpointLocation": self.checkpoint}
        rows = self.spark.readStream.format("rocketmq").options(**given).load()
        writing = rows.writeStream.foreachBatch(self.take)
        try:
            writing = writing.trigger(**trigger)
        except IllegalArgumentException:
            raise ConfigError(
                f"every={trigger.get('processingTime')!r} is no time; write 10 seconds, or 1 minute"
            ) from None
        return writing.option("checkpointLocation", self.checkpoint).start()


def with_defaults(given: Mapping[str, str], rows: int) -> dict[str, str]:
    """Options of a stream; where they say nothing, from the beginning and in batches of so many rows."""
    said = {name.lower() for name in given}
    limit = {} if "maxbytespertrigger" in said else {"maxOffsetsPerTrigger": str(rows)}
    defaults = _FROM_THE_BEGINNING | limit
    return {name: value for name, value in defaults.items() if name.lower() not in said} | dict(given)


def is_planned(checkpoint: Path) -> bool:
    """Whether a stream has ever had a batch; of those Spark keeps the last hundred."""
    return any((checkpoint / "offsets").glob("[0-9]*"))


def _is_before(reached: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    return any(
        reached.get(topic, {}).get(broker, {}).get(queue, 0) < offset
        for topic, brokers in end.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    )
