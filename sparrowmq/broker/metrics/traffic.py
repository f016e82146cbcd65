"""Messages into each topic and out to each group in the last minute, hour and day: VIEW_BROKER_STATS_DATA.

    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE    Orders              messages that entered the topic's queues, and their bytes
    GROUP_GET_NUMS, GROUP_GET_SIZE    Orders@billing      messages that the group pulled, and their bytes
    GROUP_GET_LATENCY                 0@Orders@billing    milliseconds of its pulls from a queue
    SNDBCK_PUT_NUMS                   Orders@billing      messages that the group sent back
    QUEUE_PUT_NUMS, QUEUE_PUT_SIZE    SCHEDULE_TOPIC_XXXX@1   of delay levels alone, as in Java
    BROKER_PUT_NUMS                   DefaultCluster      all that producers sent, and delayed messages at their times
    BROKER_GET_NUMS                   DefaultCluster      all that was pulled

No message is counted for it: the ends of a topic's queues rise by the messages that came in.
Source: BrokerStatsManager and AdminBrokerProcessor.ViewBrokerStatsData, Java 4.9.8. Unlike Java, which counts sends, a
committed message and a dead letter count in their topics.

Few of very many keys are busy, so amounts are kept by interval:

    totals      Orders 120, Bills 7 ...     of counters that only rise, looked at every ten seconds
    minute      6 intervals of 10 s         each holds what was added in it, for the keys to which something was
    hour        6 of 10 min
    day         24 of 1 h

An idle key costs one number. Unlike Java's StatsItem, which keeps 39 samples for each key that ever was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.part import Chore, Part
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.names import SCHEDULE_TOPIC, STATE_TOPIC
from sparrowmq.protocol.requests.bodies import StatsSpan
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
# Ours, not for tools: the pulls of a group in a topic, and in a queue.
_PULL_COUNT: Final = "pulls"
_QUEUE_PULL_COUNT: Final = "pulls of a queue"
# What a figure is divided by for its average; the others count one by one, and those of a broker have no average.
_DIVISORS: Final = {
    TOPIC_PUT_SIZE: TOPIC_PUT_NUMS,
    QUEUE_PUT_SIZE: QUEUE_PUT_NUMS,
    GROUP_GET_NUMS: _PULL_COUNT,
    GROUP_GET_SIZE: _PULL_COUNT,
    GROUP_GET_LATENCY: _QUEUE_PULL_COUNT,
}
_OF_BROKER: Final = (BROKER_PUT_NUMS, BROKER_GET_NUMS)
_DELIVERED: Final = ("sparrowmq_delay_delivered", "sparrowmq_timers_delivered_total")

# Queues that are looked at before others get a turn of the loop: about half a millisecond.
_QUEUES_AT_ONCE: Final = 2000

Key = tuple[str, str]  # the figure's name, and whose it is
K = TypeVar("K", bound=Hashable)
SAMPLE_PERIOD_S: Final = 10.0
# The length of one interval in seconds, and how many of them make the span: a minute, an hour, a day.
INTERVALS: Final = ((10.0, 6), (600.0, 6), (3600.0, 24))


class Traffic:
    """Messages in by topic, and out by group. Java uses the cluster's name for the figures of a whole broker."""

    def __init__(
        self, store: MessageStore, consumption: Consumption, cluster: str, clock: Clock, figures: Figures
    ) -> None:
        self._store = store
        self._consumption = consumption
        self._cluster = cluster
        self._clock = clock
        self._figures = figures
        self._spans = Spans[Key](clock.monotonic())
        totals: dict[Key, int] = dict(self._consumption_totals())
        for queue in store.queues:
            _add_queue(queue, totals)
        self._spans.sample(totals.items(), clock.monotonic())

    def part(self) -> Part:
        return Part(chores=(Chore("sample traffic", SAMPLE_PERIOD_S, self.sample),))

    async def sample(self) -> None:
        totals: dict[Key, int] = {}
        for count, queue in enumerate(self._store.queues, 1):
            _add_queue(queue, totals)
            if count % _QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)
        totals.update(self._consumption_totals())
        self._spans.sample(totals.items(), self._clock.monotonic())

    def of(self, name: str, key: str) -> tuple[StatsSpan, ...] | None:
        """A figure over the last minute, hour and day; None if nothing was counted in any of them."""
        if name in (_PULL_COUNT, _QUEUE_PULL_COUNT):
            return None
        now_s = self._clock.monotonic()
        amounts = self._spans.of((name, key), now_s)
        times = self._spans.of((_DIVISORS.get(name, name), key), now_s)
        if amounts is None and times is None:
            return None
        averaged = zip(amounts or _NOTHING, times or amounts or (), strict=True)
        return tuple(_span(amount, 0 if name in _OF_BROKER else divisor.sum) for amount, divisor in averaged)

    def _consumption_totals(self) -> Iterator[tuple[Key, int]]:
        for (group, topic), pair in self._consumption.pairs():
            key, queues = f"{topic}@{group}", pair.queues
            yield (GROUP_GET_NUMS, key), pair.rate.counter.value
            yield (GROUP_GET_SIZE, key), sum([pull_counts.size_bytes for pull_counts in queues.values()])
            yield (_PULL_COUNT, key), sum([pull_counts.pulls for pull_counts in queues.values()])
            for queue_id, pull_counts in queues.items():
                yield (GROUP_GET_LATENCY, f"{queue_id}@{key}"), pull_counts.took_ms
                yield (_QUEUE_PULL_COUNT, f"{queue_id}@{key}"), pull_counts.pulls
        for (group, topic), count in self._consumption.sent_back.items():
            yield (SNDBCK_PUT_NUMS, f"{topic}@{group}"), count
        yield (BROKER_PUT_NUMS, self._cluster), self._put_count()
        yield (BROKER_GET_NUMS, self._cluster), int(self._figures.value("sparrowmq_messages_sent_total"))

    def _put_count(self) -> int:
        delivered = [self._figures.values(name).values() for name in _DELIVERED if name in self._figures]
        sent = self._figures.value("sparrowmq_messages_received_total")
        return int(sent + sum([sum(values) for values in delivered]))


