"""The streaming side of the source: how far each micro-batch goes, and which tasks read it.

Spark asks, in this order: initialOffset once, then for each batch latestOffset(start, limit), it writes the answer to
its log, partitions(start, end), the tasks' reads, and with the next batch's planning commit(end). After a crash the
last logged batch is planned again with its old offsets. Three things follow:

- A queue that appears is first only noted, at the place where it begins, and read from the next batch on: so every
  batch finds all its starts in the log, however long after.
- latestOffset's `start` is the end of what is processed for good. It is committed for consumer groups (commitOffsets),
  because Spark does not call commit after the last batch of Trigger.AvailableNow.
- A queue whose broker is away keeps its place, and the others are read (`presence.py`).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError, NetworkError, NoRoute
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.batch_source import plan_tasks, ranges_in
from sparrowmq.spark.source.partition_ranges import (
    Checkpoints,
    Offsets,
    Range,
    between,
    ends_of,
    from_json,
    is_worth_a_batch,
    limit_ends,
    skip_gaps,
    stream_ends,
    to_json,
)
from sparrowmq.spark.source.presence import Presence
from sparrowmq.spark.source.query_offsets import OffsetClient
from sparrowmq.spark.source.row_reader import Rows, read
from sparrowmq.spark.worker import limit_rate, network_of

# The classes of Spark 4.2 for limits of a batch, or the same for 4.1, which hands no limit to a source.
try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxBytes as ReadMaxBytes
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow

    HAS_LIMITS = True
except ImportError:
    from dataclasses import dataclass

    HAS_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """As Spark 4.2 has it."""

    @dataclass
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark 4.1 runs `Trigger.AvailableNow` without asking the source, as one batch."""


log = logging.getLogger(__name__)

