"""Messages that consumers receive: counts of messages and pulls, and the rate of each group.

    a pull's answer ── took ── + n messages, + 1 pull, + n for its group and topic
    every 6 s       ── sample ── the counts of now; a pair without messages for a minute is forgotten

There is one small entry for each pair of group and topic of the last minute, and never more than MOST_PAIRS.
Source: BrokerStatsManager.tpsGroupGetNums, Java 4.9.8: messages a second over the last minute.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sparrowmq.broker.part import Chore, Part
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.stats import Counter, Rate

WINDOW_S: Final = 60.0
SAMPLE_PERIOD_S: Final = 6.0
# Pairs of group and topic beyond these are not measured, until others are forgotten.
MOST_PAIRS: Final = 10_000


class Consumption:
    """Counts of what was handed to consumers.

    Attributes:
        messages: in answers to pulls.
        found: pulls that brought messages.
        missed: pulls that brought none.
    """

    def __init__(self, clock: Clock, figures: Figures) -> None:
        self._clock = clock
        self.messages = figures.counter("sparrowmq_messages_sent_total", "messages handed to consumers")
        self.found = figures.counter("sparrowmq_pulls_found_total", "pulls with messages")
        self.missed = figures.counter("sparrowmq_pulls_missed_total", "pulls without messages")
        figures.gauges(
            "sparrowmq_group_pace", "messages per second by group and topic", ("group", "topic"), self.paces
        )
        self._pairs: dict[tuple[str, str], Rate] = {}

    def part(self) -> Part:
        """Samples the counters."""
        return Part(chores=(Chore("sample the pace of groups", SAMPLE_PERIOD_S, self.sample),))

    def took(self, group: str, topic: str, count: int) -> None:
        """A pull of `group` is answered with `count` messages of `topic`."""
        if not count:
            self.missed.value += 1
            return
        self.messages.value += count
        self.found.value += 1
        rate = self._pairs.get((group, topic))
        if rate is None:
            if len(self._pairs) >= MOST_PAIRS:
                return
            rate = self._pairs[group, topic] = self._begin()
        rate.counter.value += count

    def per_second(self, group: str, topics: Iterable[str]) -> float:
        """Messages of these topics per second that the group received, over the last minute."""
        now_s = self._clock.monotonic()
        rates = (self._pairs.get((group, topic)) for topic in topics)
        return sum((rate.per_second(now_s)[0] for rate in rates if rate is not None), 0.0)

    def paces(self) -> Rows:
        """Messages per second of each pair of group and topic, over the last minute."""
        now_s = self._clock.monotonic()
        return [(pair, rate.per_second(now_s)[0]) for pair, rate in self._pairs.items()]

    def counts(self) -> list[tuple[tuple[str, str], int]]:
        """Messages of each pair of group and topic since the pair was last forgotten."""
        return [(pair, rate.counter.value) for pair, rate in self._pairs.items()]

    def sample(self) -> None:
        """Remember the counts; called every SAMPLE_PERIOD_S."""
        now_s = self._clock.monotonic()
        for pair, rate in list(self._pairs.items()):
            if rate.per_second(now_s)[0]:
                rate.sample(now_s)
            else:
                del self._pairs[pair]

    def _begin(self) -> Rate:
        rate = Rate(Counter(), (WINDOW_S,))
        rate.sample(self._clock.monotonic())
        return rate
