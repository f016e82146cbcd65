"""Filters of a batch query that spare reading: `where queueId = 0` reads one queue, a time range searches its ends.

Spark hands a query's filters over if the session allows it (`spark.sql.python.filterPushdown.enabled`). They become
queues, ranges of offsets and of times, and tags; each leaves at least the rows that the filters want, and Spark applies
all of them again to what was read. So nothing here needs to be exact, and what is not understood is left to Spark.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql.datasource import (
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

from sparrowmq.protocol.subscription import ALL
from sparrowmq.spark.source.batch_source import BatchReader
from sparrowmq.spark.source.partition_ranges import Range, between
from sparrowmq.spark.source.query_offsets import Plan
from sparrowmq.spark.source.tasks import tasks
from sparrowmq.spark.worker_network import network_of

_MOST: Final = 2**63 - 1
# Our columns and Kafka's, in lower case, and what of a range they are.
_OF_RANGES: Final[Mapping[str, Callable[[Range], Any]]] = {
    "topic": lambda range: range.queue.topic,
    "brokername": lambda range: range.queue.broker_name,
    "queueid": lambda range: range.queue.queue_id,
    "partition": lambda range: range.number,
}
_OFFSETS: Final = frozenset({"queueoffset", "offset"})
_TIMES: Final = frozenset({"storetimestamp", "timestamp"})
CHOOSING: Final = frozenset({*_OF_RANGES, *_OFFSETS, *_TIMES, "tags"})  # the columns by which less is read
_COMPARE: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}


@dataclass(slots=True)
class Chosen:
    """The rows that some filters want, all together: half-open ranges of offsets and of milliseconds, and so on."""

    queues: list[tuple[str, type[Filter], Any]] = field(default_factory=list)
    offsets: tuple[int, int] = (0, _MOST)
    times_ms: tuple[int, int] = (0, _MOST)
    tags: frozenset[str] | None = None

    def add(self, wanted: Filter) -> None:
        """Take one more filter into account, as far as it can be."""
        if type(wanted) not in _COMPARE or len(wanted.attribute) != 1 or _has_null(wanted.value):  # type: ignore[attr-defined]
            return
        name, value = wanted.attribute[0].lower(), wanted.value  # type: ignore[attr-defined]
        if name in _OF_RANGES:
            self.queues.append((name, type(wanted), value))
        elif name in _OFFSETS:
            self.offsets = _narrowed(self.offsets, _range_of(wanted, value))
        elif name in _TIMES and not isinstance(wanted, In):
            floor = math.floor(value.timestamp() * 1000)
            first, end = _range_of(wanted, floor)
            # Within a millisecond the filter may want more than its beginning.
            self.times_ms = _narrowed(self.times_ms, (min(first, floor) if first else 0, max(end, floor + 1)))
        elif name == "tags" and isinstance(wanted, EqualTo | EqualNullSafe | In):
            tags = frozenset(value if isinstance(wanted, In) else [value])
            self.tags = tags if self.tags is None else self.tags & tags

    def has(self, range: Range) -> bool:
        """Whether a range may have rows that are wanted."""
        return all(_COMPARE[kind](_OF_RANGES[name](range), value) for name, kind, value in self.queues)

    @property
    def expression(self) -> str | None:
        """The tags as a subscription; None if they cannot be said so."""
        if not self.tags or any(tag != tag.strip() or not tag or "|" in tag or tag == ALL for tag in self.tags):
            return None
        return " || ".join(sorted(self.tags))


class FilteringReader(BatchReader):
    """A `BatchReader` that gets the filters of the query."""

    _chosen: Chosen | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._chosen = Chosen()
        for each in filters:
            self._chosen.add(each)
        expression = self._chosen.expression
        if expression and self._options.expression == ALL and self._options.sql is None:
            self._options = replace(self._options, expression=expression)
        return filters

    def partitions(self) -> list[InputPartition]:
        network = network_of(self._options)
        plan, chosen = Plan(network, self._options), self._chosen or Chosen()
        if chosen.tags is not None and not chosen.tags:
            return []
        bounds = plan.bounds()
        ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
        clamped = [_clamped(each, *chosen.offsets) for each in ranges if chosen.has(each)]
        first_ms, end_ms = chosen.times_ms
        within = [
            plan.within(each, first_ms or None, None if end_ms == _MOST else end_ms)
            for each in clamped
            if each.start < each.end
        ]
        return tasks(network, [each for each in within if each.start < each.end], self._options)


def _range_of(wanted: Filter, value: Any) -> tuple[int, int]:
    """The whole numbers that a filter wants, half open."""
    match wanted:
        case In():
            return (min(value), max(value) + 1) if value else (0, 0)
        case GreaterThan():
            return value + 1, _MOST
        case GreaterThanOrEqual():
            return value, _MOST
        case LessThan():
            return 0, value
        case LessThanOrEqual():
            return 0, value + 1
    return value, value + 1


def _narrowed(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _clamped(whole: Range, first: int, end: int) -> Range:
    start = max(whole.start, first)
    return replace(whole, start=start, end=max(start, min(whole.end, end)))


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and None in value)
