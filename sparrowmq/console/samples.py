"""The last hour: rates of brokers, and lags of the groups that visitors look at, sampled while the console runs.

Everything is bounded: an hour of points, and the groups that pages showed in the last ten minutes, at most a hundred.
`history` has other days, in coarser steps. With a folder, a thread writes the hour as a whole each minute, so charts go
on after a restart. A damaged file is left out with a warning, and the next minute replaces it.

The messages of each topic are counted in rounds, by a request to each master of a topic:

    a round     all topics once, at 70 requests per second, which costs little; the first round is faster
    a minute    from one round to the next; of a small cluster six times as long as a round takes, but ten seconds
    4 minutes   a round takes at most, with as many questions a second as that needs: each step of the history has one

What there is to know is VIEW_BROKER_STATS_DATA, TOPIC_PUT_NUMS: what a topic took within the last minute, and within
the last day. Topics that RocketMQ has for itself are left out. Source: DashboardCollectTask, rocketmq-dashboard 2.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.client.admin import brokers
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.history import History
from sparrowmq.console.troubles import Troubles
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, NetworkError, SparrowError
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)
PERIOD_S: Final = 5.0
POINTS: Final = 720
_WATCH_S: Final = 600.0
_MAX_GROUPS: Final = 100
_SAVE_S: Final = 60.0
_LAST_HOUR_FILE: Final = "last-hour.json"
_HOUR_MS: Final = 3_600_000
_TOPIC_COUNTER: Final = "TOPIC_PUT_NUMS"
_PERIOD_S: Final = (10.0, 60.0)
_PAUSE_FACTOR: Final = 6  # a round is at most so much of the time, in a small cluster
_MAX_ROUND_S: Final = 240.0
_PER_SECOND: Final = 70
_FIRST_PER_SECOND: Final = 700  # a visitor may wait for the first figures
_AT_ONCE: Final = 35


@dataclass(frozen=True, slots=True)
class Rate:
    """The messages per second that one broker received and delivered."""

    time_ms: int
    received: float
    delivered: float


class Samples:
    """The points, the oldest first, by broker and by group."""

    def __init__(self, look: ClusterView, clock: Clock, folder: Path | None = None) -> None:
        self._look = look
        self._clock = clock
        self.history = History(clock, folder)
        self.troubles = Troubles(look, clock)
        self.topic_counts = TopicCounts(look, self.history, clock)
        self._rates: dict[str, deque[Rate]] = {}
        self._lags: dict[str, deque[tuple[int, int]]] = {}
        self._watched: dict[str, float] = {}
        self._folder = folder
        self._saved_s = clock.monotonic()

    def rates(self) -> dict[str, list[Rate]]:
        return {broker: list(points) for broker, points in sorted(self._rates.items())}

    def lags(self, group: str) -> list[tuple[int, int]]:
        """Times in milliseconds and lags of a group; from now on the console samples it."""
        self._watched.pop(group, None)
        while len(self._watched) >= _MAX_GROUPS:
            del self._watched[next(iter(self._watched))]
        self._watched[group] = self._clock.monotonic()
        return self.known_lags(group)

    def known_lags(self, group: str) -> list[tuple[int, int]]:
        """Times in milliseconds and lags of a group, if the console samples it."""
        return list(self._lags.get(group, ()))

    async def run(self) -> None:
        """Sample until cancelled. With a folder, go on where the last console stopped."""
        await self.restore()
        while True:
            try:
                await self.sample()
            except SparrowError as error:
                log.debug("nothing sampled: %s", error)
            await self.history.close_step()
            if self._clock.monotonic() - self._saved_s >= _SAVE_S:
                await self.save()
            await self._clock.sleep(PERIOD_S)

    async def restore(self) -> None:
        """Take the points of the last hour from the folder."""
        if self._folder is None:
            return
        found = await asyncio.to_thread(load_last_hour, self._folder, self._clock.now_ms())
        for broker, rates in found.rates.items():
            self._rates[broker] = deque((Rate(*each) for each in rates), maxlen=POINTS)
        for group, lags in list(found.lags.items())[:_MAX_GROUPS]:
            self._lags[group] = deque(lags, maxlen=POINTS)
            self._watched[group] = self._clock.monotonic()

    async def save(self) -> None:
        """Write the points of the last hour to the folder, in a thread."""
        self._saved_s = self._clock.monotonic()
        if self._folder is None:
            return
        rates = {
            broker: [(each.time_ms, each.received, each.delivered) for each in points]
            for broker, points in self._rates.items()
        }
        lags = {group: list(points) for group, points in self._lags.items()}
        await asyncio.to_thread(save_last_hour, self._folder, LastHour(rates, lags))

    async def sample(self) -> None:
        """One point of each. Raises: what `ClusterView.poll_brokers` raises."""
        now_ms = self._clock.now_ms()
        masters = [each for each in await self.troubles.poll() if each.number == 0]
        for name in self._rates.keys() - {each.name for each in masters}:
            del self._rates[name]
        found = {
            each.name: Rate(now_ms, each.in_per_second, each.out_per_second) for each in masters if each.silence is None
        }
        for name, rate in found.items():
            self._rates.setdefault(name, deque(maxlen=POINTS)).append(rate)
        if found:
            self.history.note("in", {name: rate.received for name, rate in found.items()})
            self.history.note("out", {name: rate.delivered for name, rate in found.items()})
        self._forget()
        for group, lag in (await self._look.lags(list(self._watched))).items():
            if not isinstance(lag, SparrowError):
                self._lags.setdefault(group, deque(maxlen=POINTS)).append((now_ms, lag.lag))

    def _forget(self) -> None:
        limit_s = self._clock.monotonic() - _WATCH_S
        self._watched = {group: at_s for group, at_s in self._watched.items() if at_s >= limit_s}
        for group in self._lags.keys() - self._watched.keys():
            del self._lags[group]


class LastHour(msgspec.Struct):
    """The points, the oldest first.

    Attributes:
        rates: by broker: the time in milliseconds, and the messages per second that it received and delivered.
        lags: by group: the time in milliseconds, and the lag.
    """

    rates: dict[str, list[tuple[int, float, float]]] = {}
    lags: dict[str, list[tuple[int, int]]] = {}


def load_last_hour(folder: Path, now_ms: int) -> LastHour:
    """Read the points that are not older than an hour; none if the file is absent or damaged."""
    try:
        found = snapshot.load(folder / _LAST_HOUR_FILE, LastHour, report=lambda text: log.warning("%s", text))
    except (BadStore, OSError) as error:
        log.warning("the figures of the last hour are lost: %s", error)
        found = None
    if found is None:
        return LastHour()
    span = range(now_ms - _HOUR_MS, now_ms + 1)
    rates = {name: [each for each in points if each[0] in span] for name, points in found.rates.items()}
    lags = {name: [each for each in points if each[0] in span] for name, points in found.lags.items()}
    return LastHour(
        {name: points for name, points in rates.items() if points},
        {name: points for name, points in lags.items() if points},
    )


def save_last_hour(folder: Path, points: LastHour) -> None:
    """Write the points; blocks for a sync. A failure is logged."""
    try:
        snapshot.save(folder / _LAST_HOUR_FILE, points)
    except OSError as error:
        log.warning("the figures of the last hour are not written to %s: %s", folder, error)


class TopicCounts:
    """The result of the last whole round.

    Attributes:
        failure: why a broker did not answer.
    """

    def __init__(self, look: ClusterView, history: History, clock: Clock) -> None:
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
            await self._clock.sleep(max(1.0, min(max(_PAUSE_FACTOR * took_s, least_s), most_s) - took_s))

    async def round(self) -> None:
        """Ask for each topic once. Raises: what `ClusterView.topics` raises."""
        asked = await self._questions()
        least = _PER_SECOND if self.is_complete else _FIRST_PER_SECOND
        pause_s = _AT_ONCE / max(least, len(asked) / _MAX_ROUND_S)
        counts: dict[str, int] = {}
        rates: dict[str, float] = {}
        silent: dict[str, SparrowError] = {}

        async def ask(topic: str, address: str) -> None:
            try:
                found = await brokers.traffic(self._look.servers, address, _TOPIC_COUNTER, topic)
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
        masters = {each.name: each.master for each in await self._look.admin.brokers()}
        found = []
        for topic, configs in (await self._look.topics()).items():
            if self._look.kind_of(topic) == "topic":
                found += [(topic, address) for name in configs if (address := masters.get(name)) is not None]
        return found


def _chunks(questions: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    for begin in range(0, len(questions), _AT_ONCE):
        yield questions[begin : begin + _AT_ONCE]