def _span(amount: Amount, divisors: int) -> StatsSpan:
    return StatsSpan(amount.sum, amount.per_second, amount.sum / divisors if divisors else 0.0)


def _add_queue(queue: ConsumeQueue, totals: dict[Key, int]) -> None:
    topic, size_bytes = queue.topic, queue.added_bytes
    if topic == STATE_TOPIC:
        return
    for key, count in (((TOPIC_PUT_NUMS, topic), queue.max_offset), ((TOPIC_PUT_SIZE, topic), size_bytes)):
        totals[key] = totals.get(key, 0) + count
    if topic == SCHEDULE_TOPIC:
        name = f"{topic}@{queue.queue_id}"
        totals[QUEUE_PUT_NUMS, name], totals[QUEUE_PUT_SIZE, name] = queue.max_offset, size_bytes


@dataclass(frozen=True, slots=True)
class Amount:
    sum: int
    per_second: float


_NOTHING: Final = (Amount(0, 0.0),) * len(INTERVALS)


class Spans(Generic[K]):
    def __init__(self, now_s: float) -> None:
        self._last_totals: Mapping[K, int] | None = None
        self._spans = [_Span[K](length_s, count, now_s) for length_s, count in INTERVALS]

    def sample(self, totals: Iterable[tuple[K, int]], now_s: float) -> None:
        """Remember all counters; called about every ten seconds.

        The first time says where they begin. Later a key that is new, or lower than before, begins at 0.
        """
        last_totals = dict(totals)
        if self._last_totals is not None:
            totals_before = self._last_totals
            growth = {
                key: total - known_total if total >= (known_total := totals_before.get(key, 0)) else total
                for key, total in last_totals.items()
                if total != totals_before.get(key, 0)
            }
            for span in self._spans:
                span.add(growth, now_s)
        self._last_totals = last_totals

    def of(self, key: K, now_s: float) -> tuple[Amount, ...] | None:
        amounts = tuple(span.of(key, now_s) for span in self._spans)
        return amounts if any(amount.sum for amount in amounts) else None


class _Span(Generic[K]):
    def __init__(self, length_s: float, count: int, now_s: float) -> None:
        self._length_s = length_s
        self._full_intervals: deque[tuple[float, dict[K, int]]] = deque(maxlen=count)  # each with its beginning
        self._begin_s = now_s
        self._current: dict[K, int] = {}

    def add(self, growth: Mapping[K, int], now_s: float) -> None:
        for key, more in growth.items():
            self._current[key] = self._current.get(key, 0) + more
        if now_s - self._begin_s >= self._length_s:
            self._full_intervals.append((self._begin_s, self._current))
            self._begin_s, self._current = now_s, {}

    def of(self, key: K, now_s: float) -> Amount:
        total = self._current.get(key, 0) + sum(row.get(key, 0) for _, row in self._full_intervals)
        begin_s = self._full_intervals[0][0] if self._full_intervals else self._begin_s
        # A rate over less than an interval would be wrong.
        return Amount(total, total / max(now_s - begin_s, self._length_s))
