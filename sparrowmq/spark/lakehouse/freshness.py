"""The age of the oldest message that a table lacks, found without reading it: from when the brokers had it.

Each look at the brokers says how many messages there are by then. A table that has fewer lacks messages that came
after the last look which counted no more than the table has.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_MOST_LOOKS: Final = 512


class Freshness:
    """The looks of one table that count messages which the table lacks."""

    def __init__(self) -> None:
        # The count, and the look before, which did not count it.
        self._behind: deque[tuple[int, float]] = deque()
        self._last_look_s: float | None = None
        self._count = 0

    def look(self, count: int, done: int, now_s: float) -> None:
        """Note a look: the offsets of all queues together, of the brokers and of the table."""
        self._count = count
        newest = self._behind[-1][0] if self._behind else done
        if count > newest:
            since_s = now_s if self._last_look_s is None else self._last_look_s
            self._behind.append((count, since_s))
        if len(self._behind) > _MOST_LOOKS:  # a table that is behind for long needs no exact steps
            self._behind = deque(each for at, each in enumerate(self._behind) if at % 2 == 0)
        self._last_look_s = now_s
        self.reach(done)

    def reach(self, done: int) -> None:
        """Note what the table has now."""
        if done >= self._count:  # also if a topic was made again, and counts from 0
            self._behind.clear()
        while self._behind and self._behind[0][0] <= done:
            self._behind.popleft()

    def age_s(self, now_s: float) -> float:
        """The age of the oldest message that the table lacks, at most; 0 if it lacks none."""
        return max(0.0, now_s - self._behind[0][1]) if self._behind else 0.0
