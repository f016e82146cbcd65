"""A stream on Spark 4.1, which asks for the end of a batch without its start.

So the reader remembers offsets: those of the first start, and those of each planned batch. After a restart whose last
batch was done, it has none until the next batch is planned. That batch needs all brokers, and reads a queue that
appeared meanwhile from where new queues begin. With the option `checkpointLocation` the reader looks there, and can
keep batches small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.incarnations import ends_of
from sparrowmq.spark.source.partition_ranges import Offsets, between, from_json, to_json
from sparrowmq.spark.source.stream_source import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa


class UnlimitedStreamReader(StreamReader):
    """A `StreamReader` as Spark 4.1 calls it."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """Raises: ConfigError, for options that need Spark 4.2."""
        super().__init__(options, schema)
        limited = options.max_rows or options.max_bytes or options.min_rows
        if options.checkpoint is None and (limited or options.kafka_compat):
            raise ConfigError(
                "options maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger, and kafkaCompat in a stream, "
                "need Spark 4.2 or later, which tells a source where its stream is; leave them out, update pyspark, "
                "or give the source the option checkpointLocation, too"
            )
        self._reached: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        offset = super().initialOffset()
        self._reached = from_json(offset)
        return offset

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._reached is None and self._options.checkpoint is not None:
            self._reached = newest_planned(self._options.checkpoint) or from_json(self.initialOffset())
        if self._reached is not None:
            return super().latestOffset(to_json(self._reached), self.getDefaultReadLimit())
        plan = self._plan()
        return to_json(plan.numbered(ends_of(plan.bounds())))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._demand_own(begin := from_json(start))
        self._reached = from_json(end)
        if self._reached.keys() - begin.keys():
            plan = self._plan()
            for queue, held in plan.bounds().items():
                if queue in self._reached:
                    begin.setdefault(queue, min(plan.new_start(held), self._reached[queue]))
        return self._tasks(between(begin, self._reached))


def newest_planned(checkpoint: str) -> Offsets | None:
    """Return the end of the newest batch that a query has planned, from its checkpoint; None before the first one.

    Raises: ConfigError, the query has several sources, and it is not known which of them asks.
    """
    numbers = (whole_number(path.name) for path in _folder(checkpoint).glob("[0-9]*"))
    batches = [number for number in numbers if number is not None]
    return planned(checkpoint, max(batches)) if batches else None


def planned(checkpoint: str, batch: int) -> Offsets:
    """Return the end of a planned batch. Raises: as `newest_planned`."""
    _version, _settings, *sources = (_folder(checkpoint) / str(batch)).read_text().splitlines()
    if len(sources) != 1:
        raise ConfigError(
            f"the query of {checkpoint} has {len(sources)} sources; leave the option checkpointLocation of this one out"
        )
    return from_json(json.loads(sources[0]))


def _folder(checkpoint: str) -> Path:
    return Path(checkpoint.removeprefix("file:"), "offsets")
