"""The time at which messages are stored: the machine's clock, protected against wrong settings and their correction.

    the clock goes on, or jumps ahead    the store time follows it; a jump of more than an hour is logged
    it lags by up to a minute            the store time pauses until the clock has reached it
    it lags by more                      the store time goes on without the clock for ten minutes, then follows it

So one wrong jump ahead by a year does not give all later messages the time of next year, and a short jump back has no
effect. Store timestamps in the log never go back, except in the last case. Unlike Java, which takes every time of the
clock.

Deleted messages cannot be restored, so the age of messages is measured by a separate time, `RetentionTime`. When the
clock is ahead by more than an hour, this time follows it only after a day. A clock that was set wrong can be corrected
within that day.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

SMALL_STEP_MS: Final = 60_000
MAX_LAG_S: Final = 600.0
_MAX_STEP_MS: Final = 3_600_000
DAY_S: Final = 86_400.0


class StoreTime:
    """The source of one store's timestamps."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = 0  # the time that was returned last
        self._clock = clock
        self._last_read_s = clock.monotonic()
        self._was_read = False
        self._behind_s: float | None = None  # when the clock began to lag by more than a minute

    def begin(self, last_ms: int) -> None:
        """Continue from the time of the last message in the log."""
        self.now_ms = last_ms
        self._last_read_s = self._clock.monotonic()
        self._was_read = False  # the broker's downtime is unknown, so the first read reports no jump

    def read(self) -> int:
        clock_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        elapsed_ms = round((now_s - self._last_read_s) * 1000)
        self._last_read_s = now_s
        if clock_ms >= self.now_ms:
            leap_ms = clock_ms - self.now_ms - elapsed_ms
            if leap_ms > _MAX_STEP_MS and self._was_read and self._behind_s is None:
                log.warning(
                    "the clock jumped ahead by %d s; messages are stored with its time: check it", leap_ms // 1000
                )
            self.now_ms = clock_ms
            self._behind_s = None
        elif self.now_ms - clock_ms > SMALL_STEP_MS:
            self._advance_without(clock_ms, now_s, elapsed_ms)
        else:
            self._behind_s = None
        self._was_read = True
        return self.now_ms

    def _advance_without(self, clock_ms: int, now_s: float, elapsed_ms: int) -> None:
        """Go on without a clock that lags by more than a minute. After ten minutes, follow the clock."""
        behind_s = (self.now_ms - clock_ms) // 1000
        if self._behind_s is None:
            self._behind_s = now_s
            log.warning(
                "the clock is %d s behind the time of the last message; store times go on without it for %d minutes, "
                "and then follow it: check the machine's time",
                *(behind_s, MAX_LAG_S // 60),
            )
        self.now_ms += elapsed_ms
        if now_s - self._behind_s >= MAX_LAG_S:
            log.warning("the clock is still %d s behind; messages are stored with its time from now on", behind_s)
            self.now_ms, self._behind_s = clock_ms, None


class RetentionTime:
    """The time that retention compares messages with. It is read every few seconds. `newest_ms`: when the newest
    message was stored; 0 without any. If the clock is more than a day ahead of it at the start, the clock may be wrong,
    no message was sent, or the broker was down. The clock counts after a day.
    """

    def __init__(self, clock: Clock, newest_ms: int) -> None:
        self._clock = clock
        self._newest_ms = newest_ms
        self._last_returned: tuple[int, float] | None = None  # the last returned time, and the monotonic time of that
        self._ahead_s: float | None = None  # when the clock began to be ahead by more than an hour

    def read(self) -> int:
        clock_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        time_ms = self._next_ms(clock_ms, now_s)
        self._last_returned = (time_ms, now_s)
        return time_ms

    def _next_ms(self, clock_ms: int, now_s: float) -> int:
        if self._last_returned is None:
            is_old = self._newest_ms and clock_ms - self._newest_ms > DAY_S * 1000
            expected_ms = self._newest_ms if is_old else clock_ms
        else:
            last_ms, last_s = self._last_returned
            expected_ms = last_ms + round((now_s - last_s) * 1000)
        ahead_ms = clock_ms - expected_ms
        if ahead_ms > _MAX_STEP_MS:
            if self._ahead_s is None:
                self._ahead_s = now_s
                log.warning(
                    "the clock is %d s ahead of the newest message, or jumped ahead; retention does not follow it for "
                    "a day: check it",
                    ahead_ms // 1000,
                )
            if now_s - self._ahead_s < DAY_S:
                return expected_ms
            log.warning("the clock is still %d s ahead; retention follows it now", ahead_ms // 1000)
        self._ahead_s = None
        return clock_ms
