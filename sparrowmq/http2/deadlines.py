"""The time limits of the calls of one server: one timer for all calls that end within the same STEP_S.

A client sets a limit for each call, and nearly every call ends long before it. A timer of the loop for each call costs
more than an entry here. So a call may end up to STEP_S behind its limit. The client itself counts exactly.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Protocol

from sparrowmq.loop.clock import Clock, Timer

STEP_S: Final = 0.05
_TOGETHER: Final = 64  # calls that end in one turn of the loop; peers may have thousands with the same limit
_KEPT_STEPS: Final = 1200  # a minute: timers without calls stay, as the next calls probably need them


class Limited(Protocol):
    """A call with a time limit."""

    def time_is_over(self) -> None:
        """End it."""


class _Step:
    """The calls that end together."""

    __slots__ = ("calls", "timer")

    def __init__(self) -> None:
        self.calls: dict[Limited, None] = {}
        self.timer: Timer | None = None


class Deadlines:
    """The calls that wait for their limits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: dict[int, _Step] = {}
        self._now = 0  # the step of the last call that was added

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, call: Limited, left_s: float) -> int:
        """Call `call.time_is_over()` in so many seconds. Returns the step, for `drop`."""
        now = self._clock.monotonic()
        self._now = int(now / STEP_S)
        at = int((now + left_s) / STEP_S) + 1
        step = self._steps.get(at)
        if step is None:
            step = self._steps[at] = _Step()
            step.timer = self._clock.call_later(at * STEP_S - now, self._is_over, at)
        step.calls[call] = None
        return at

    def drop(self, call: Limited, at: int) -> None:
        """Forget a call that has ended."""
        step = self._steps.get(at)
        if step is None:
            return
        step.calls.pop(call, None)
        if not step.calls and at > self._now + _KEPT_STEPS and step.timer is not None:
            step.timer.cancel()
            del self._steps[at]

    def _is_over(self, at: int) -> None:
        step = self._steps[at]
        for call in list(islice(step.calls, _TOGETHER)):
            step.calls.pop(call, None)
            call.time_is_over()
        if step.calls:
            step.timer = self._clock.call_later(0, self._is_over, at)
        else:
            del self._steps[at]
