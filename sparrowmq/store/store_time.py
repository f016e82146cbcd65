"""The time that messages are stored at: the machine's clock, which somebody may set wrong, and right again.

    the clock goes on, or ahead          it is followed; ahead by more than an hour is told
    it is back by less than a minute     time stands still until the clock has come there again
    it is back by more                   time goes on by itself, for ten minutes; then the clock is believed

So one jump ahead does not give all messages of a year the time of next year, and a short jump back does nothing. Times
in the log rise but for that last case; who looks at them (retention) asks whether neighbours bear them out.
Unlike Java, which takes whatever the clock says.

What was deleted does not come back. So messages are old by a time of its own (`RetentionTime`), which does not follow a
clock that went ahead before that has lasted for a day: it may have been set wrong; or it was wrong before, or the
machine slept, and a day later all that is old enough goes.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

SMALL_STEP_MS: Final = 60_000
PATIENCE_S: Final = 600.0
_LEAP_MS: Final = 3_600_000
DAY_S: Final = 86_400.0


class StoreTime:
    """Tells the time for one store.

    Attributes:
        now_ms: what was told last.
    """

    def __init__(self, clock: Clock) -> None:
        self.now_ms = 0
        self._clock = clock
        self._told_s = clock.monotonic()
        self._was_read = False
        self._behind_s: float | None = None  # since when the clock is far behind

    def begin(self, last_ms: int) -> None:
        """Go on from the time of the last message in the log."""
        self.now_ms = last_ms
        self._told_s = self._clock.monotonic()
        self._was_read = False  # how long the broker was down nobody knows

    def read(self) -> int:
        """What time it is, in ms."""
        clock_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        gone_ms = round((now_s - self._told_s) * 1000)
        self._told_s = now_s
        if clock_ms >= self.now_ms:
            leap_ms = clock_ms - self.now_ms - gone_ms
            if leap_ms > _LEAP_MS and self._was_read and self._behind_s is None:
                log.warning(
                    "the clock went %d s ahead at once; messages are stored at its time: check it",
                    leap_ms // 1000,
                )
            self.now_ms = clock_ms
            self._behind_s = None
        elif self.now_ms - clock_ms > SMALL_STEP_MS:
            self._go_on_without(clock_ms, now_s, gone_ms)
        else:
            self._behind_s = None
        self._was_read = True
        return self.now_ms

    def _go_on_without(self, clock_ms: int, now_s: float, gone_ms: int) -> None:
        """The clock is far behind what was told: have patience with it, and then believe it."""
        behind_s = (self.now_ms - clock_ms) // 1000
        if self._behind_s is None:
            self._behind_s = now_s
            log.warning(
                "the clock is %d s behind the time of the last message; messages go on from there for %d minutes, and "
                "if it still is then, they follow it: check the machine's time",
                *(behind_s, PATIENCE_S // 60),
            )
        self.now_ms += gone_ms
        if now_s - self._behind_s >= PATIENCE_S:
            log.warning("the clock stays %d s behind; messages are stored at its time from now on", behind_s)
            self.now_ms, self._behind_s = clock_ms, None


class RetentionTime:
    """Tells the time by which messages are old; it is read every few seconds.

    Args:
        newest_ms: when the newest message was stored; 0 without any. A clock that is more than a day ahead of it at the
            start may be wrong, or nobody sent anything, or the broker was down: that is not known before a day is over.
    """

    def __init__(self, clock: Clock, newest_ms: int) -> None:
        self._clock = clock
        self._newest_ms = newest_ms
        self._told: tuple[int, float] | None = None  # what was told last, and when, by the steady clock
        self._ahead_s: float | None = None  # since when the clock is far ahead

    def read(self) -> int:
        """What time it is, in ms."""
        clock_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        told_ms = self._next_ms(clock_ms, now_s)
        self._told = (told_ms, now_s)
        return told_ms

    def _next_ms(self, clock_ms: int, now_s: float) -> int:
        if self._told is None:
            is_old = self._newest_ms and clock_ms - self._newest_ms > DAY_S * 1000
            expected_ms = self._newest_ms if is_old else clock_ms
        else:
            told_ms, told_s = self._told
            expected_ms = told_ms + round((now_s - told_s) * 1000)
        ahead_ms = clock_ms - expected_ms
        if ahead_ms > _LEAP_MS:
            if self._ahead_s is None:
                self._ahead_s = now_s
                log.warning(
                    "the clock is %d s ahead of the messages, or went ahead; if it still is in a day, old ones are "
                    "deleted by it, and until then by the time before: check it",
                    ahead_ms // 1000,
                )
            if now_s - self._ahead_s < DAY_S:
                return expected_ms
            log.warning("the clock stays %d s ahead; old messages are deleted by it now", ahead_ms // 1000)
        self._ahead_s = None
        return clock_ms
