"""Messages that consumers receive: counts of messages and pulls, and the rate of each group.

    count_received    for a pull's answer: n messages, 1 pull, n for its group and topic, bytes and time for its queue
    sample            every 6 s: the counts of now; a pair without messages for a minute is forgotten

There is one small entry for each pair of group and topic of the last minute, and never more than MAX_PAIRS. As in Java,
a pull that is held until its time is over counts as two reads that find nothing.
Source: BrokerStatsManager.tpsGroupGetNums, Java 4.9.8: messages a second over the last minute.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sparrowmq.broker.part import Chore, Part
from sparrowmq.core.stats import Counter, Rate
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures, Rows

WINDOW_S: Final = 60.0
SAMPLE_PERIOD_S: Final = 6.0
# Pairs of group and topic beyond these are not measured, until others are forgotten.
MAX_PAIRS: Final = 10_000


class PullCounts:
    """Counts of one queue: the pulls of a group that brought messages, their bytes and their time."""

    __slots__ = ("pulls", "size_bytes", "took_ms")

    def __init__(self) -> None:
        self.pulls = self.size_bytes = self.took_ms = 0


class Pair:
    __slots__ = ("queues", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.queues: dict[int, PullCounts] = {}


class Consumption:
    def __init__(self, clock: Clock, figures: Figures) -> None:
        self._clock = clock
        self.messages = figures.counter("sparrowmq_messages_sent_total", "messages handed to consumers")
        self.pulls_with_messages = figures.counter("sparrowmq_pulls_found_total", "pulls with messages")
        self.missed = figures.counter("sparrowmq_pulls_missed_total", "reads of pulls that found no message")
        self.longest_read_s = 0.0
        self.sent_back: dict[tuple[str, str], int] = {}
        figures.gauge(
            "sparrowmq_longest_read_seconds", "the longest read of a pull since the start", lambda: self.longest_read_s
        )
        figures.gauges("sparrowmq_group_pace", "messages per second by group and topic", ("group", "topic"), self.paces)
        self._pairs: dict[tuple[str, str], Pair] = {}

    def part(self) -> Part:
        return Part(chores=(Chore("sample the pace of groups", SAMPLE_PERIOD_S, self.sample),))

    def count_received(
        self, group: str, topic: str, count: int, queue_id: int = 0, size_bytes: int = 0, took_s: float = 0.0
    ) -> None:
        """A pull of `group` is answered with `count` messages of `topic`; the read took `took_s`."""
        if took_s > self.longest_read_s:
            self.longest_read_s = took_s
        if not count:
            self.missed.value += 1
            return
        self.messages.value += count
        self.pulls_with_messages.value += 1
        pair = self._pairs.get((group, topic))
        if pair is None:
            if len(self._pairs) >= MAX_PAIRS:
                return
            pair = self._pairs[group, topic] = self._begin()
        pair.rate.counter.value += count
        pull_counts = pair.queues.get(queue_id)
        if pull_counts is None:
            pull_counts = pair.queues[queue_id] = PullCounts()
        pull_counts.pulls += 1
        pull_counts.size_bytes += size_bytes
        pull_counts.took_ms += int(took_s * 1000)

    def count_held(self) -> None:
        self.missed.value += 1

    def count_sent_back(self, group: str, topic: str) -> None:
        known_count = self.sent_back.get((group, topic))
        if known_count is not None or len(self.sent_back) < MAX_PAIRS:
            self.sent_back[group, topic] = (known_count or 0) + 1

    def per_second(self, group: str, topics: Iterable[str]) -> float:
        """Messages of these topics per second that the group received, over the last minute."""
        now_s = self._clock.monotonic()
        pairs = (self._pairs.get((group, topic)) for topic in topics)
        return sum((pair.rate.per_second(now_s)[0] for pair in pairs if pair is not None), 0.0)

    def paces(self) -> Rows:
        """Messages per second of each pair of group and topic, over the last minute."""
        now_s = self._clock.monotonic()
        for key, pair in list(self._pairs.items()):
            yield key, pair.rate.per_second(now_s)[0]

    def counts(self) -> list[tuple[tuple[str, str], int]]:
        return [(key, pair.rate.counter.value) for key, pair in self._pairs.items()]

    def pairs(self) -> list[tuple[tuple[str, str], Pair]]:
        return list(self._pairs.items())

    def sample(self) -> None:
        now_s = self._clock.monotonic()
        for key, pair in list(self._pairs.items()):
            if pair.rate.per_second(now_s)[0]:
                pair.rate.sample(now_s)
            else:
                del self._pairs[key]

    def _begin(self) -> Pair:
        rate = Rate(Counter(), (WINDOW_S,))
        rate.sample(self._clock.monotonic())
        return Pair(rate)
