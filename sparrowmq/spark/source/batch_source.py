"""The batch side of the source: a table that is what the topics hold when the query is planned.

A task gets its ranges and the addresses of their brokers. So it needs no name server, and begins at once. If a broker
has moved meanwhile, the task asks for its route.

Filters of a query spare reading: `where queueId = 0` reads one queue, a time range searches its ends. Spark hands them
over if the session allows it (`spark.sql.python.filterPushdown.enabled`). They become queues, ranges of offsets and of
times, and tags. Each leaves at least the rows that the filters want, and Spark applies all of them again to what was
read. So nothing here needs to be exact, and what is not understood is left to Spark.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.client.cluster.routes import Addresses
from sparrowmq.protocol.subscription import ALL
from sparrowmq.spark.java import CORES
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.partition_ranges import DEFAULT_TASKS, Range, between, share
from sparrowmq.spark.source.query_offsets import OffsetClient
from sparrowmq.spark.source.row_reader import Rows, read
from sparrowmq.spark.worker import limit_rate, network_of


@dataclass(frozen=True, slots=True)
class Task:
    """A task, as the driver plans it: ranges in the order of their queues; the addresses are by broker name."""

    ranges: tuple[Range, ...]
    brokers: Mapping[str, Addresses]


def plan_tasks(network: BlockingNetwork, ranges: Iterable[Range], options: SourceOptions) -> list[InputPartition]:
    """The tasks of a batch, as Spark hands them to its workers."""
    return [
        InputPartition(Task(task_ranges, network.addresses_of({range.queue.broker_name for range in task_ranges})))
        for task_ranges in share(ranges, options.min_partitions, options.max_partitions, parallel_tasks(options))
    ]


def parallel_tasks(options: SourceOptions, environ: Mapping[str, str] = os.environ) -> int:
    """The number of tasks that Spark runs at once: by the option parallelTasks, or by the session on this machine."""
    return options.parallel_tasks or int(environ.get(CORES, DEFAULT_TASKS))


def ranges_in(network: BlockingNetwork, partition: InputPartition | None) -> tuple[Range, ...]:
    """Return the ranges of a partition; a query without partitions has a value of None, or in 4.1 no partition."""
    task: Task | None = partition.value if partition else None
    if task is None:
        return ()
    network.learn(task.brokers)
    return task.ranges


class BatchReader(DataSourceReader):
    """Reads topics once. Spark copies it to its workers, so it holds no connection."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        network = network_of(self._options)
        offset_client = OffsetClient(network, self._options)
        bounds = offset_client.bounds()
        ranges = between(offset_client.starts(bounds, otherwise="earliest"), offset_client.ends(bounds))
        return plan_tasks(network, ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        network = network_of(self._options)
        ranges = ranges_in(network, partition)
        rows = read(network, ranges, Rows(self._schema, self._options, ranges), self._options)
        return limit_rate(rows, self._options.rows_per_s)


_MAX_LONG: Final = 2**63 - 1
# Our columns and Kafka's, in lower case, and what of a range they are.
_RANGE_COLUMNS: Final[Mapping[str, Callable[[Range], Any]]] = {
    "topic": lambda range: range.queue.topic,
    "brokername": lambda range: range.queue.broker_name,
    "queueid": lambda range: range.queue.queue_id,
    "partition": lambda range: range.number,
}
_OFFSET_COLUMNS: Final = frozenset({"queueoffset", "offset"})
_TIME_COLUMNS: Final = frozenset({"storetimestamp", "timestamp"})
# The columns by which less is read.
FILTER_COLUMNS: Final = frozenset({*_RANGE_COLUMNS, *_OFFSET_COLUMNS, *_TIME_COLUMNS, "tags"})
_COMPARISONS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}


@dataclass(slots=True)
class PushedFilters:
    """The rows that some filters want, all together: half-open ranges of offsets and of milliseconds, and so on."""

    queues: list[tuple[str, type[Filter], Any]] = field(default_factory=list)
    offsets: tuple[int, int] = (0, _MAX_LONG)
    times_ms: tuple[int, int] = (0, _MAX_LONG)
    tags: frozenset[str] | None = None

    def add(self, condition: Filter) -> None:
        """Take one more filter into account, as far as it can be."""
        if type(condition) not in _COMPARISONS or len(condition.attribute) != 1 or _has_null(condition.value):  # type: ignore[attr-defined]
            return
        name, value = condition.attribute[0].lower(), condition.value  # type: ignore[attr-defined]
        if name in _RANGE_COLUMNS:
            self.queues.append((name, type(condition), value))
        elif name in _OFFSET_COLUMNS:
            self.offsets = _intersect(self.offsets, _value_range(condition, value))
        elif name in _TIME_COLUMNS and not isinstance(condition, In):
            floor = math.floor(value.timestamp() * 1000)
            first, end = _value_range(condition, floor)
            # Within a millisecond the filter may want more than its beginning.
            self.times_ms = _intersect(self.times_ms, (min(first, floor) if first else 0, max(end, floor + 1)))
        elif name == "tags" and isinstance(condition, EqualTo | EqualNullSafe | In):
            tags = frozenset(value if isinstance(condition, In) else [value])
            self.tags = tags if self.tags is None else self.tags & tags

    def matches(self, range: Range) -> bool:
        return all(_COMPARISONS[kind](_RANGE_COLUMNS[name](range), value) for name, kind, value in self.queues)

    @property
    def expression(self) -> str | None:
        """The tags as a subscription; None if they cannot be said so."""
        if not self.tags or any(tag != tag.strip() or not tag or "|" in tag or tag == ALL for tag in self.tags):
            return None
        return " || ".join(sorted(self.tags))


class FilteringReader(BatchReader):
    """A `BatchReader` that gets the filters of the query."""

    _filters: PushedFilters | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = PushedFilters()
        for condition in filters:
            self._filters.add(condition)
        expression = self._filters.expression
        if expression and self._options.expression == ALL and self._options.sql is None:
            self._options = replace(self._options, expression=expression)
        return filters

    def partitions(self) -> list[InputPartition]:
        network = network_of(self._options)
        offset_client, filters = OffsetClient(network, self._options), self._filters or PushedFilters()
        if filters.tags is not None and not filters.tags:
            return []
        bounds = offset_client.bounds()
        ranges = between(offset_client.starts(bounds, otherwise="earliest"), offset_client.ends(bounds))
        clamped = [_clamp_range(range, *filters.offsets) for range in ranges if filters.matches(range)]
        first_ms, end_ms = filters.times_ms
        in_time = [
            offset_client.narrow_to_times(range, first_ms or None, None if end_ms == _MAX_LONG else end_ms)
            for range in clamped
            if range.start < range.end
        ]
        return plan_tasks(network, [range for range in in_time if range.start < range.end], self._options)


def _value_range(condition: Filter, value: Any) -> tuple[int, int]:
    match condition:
        case In():
            return (min(value), max(value) + 1) if value else (0, 0)
        case GreaterThan():
            return value + 1, _MAX_LONG
        case GreaterThanOrEqual():
            return value, _MAX_LONG
        case LessThan():
            return 0, value
        case LessThanOrEqual():
            return 0, value + 1
    return value, value + 1


def _intersect(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return max(first[0], second[0]), min(first[1], second[1])


def _clamp_range(range: Range, first: int, end: int) -> Range:
    start = max(range.start, first)
    return replace(range, start=start, end=max(start, min(range.end, end)))


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and None in value)
