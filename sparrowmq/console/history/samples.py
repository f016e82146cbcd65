"""The last hour: rates of brokers, and lags of the groups that visitors look at, sampled while the console runs.

Everything is bounded: an hour of points, and the groups that pages showed in the last ten minutes, at most a hundred.
`rate_history` has other days, in coarser steps. With a folder, the hour is written each minute and survives a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.console.history import last_hour
from sparrowmq.console.history.rate_history import History
from sparrowmq.console.history.topic_counting import Counting
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.reading.troubles import Troubles
from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

PERIOD_S: Final = 5.0
POINTS: Final = 720
_WATCH_S: Final = 600.0
_MOST_GROUPS: Final = 100
_SAVE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """The messages per second that one broker received and delivered."""

    time_ms: int
    taken: float
    given: float


class Samples:
    """The points, the oldest first, by broker and by group.

    Args:
        folder: of the history; None for none on disk.
    """

    def __init__(self, look: Look, clock: Clock, folder: Path | None = None) -> None:
        self._look = look
        self._clock = clock
        self.history = History(clock, folder)
        self.troubles = Troubles(look, clock)
        self.counting = Counting(look, self.history, clock)
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
        while len(self._watched) >= _MOST_GROUPS:
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
        found = await asyncio.to_thread(last_hour.load, self._folder, self._clock.now_ms())
        for broker, rates in found.rates.items():
            self._rates[broker] = deque((Rate(*each) for each in rates), maxlen=POINTS)
        for group, lags in list(found.lags.items())[:_MOST_GROUPS]:
            self._lags[group] = deque(lags, maxlen=POINTS)
            self._watched[group] = self._clock.monotonic()

    async def save(self) -> None:
        """Write the points of the last hour to the folder, in a thread."""
        self._saved_s = self._clock.monotonic()
        if self._folder is None:
            return
        rates = {
            broker: [(each.time_ms, each.taken, each.given) for each in points]
            for broker, points in self._rates.items()
        }
        lags = {group: list(points) for group, points in self._lags.items()}
        await asyncio.to_thread(last_hour.save, self._folder, last_hour.LastHour(rates, lags))

    async def sample(self) -> None:
        """One point of each. Raises: what `Look.look_again` raises."""
        now_ms = self._clock.now_ms()
        masters = [each for each in await self.troubles.look() if each.number == 0]
        for name in self._rates.keys() - {each.name for each in masters}:
            del self._rates[name]
        found = {
            each.name: Rate(now_ms, each.in_per_second, each.out_per_second)
            for each in masters
            if each.silence is None
        }
        for name, rate in found.items():
            self._rates.setdefault(name, deque(maxlen=POINTS)).append(rate)
        if found:
            self.history.note("in", {name: rate.taken for name, rate in found.items()})
            self.history.note("out", {name: rate.given for name, rate in found.items()})
        self._forget()
        for group, lag in (await self._look.lags(list(self._watched))).items():
            if not isinstance(lag, SparrowError):
                self._lags.setdefault(group, deque(maxlen=POINTS)).append((now_ms, lag.lag))

    def _forget(self) -> None:
        """Drop the groups that no page has shown of late."""
        limit_s = self._clock.monotonic() - _WATCH_S
        self._watched = {group: at_s for group, at_s in self._watched.items() if at_s >= limit_s}
        for group in self._lags.keys() - self._watched.keys():
            del self._lags[group]
