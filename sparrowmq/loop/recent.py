"""Events of the last seconds: whether they come again and again, and the latest one."""

from __future__ import annotations

from collections import deque
from typing import Final

from sparrowmq.loop.clock import Clock

PERIOD_S: Final = 30.0


class Recent:
    """Remembers the latest events of one sort.

    Args:
        least: the number of events within PERIOD_S that is worth a report.
    """

    def __init__(self, clock: Clock, least: int = 1) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=least)
        self._last = ""

    def note(self, event: str) -> None:
        self._times.append(self._clock.monotonic())
        self._last = event

    def forget(self) -> None:
        """Forget all events, because their cause is gone."""
        self._times.clear()

    @property
    def last(self) -> str:
        """The text of the latest event, if there were enough of them within PERIOD_S; otherwise ""."""
        times = self._times
        is_full = len(times) == times.maxlen
        return self._last if is_full and self._clock.monotonic() - times[0] < PERIOD_S else ""
