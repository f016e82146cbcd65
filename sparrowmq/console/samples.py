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
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.admin import brokers
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
_MIN_AND_MAX_PERIOD_S: Final = (10.0, 60.0)
_PAUSE_FACTOR: Final = 6  # a round is at most so much of the time, in a small cluster
_MAX_ROUND_S: Final = 240.0
_REQUESTS_PER_SECOND: Final = 70
_FIRST_REQUESTS_PER_SECOND: Final = 700  # a visitor may wait for the first figures
_AT_ONCE: Final = 35


@dataclass(frozen=True, slots=True)
class Rate:
    """The messages per second that one broker received and delivered."""

    time_ms: int
    received: float
    delivered: float


class Samples:
    """The points, the oldest first, by broker and by group."""

    def __init__(self, cluster: ClusterView, clock: Clock, folder: Path | None = None) -> None:
        self._cluster = cluster
        self._clock = clock
        self.history = History(clock, folder)
        self.troubles = Troubles(cluster, clock)
        self.topic_counts = TopicCounts(cluster, self.history, clock)
        self._rates: dict[str, deque[Rate]] = {}
        self._lags: dict[str, deque[tuple[int, int]]] = {}
        self._watched: dict[str, float] = {}
        self._folder = folder
        self._saved_s = clock.monotonic()

    def rates(self) -> dict[str, list[Rate]]:
        return {broker: list(points) for broker, points in sorted(self._rates.items())}

    def watch_lags(self, group: str) -> list[tuple[int, int]]:
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
        last_hour = await asyncio.to_thread(load_last_hour, self._folder, self._clock.now_ms())
        for broker, rates in last_hour.rates.items():
            self._rates[broker] = deque((Rate(*rate) for rate in rates), maxlen=POINTS)
        for group, lags in list(last_hour.lags.items())[:_MAX_GROUPS]:
            self._lags[group] = deque(lags, maxlen=POINTS)
            self._watched[group] = self._clock.monotonic()

    async def save(self) -> None:
        """Write the points of the last hour to the folder, in a thread."""
        self._saved_s = self._clock.monotonic()
        if self._folder is None:
            return
        rates = {
            broker: [(rate.time_ms, rate.received, rate.delivered) for rate in points]
            for broker, points in self._rates.items()
        }
        lags = {group: list(points) for group, points in self._lags.items()}
        await asyncio.to_thread(save_last_hour, self._folder, LastHour(rates, lags))

    async def sample(self) -> None:
        """One point of each. Raises: what `ClusterView.poll_brokers` raises."""
        now_ms = self._clock.now_ms()
        masters = [broker for broker in await self.troubles.poll() if broker.number == 0]
        for name in self._rates.keys() - {master.name for master in masters}:
            del self._rates[name]
        answering = [master for master in masters if master.silence is None]
        for master in answering:
            rate = Rate(now_ms, master.in_per_second, master.out_per_second)
            self._rates.setdefault(master.name, deque(maxlen=POINTS)).append(rate)
        if answering:
            self.history.note("in", {master.name: master.in_per_second for master in answering})
            self.history.note("out", {master.name: master.out_per_second for master in answering})
        limit_s = self._clock.monotonic() - _WATCH_S
        self._watched = {group: watched_s for group, watched_s in self._watched.items() if watched_s >= limit_s}
        for group in self._lags.keys() - self._watched.keys():
            del self._lags[group]
        for group, lag in (await self._cluster.lags(list(self._watched))).items():
            if not isinstance(lag, SparrowError):
                self._lags.setdefault(group, deque(maxlen=POINTS)).append((now_ms, lag.lag))


class LastHour(msgspec.Struct):
    """The points, the oldest first."""

    # By broker: the time in milliseconds, and the messages per second that it received and delivered.
    rates: dict[str, list[tuple[int, float, float]]] = {}
    lags: dict[str, list[tuple[int, int]]] = {}  # by group: the time in milliseconds, and the lag


def load_last_hour(folder: Path, now_ms: int) -> LastHour:
    """Read the points that are not older than an hour; none if the file is absent or damaged."""
    try:
        file = snapshot.load(folder / _LAST_HOUR_FILE, LastHour, report=lambda text: log.warning("%s", text))
    except (BadStore, OSError) as error:
        log.warning("the figures of the last hour are lost: %s", error)
        file = None
    if file is None:
        return LastHour()
    span = range(now_ms - _HOUR_MS, now_ms + 1)
    rates = {name: [point for point in points if point[0] in span] for name, points in file.rates.items()}
    lags = {name: [point for point in points if point[0] in span] for name, points in file.lags.items()}
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
    """The result of the last whole round; `failure` says why a broker did not answer."""

    def __init__(self, cluster: ClusterView, history: History, clock: Clock) -> None:
        self._cluster = cluster
        self._history = history
        self._clock = clock
        self._counts: dict[str, int] = {}
        self.is_complete = False
        self.failure: SparrowError | None = None

    def top(self, count: int) -> list[tuple[str, int]]:
        """The topics with the most messages within a day, the greatest first, without empty ones."""
        topics = ((name, number) for name, number in self._counts.items() if number)
        return nlargest(count, topics, lambda topic: topic[1])

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
            least_s, most_s = _MIN_AND_MAX_PERIOD_S
            await self._clock.sleep(max(1.0, min(max(_PAUSE_FACTOR * took_s, least_s), most_s) - took_s))

    async def round(self) -> None:
        """Ask for each topic once. Raises: what `ClusterView.topics` raises."""
        masters = {place.name: place.master for place in await self._cluster.admin.brokers()}
        questions = [
            (topic, address)
            for topic, configs in (await self._cluster.topics()).items()
            if self._cluster.kind_of(topic) == "topic"
            for name in configs
            if (address := masters.get(name)) is not None
        ]
        min_per_second = _REQUESTS_PER_SECOND if self.is_complete else _FIRST_REQUESTS_PER_SECOND
        pause_s = _AT_ONCE / max(min_per_second, len(questions) / _MAX_ROUND_S)
        counts: dict[str, int] = {}
        rates: dict[str, float] = {}
        silent: dict[str, SparrowError] = {}

        async def ask(topic: str, address: str) -> None:
            try:
                traffic = await brokers.traffic(self._cluster.servers, address, _TOPIC_COUNTER, topic)
            except SparrowError as error:
                if isinstance(error, NetworkError):
                    silent[address] = error  # nothing more in this round
                self.failure = error
                return
            counts[topic] = counts.get(topic, 0) + traffic.sum_of_day
            rates[topic] = rates.get(topic, 0.0) + traffic.stats_minute.tps

        self.failure = None
        for begin in range(0, len(questions), _AT_ONCE):
            chunk = questions[begin : begin + _AT_ONCE]
            await asyncio.gather(*(ask(topic, address) for topic, address in chunk if address not in silent))
            await self._clock.sleep(pause_s)
        if counts or not self.failure:
            self._counts, self.is_complete = counts, True
            self._history.note("topic", {name: rate for name, rate in rates.items() if rate})
