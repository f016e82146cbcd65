"""Turns of the event loop: how often something happens in one of them."""

from __future__ import annotations

import asyncio
from collections import Counter


class Turns:
    """Counts what happens in each turn of the running loop."""

    def __init__(self) -> None:
        self._now = 0
        self._notes: Counter[int] = Counter()
        self._is_due = False

    def note(self) -> None:
        """Count something now."""
        self._notes[self._now] += 1
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    @property
    def most_in_one(self) -> int:
        """The most that happened in one turn."""
        return max(self._notes.values(), default=0)

    def _next(self) -> None:
        self._now += 1
        self._is_due = False