# Of fewer rows the sizes need not be known: 4 MiB is the default of maxMessageSize.
LARGEST_MESSAGE_BYTES: Final = 4 << 20


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. Spark copies it to its workers, so it holds no connection."""

    def __init__(
        self, options: SourceOptions, schema: pa.Schema, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._schema = schema
        self._monotonic = monotonic
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._committed: Offsets | None = None
        self._last_batch_s = monotonic()
        self._presence = Presence(monotonic)
        self._checkpoints = Checkpoints()

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:  # Spark asks twice, and "latest" must not have moved meanwhile
            offset_client = self._offset_client()
            self._initial = offset_client.starts(offset_client.bounds(), otherwise="latest")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._start_offsets(start)
        self._commit_offsets(begin)
        end = self._available_ends(begin)
        self._latest = end
        ranges = between(begin, end)
        waited_ms = (self._monotonic() - self._last_batch_s) * 1000
        min_rows = self._options.min_rows if self._target is None else None
        if not is_worth_a_batch(sum(map(len, ranges)), min_rows, waited_ms, self._options.max_delay_ms):
            return start
        if ranges:
            self._last_batch_s = self._monotonic()
        return to_json(self._limit_end(begin, end, ranges, limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        offset_client = self._offset_client()
        try:
            bounds = offset_client.bounds()
        except NetworkError:
            bounds = self._presence.bounds(offset_client, Offsets())
            if not bounds:
                raise
        self._target = ends_of(bounds)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._plan_tasks(between(self._start_offsets(start), self._checkpoints.offsets(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        network = network_of(self._options, waits=True)
        ranges = ranges_in(network, partition)
        rows = read(network, ranges, Rows(self._schema, self._options, ranges), self._options)
        return limit_rate(rows, self._options.rows_per_s)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_offsets(self._checkpoints.offsets(end))

    def stop(self) -> None:
        network_of(self._options).forget()

    def _start_offsets(self, checkpoint: Mapping[str, object]) -> Offsets:
        offsets = self._checkpoints.offsets(checkpoint)
        self._check_own(offsets)
        return offsets

    def _check_own(self, offsets: Offsets) -> None:
        if offsets and not any(self._options.reads(queue.topic) for queue in offsets):
            topics = ", ".join(sorted({queue.topic for queue in offsets})[:5])
            raise ConfigError(
                f"the checkpoint is of a query that read {topics}, and this query reads none of it; "
                "give each query a checkpointLocation of its own"
            )

    def _plan_tasks(self, ranges: Sequence[Range]) -> list[InputPartition]:
        return plan_tasks(network_of(self._options), ranges, self._options)

    def _offset_client(self) -> OffsetClient:
        return OffsetClient(network_of(self._options), self._options)

    def _commit_offsets(self, offsets: Offsets) -> None:
        group = self._options.group
        if group and self._options.commit_offsets and offsets != self._committed:
            self._committed = offsets if self._offset_client().commit_offsets(group, offsets) else None

    def _available_ends(self, begin: Offsets) -> Offsets:
        """Return the ends of the queues; the start of queues that `begin` does not know is noted."""
        end = self._reachable_ends(begin)
        if self._target is None:
            return end
        end = self._up_to_target(begin, end, self._target)
        if between(begin, end) or not between(begin, self._target):
            return end
        return self._wait_for_absent(begin, self._target)

    def _reachable_ends(self, begin: Offsets) -> Offsets:
        offset_client = self._offset_client()
        answers = self._presence.bounds(offset_client, begin)
        return offset_client.with_numbers(
            stream_ends(begin, answers, offset_client.new_start, fail=self._options.fail_on_data_loss)
        )

    def _wait_for_absent(self, begin: Offsets, target: Offsets) -> Offsets:
        """Wait a little for the brokers without whose rows a run of Trigger.AvailableNow would end."""
        try:
            self._offset_client().bounds()
        except (NetworkError, NoRoute) as error:
            log.warning("this run ends without the rows of absent brokers; the next run reads them: %s", error)
            return begin
        self._presence.retry_now()
        return self._up_to_target(begin, self._reachable_ends(begin), target)

    def _up_to_target(self, begin: Offsets, end: Offsets, target: Offsets) -> Offsets:
        limited = {
            queue: min(offset, max(target.get(queue, 0), begin.get(queue, 0)))
            for queue, offset in end.items()
            if queue in target or queue in begin
        }
        return Offsets(limited, end.incarnations, end.numbers)

    def _limit_end(self, begin: Offsets, end: Offsets, ranges: Sequence[Range], limit: ReadLimit) -> Offsets:
        """The end of a batch that keeps the limits of rows and of bytes. Spark knows one limit, and hands it back."""
        if not isinstance(limit, ReadMaxRows | ReadMaxBytes):
            return end
        total = sum(map(len, ranges))
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
        if total <= rows and not _may_exceed(total, size):
            return end
        if not self._options.fail_on_data_loss:
            begin = skip_gaps(begin, self._offset_client().begins([range.queue for range in ranges]))
        end = limit_ends(begin, end, rows)
        ranges = between(begin, end)
        if size is not None and _may_exceed(sum(map(len, ranges)), size):
            end = limit_ends(begin, end, max(1, size // self._offset_client().row_bytes(ranges)))
        return end


def _may_exceed(rows: int, size: int | None) -> bool:
    return size is not None and rows * LARGEST_MESSAGE_BYTES > size


class UnlimitedStreamReader(StreamReader):
    """A `StreamReader` for Spark 4.1, which asks for the end of a batch without its start.

    So the reader remembers offsets: those of the first start, and those of each planned batch. After a restart whose
    last batch was done, it has none until the next batch is planned. That batch needs all brokers, and reads a queue
    that appeared meanwhile from where new queues begin. With the option `checkpointLocation` the reader looks there,
    and can keep batches small.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """Raises: ConfigError, for options that need Spark 4.2."""
        super().__init__(options, schema)
        has_limits = options.max_rows or options.max_bytes or options.min_rows
        if options.checkpoint is None and (has_limits or options.kafka_compat):
            raise ConfigError(
                "options maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger, and kafkaCompat in a stream, "
                "need Spark 4.2 or later, which tells a source where its stream is; leave them out, update pyspark, "
                "or give the source the option checkpointLocation, too"
            )
        self._last_end: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        offset = super().initialOffset()
        self._last_end = from_json(offset)
        return offset

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._last_end is None and self._options.checkpoint is not None:
            self._last_end = newest_planned_end(self._options.checkpoint) or from_json(self.initialOffset())
        if self._last_end is not None:
            return super().latestOffset(to_json(self._last_end), self.getDefaultReadLimit())
        offset_client = self._offset_client()
        return to_json(offset_client.with_numbers(ends_of(offset_client.bounds())))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._check_own(begin := from_json(start))
        self._last_end = from_json(end)
        if self._last_end.keys() - begin.keys():
            offset_client = self._offset_client()
            for queue, bounds in offset_client.bounds().items():
                if queue in self._last_end:
                    begin.setdefault(queue, min(offset_client.new_start(bounds), self._last_end[queue]))
        return self._plan_tasks(between(begin, self._last_end))


def newest_planned_end(checkpoint: str) -> Offsets | None:
    """Return the end of the newest batch that a query has planned, from its checkpoint; None before the first one.

    Raises: ConfigError, the query has several sources, and it is not known which of them asks.
    """
    numbers = (whole_number(path.name) for path in _offsets_folder(checkpoint).glob("[0-9]*"))
    batches = [number for number in numbers if number is not None]
    return planned_end(checkpoint, max(batches)) if batches else None


def planned_end(checkpoint: str, batch: int) -> Offsets:
    """Return the end of a planned batch. Raises: as `newest_planned_end`."""
    _version, _settings, *sources = (_offsets_folder(checkpoint) / str(batch)).read_text().splitlines()
    if len(sources) != 1:
        raise ConfigError(
            f"the query of {checkpoint} has {len(sources)} sources; leave the option checkpointLocation of this one out"
        )
    return from_json(json.loads(sources[0]))


def _offsets_folder(checkpoint: str) -> Path:
    return Path(checkpoint.removeprefix("file:"), "offsets")
