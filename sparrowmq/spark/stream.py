"""The streaming side of the source: how far each micro-batch goes, and which tasks read it.

Spark asks, in this order: initialOffset once, then for each batch latestOffset(start, limit), it writes the answer to
its log, partitions(start, end), the tasks' reads, and with the next batch's planning commit(end). After a crash the
last logged batch is planned again with its old offsets. Three things follow:

- A queue that appears is first only noted, at the place where it begins, and read from the next batch on: so every
  batch finds all its starts in the log, however long after.
- latestOffset's `start` is what was processed for good. It is what consumer groups are told (commitOffsets), because
  Spark does not call commit after the last batch of Trigger.AvailableNow.
- A queue that is missing from the routes keeps its place; its broker may be on its way back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.network import network_of
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.planning import Plan, QueuesMissing
from sparrowmq.spark.ranges import (
    Bounds,
    Offsets,
    Range,
    between,
    capped,
    from_json,
    is_worth_a_batch,
    lose,
    settle,
    share,
    to_json,
)
from sparrowmq.spark.reader import read
from sparrowmq.spark.schema import Rows

if TYPE_CHECKING:
    import pyarrow as pa


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
        self._published: Offsets | None = None
        self._last_batch_s = monotonic()

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:  # Spark asks twice, and "latest" must not have moved meanwhile
            plan = self._plan()
            self._initial = plan.starts(plan.bounds(), otherwise="latest")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start)
        self._publish(begin)
        end = self._available(begin)
        self._latest = end
        ranges = between(begin, end)
        waited_ms = (self._monotonic() - self._last_batch_s) * 1000
        min_rows = self._options.min_rows if self._target is None else None
        if not is_worth_a_batch(sum(map(len, ranges)), min_rows, waited_ms, self._options.max_delay_ms):
            return start
        if ranges:
            self._last_batch_s = self._monotonic()
        return to_json(self._limited(begin, end, ranges, limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {queue: bounds.end for queue, bounds in self._plan().bounds().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = share(
            between(from_json(start), from_json(end)),
            self._options.min_partitions,
            self._options.max_partitions,
        )
        return [InputPartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = Rows(self._schema, self._options)
        return read(network_of(self._options), partition.value or (), rows, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        self._publish(from_json(end))

    def stop(self) -> None:
        network_of(self._options).forget()

    def _plan(self) -> Plan:
        return Plan(network_of(self._options), self._options)

    def _publish(self, offsets: Offsets) -> None:
        if self._options.commit_offsets and self._options.group and offsets != self._published:
            self._plan().publish(self._options.group, offsets)
            self._published = offsets

    def _available(self, begin: Offsets) -> Offsets:
        """How far there is something to read; queues that `begin` does not know are noted where they start."""
        plan = self._plan()
        end = dict(begin)
        for queue, held in self._bounds(plan, begin).items():
            if queue not in begin:
                end[queue] = plan.new_start(held)
            elif begin[queue] > held.end:
                end[queue] = settle(queue, begin[queue], held, fail=self._options.fail_on_data_loss)
            else:
                end[queue] = held.end
        return end if self._target is None else self._up_to_target(begin, end, self._target)

    def _bounds(self, plan: Plan, begin: Offsets) -> Mapping[MessageQueue, Bounds]:
        """What the queues hold. Queues without a route are waited for, if their loss would end the query."""
        if not self._options.fail_on_data_loss:
            return plan.bounds()
        try:
            return plan.bounds(expected=begin)
        except QueuesMissing as error:
            lose(str(error), fail=True)
            return error.bounds

    def _up_to_target(self, begin: Offsets, end: Offsets, target: Offsets) -> Offsets:
        """`end`, but no further than where the queues ended when Trigger.AvailableNow began."""
        return {
            queue: min(offset, max(target.get(queue, 0), begin.get(queue, 0)))
            for queue, offset in end.items()
            if queue in target or queue in begin
        }

    def _limited(self, begin: Offsets, end: Offsets, ranges: Sequence[Range], limit: ReadLimit) -> Offsets:
        match limit:
            case ReadMaxRows(max_rows=rows):
                return capped(begin, end, rows)
            case ReadMaxBytes(max_bytes=size) if ranges:
                return capped(begin, end, max(1, size // self._plan().row_bytes(ranges)))
        return end
