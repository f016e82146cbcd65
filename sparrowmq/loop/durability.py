"""The wait of an answer until its message is as safe as promised, or until a time limit.

    written      the end of the log in its files          every message
    flushed      the end of the log on disk               SYNC_FLUSH, unless the message has WAIT=false
    replicated   the end of the log on a slave            SYNC_MASTER, with the same exception

Each is a `Watermark`. A `Durability` is a promise over some of them, with the time limit of the answer. Source:
CommitLog.submitFlushRequest and submitReplicaRequest, and PutMessageStatus, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sparrowmq.errors import NotSafeInTime
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.watermark import OnReached, Waiter, Watermark

# How precise time limits are: one timer looks at all that wait, instead of one timer an answer.
TICK_S = 0.25


class Requirement:
    """One mark that must be reached. `code` and `description` are those of the answer that leaves when it is not
    reached in time. `why_not` says why it is not worth waiting for an offset; None, too, if it is.
    """

    __slots__ = ("code", "description", "mark", "why_not")

    def __init__(
        self, mark: Watermark, code: int, description: str, why_not: Callable[[int], NotSafeInTime | None] | None = None
    ) -> None:
        self.mark = mark
        self.code = code
        self.description = description
        self.why_not = why_not

    def problem(self, target: int) -> BaseException | None:
        if self.mark.error is not None or self.why_not is None:
            return self.mark.error
        return self.why_not(target)


class Durability:
    """A promise about messages: its requirements are waited for in their order, `timeout_s` for all together, to within
    a quarter of a second. `then` comes after them, with a time limit of its own.
    """

    def __init__(
        self, requirements: Sequence[Requirement], clock: Clock, timeout_s: float, then: Durability | None = None
    ) -> None:
        self.requirements = tuple(requirements)
        self._then = then
        self._only_mark = self.requirements[0].mark if len(self.requirements) == 1 and then is None else None
        self.timeout_s = timeout_s
        self._clock = clock
        self._timeout_ticks = int(timeout_s / TICK_S) + 1
        self._ticks = 0
        self._is_ticking = False
        # In the order of their time limits; what they map to is of no use.
        self._waits: dict[_Wait, bool] = {}

    def holds(self, target: int) -> bool:
        if self._only_mark is not None:
            return self._only_mark.value >= target
        if min([requirement.mark.value for requirement in self.requirements]) < target:
            return False
        return self._then is None or self._then.holds(target)

    def when(self, target: int, callback: OnReached) -> None:
        """Call `callback(None)` once the log is safe up to `target`, or `callback(error)`. The error is `NotSafeInTime`
        when the time is over, and otherwise what a mark fails with, such as `StoreFailed`.
        """
        if self._then is not None:
            callback = partial(_wait_for_next_promise, self._then, target, callback)
        wait = _Wait(self, target, callback, self._ticks + self._timeout_ticks)
        self._waits[wait] = True
        wait.wait_for_next(None)
        self._tick_later()

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def remove(self, wait: _Wait) -> None:
        del self._waits[wait]

    def _tick(self) -> None:
        self._ticks += 1
        self._is_ticking = False
        try:
            while self._waits:
                oldest = next(iter(self._waits))
                if oldest.last_tick > self._ticks:
                    break
                oldest.time_out()
        finally:
            self._tick_later()

    def _tick_later(self) -> None:
        if self._waits and not self._is_ticking:
            self._is_ticking = True
            self._clock.call_later(TICK_S, self._tick)


class _Wait:
    """A caller that waits for one offset, at one requirement after the other."""

    __slots__ = ("callback", "durability", "index", "last_tick", "target", "waiter")

    def __init__(self, durability: Durability, target: int, callback: OnReached, last_tick: int) -> None:
        self.durability = durability
        self.target = target
        self.callback = callback
        self.last_tick = last_tick
        self.index = 0
        self.waiter: Waiter | None = None

    def wait_for_next(self, error: BaseException | None) -> None:
        """Wait for the first requirement that is not met; without one, or after an error, call back."""
        requirements = self.durability.requirements
        while error is None and self.index < len(requirements):
            mark = requirements[self.index].mark
            if mark.value < self.target:
                error = requirements[self.index].problem(self.target)
                if error is None:
                    self.waiter = mark.when(self.target, self.wait_for_next)
                    return
            self.index += 1
        self.durability.remove(self)
        self.callback(error)

    def time_out(self) -> None:
        if self.waiter is not None:
            self.waiter.cancel()
        self.durability.remove(self)
        requirement = self.durability.requirements[self.index]
        self.callback(NotSafeInTime(requirement.code, requirement.description, self.durability.timeout_s))


def _wait_for_next_promise(then: Durability, target: int, callback: OnReached, error: BaseException | None) -> None:
    if error is None:
        then.when(target, callback)
    else:
        callback(error)
