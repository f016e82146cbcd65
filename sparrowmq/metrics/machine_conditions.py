"""The conditions of the machine that a server runs on: a process that is stopped for a while, and a wrong clock.

    pauses    the loop's own ticks came too late: the machine swapped, or the process, its container or its virtual
              machine was stopped
    clock     the time of day moved against the steady clock, which no one can set: it jumped
              the newest message is from the future: this clock is behind, or the master's clock was ahead; then the
              store goes on from that time for TRUST_S

Small steps, as NTP makes them, are no jump. After TRUST_S the new time counts as right: it may have been corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import CLOCK_WRONG, PROCESS_PAUSED, Probe

JUMP_S: Final = 5.0
TRUST_S: Final = 600.0
PAUSED_S: Final = 5.0
WITHIN_S: Final = 60.0


class Machine:
    """Sees what is wrong with the machine.

    Args:
        newest_ms: returns the time of the newest message; 0 without any.
    """

    def __init__(self, clock: Clock, newest_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._newest_ms = newest_ms
        self._begin_s = clock.monotonic()
        self._offset_s: float | None = None  # of the time of day over the steady clock, before a jump
        self._jumped_s = 0.0  # when a jump was seen
        self._ahead_since_s: float | None = None  # when a message from the future was first seen

    def probes(self) -> tuple[Probe, ...]:
        return (PROCESS_PAUSED, self.pauses), (CLOCK_WRONG, self.wrong_clock)

    def pauses(self) -> str:
        """Return for how long the process did not run lately; "" if that is not worth a report."""
        now_s = self._clock.monotonic()
        begin_s = max(self._begin_s, now_s - WITHIN_S)
        paused_s = now_s - begin_s - self._clock.age(begin_s)
        return f"the process did not run for {paused_s:.0f} s of the last minute" if paused_s >= PAUSED_S else ""

    def wrong_clock(self) -> str:
        """Return why the time of day is wrong; "" if it seems right."""
        jump = self._jump()
        return "; ".join(filter(None, (jump, self._future(is_right=not jump))))

    def _jump(self) -> str:
        now_s = self._clock.monotonic()
        offset_s = self._clock.now_ms() / 1000 - now_s
        jump_s = 0.0 if self._offset_s is None else offset_s - self._offset_s
        if abs(jump_s) <= JUMP_S:
            self._offset_s, self._jumped_s = offset_s, now_s
            return ""
        if now_s - self._jumped_s > TRUST_S:
            self._offset_s, self._jumped_s = offset_s, now_s
            return ""
        return f"the clock of this machine jumped {abs(jump_s):.0f} s {'ahead' if jump_s > 0 else 'back'}"

    def _future(self, is_right: bool) -> str:
        """Return how far the newest message is ahead; if this clock may be right, also when that ends."""
        now_s = self._clock.monotonic()
        ahead_s = (self._newest_ms() - self._clock.now_ms()) / 1000
        if ahead_s <= JUMP_S:
            self._ahead_since_s = None
            return ""
        if self._ahead_since_s is None:
            self._ahead_since_s = now_s
        left_min = ceil(max(self._ahead_since_s + TRUST_S - now_s, 0) / 60)
        text = f"the newest message has a time that is {ahead_s:.0f} s ahead of the clock of this machine"
        if not is_right:
            return text
        after = f" after {left_min} min" if left_min else ""
        return f"{text}; if this clock is right, this ends by itself, with the first message{after}"
