"""Counts the messages of each topic: it asks each master of a topic, in rounds.

    a round     all topics once, at 70 requests per second, which costs little; the first round is faster
    a minute    from one round to the next; of a small cluster six times as long as a round takes, but ten seconds
    4 minutes   a round takes at most, with as many questions a second as that needs: each step of the history has one

What there is to know is VIEW_BROKER_STATS_DATA, TOPIC_PUT_NUMS: what a topic took within the last minute, and within
the last day. Topics that RocketMQ has for itself are left out. Source: DashboardCollectTask, rocketmq-dashboard 2.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Final

from sparrowmq.client.admin import brokers
from sparrowmq.console.history.rate_history import History
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.errors import NetworkError, SparrowError
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

_NAME: Final = "TOPIC_PUT_NUMS"
_PERIOD_S: Final = (10.0, 60.0)
_REST: Final = 6  # a round is at most so much of the time, in a small cluster
_LONGEST_S: Final = 240.0
_PER_SECOND: Final = 70
_FIRST_PER_SECOND: Final = 700  # a visitor may wait for the first figures
_AT_ONCE: Final = 35


class Counting:
    """The result of the last whole round.

    Attributes:
        is_complete: a round has ended.
        failure: why a broker did not answer.
    """

    def __init__(self, look: Look, history: History, clock: Clock) -> None:
        self._look = look
        self._history = history
        self._clock = clock
        self._counts: dict[str, int] = {}
        self.is_complete = False
        self.failure: SparrowError | None = None

    def top(self, count: int) -> list[tuple[str, int]]:
        """The topics with the most messages within a day, the greatest first, without empty ones."""
        return nlargest(
            count, ((name, number) for name, number in self._counts.items() if number), lambda each: each[1]
        )

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            begun_s = self._clock.monotonic()
            try:
                await self.round()
            except SparrowError as error:
                self.failure = error
                log.debug("nothing counted: %s", error)
            took_s = self._clock.monotonic() - begun_s
            least_s, most_s = _PERIOD_S
            await self._clock.sleep(max(1.0, min(max(_REST * took_s, least_s), most_s) - took_s))

    async def round(self) -> None:
        """Ask for each topic once. Raises: what `Look.topics` raises."""
        asked = await self._questions()
        least = _PER_SECOND if self.is_complete else _FIRST_PER_SECOND
        pause_s = _AT_ONCE / max(least, len(asked) / _LONGEST_S)
        counts: dict[str, int] = {}
        rates: dict[str, float] = {}
        silent: dict[str, SparrowError] = {}

        async def ask(topic: str, address: str) -> None:
            try:
                found = await brokers.traffic(self._look.servers, address, _NAME, topic)
            except SparrowError as error:
                if isinstance(error, NetworkError):
                    silent[address] = error  # nothing more in this round
                self.failure = error
                return
            counts[topic] = counts.get(topic, 0) + found.sum_of_day
            rates[topic] = rates.get(topic, 0.0) + found.stats_minute.tps

        self.failure = None
        for chunk in _chunks(asked):
            await asyncio.gather(*(ask(*each) for each in chunk if each[1] not in silent))
            await self._clock.sleep(pause_s)
        if counts or not self.failure:
            self._counts, self.is_complete = counts, True
            self._history.note("topic", {name: rate for name, rate in rates.items() if rate})

    async def _questions(self) -> list[tuple[str, str]]:
        """Each topic with the address of each master that has it."""
        masters = {each.name: each.master for each in await self._look.admin.brokers()}
        found = []
        for topic, configs in (await self._look.topics()).items():
            if self._look.kind_of(topic) == "topic":
                found += [(topic, address) for name in configs if (address := masters.get(name)) is not None]
        return found


def _chunks(asked: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    for begin in range(0, len(asked), _AT_ONCE):
        yield asked[begin : begin + _AT_ONCE]
