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

import msgspec

from sparrowmq.console.history.rate_history import History
from sparrowmq.console.history.topic_counting import Counting
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.reading.troubles import Troubles
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, SparrowError
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
        found = await asyncio.to_thread(load, self._folder, self._clock.now_ms())
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
        await asyncio.to_thread(save, self._folder, LastHour(rates, lags))

    async def sample(self) -> None:
        """One point of each. Raises: what `Look.look_again` raises."""
        now_ms = self._clock.now_ms()
        masters = [each for each in await self.troubles.look() if each.number == 0]
        for name in self._rates.keys() - {each.name for each in masters}:
            del self._rates[name]
        found = {
            each.name: Rate(now_ms, each.in_per_second, each.out_per_second) for each in masters if each.silence is None
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


# The points of the last hour on disk, so that charts go on after a restart of the console.
#
# The file is written once a minute, as a whole, by a thread. A damaged file is left out with a warning, and the next
# minute replaces it. Its size is bounded, because the points in memory are.


_NAME: Final = "last-hour.json"
_HOUR_MS: Final = 3_600_000


class LastHour(msgspec.Struct):
    """The points, the oldest first.

    Attributes:
        rates: by broker: the time in milliseconds, and the messages per second that it received and delivered.
        lags: by group: the time in milliseconds, and the lag.
    """

    rates: dict[str, list[tuple[int, float, float]]] = {}
    lags: dict[str, list[tuple[int, int]]] = {}


def load(folder: Path, now_ms: int) -> LastHour:
    """Read the points that are not older than an hour; none if the file is absent or damaged."""
    try:
        found = snapshot.load(folder / _NAME, LastHour, tell=lambda text: log.warning("%s", text))
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


def save(folder: Path, points: LastHour) -> None:
    """Write the points; blocks for a sync. A failure is logged."""
    try:
        snapshot.save(folder / _NAME, points)
    except OSError as error:
        log.warning("the figures of the last hour are not written to %s: %s", folder, error)
