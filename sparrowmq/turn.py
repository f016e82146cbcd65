"""One turn of a broker's event loop: what was appended is written, then answers leave, then queues show it.

    a burst of requests      handled one after the other; each step that something asks for waits for the turn's end
      1  write               the store writes what was appended (and has it synced, if answers wait for that)
      2  answer              sessions send the answers that need wait for nothing more
      3  show                the store tells the queues, and held polls wake

The order is here and nowhere else: the store asks for `write` and `show`, sessions for `answer`, and none of them knows
of the other. All that a loop finds readable at once belongs to one turn, so a hundred sends cost one write.

What makes an answer true is not this order but the `Safety` that it waits for; the order lets an answer that only
needs its message written leave in the same turn, and before the work that nobody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

Step: TypeAlias = Callable[[], object]


class Turn:
    """The steps that one event loop takes at the end of each of its turns; steps do not raise."""

    __slots__ = ("_answers", "_due", "_loop", "_shows", "_writes")

    def __init__(self) -> None:
        self._writes: list[Step] = []
        self._answers: list[Step] = []
        self._shows: list[Step] = []
        self._due = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def write(self, step: Step) -> None:
        """Do this first at the end of this turn."""
        self._writes.append(step)
        if not self._due:
            self._soon()

    def answer(self, step: Step) -> None:
        """Do this when everything is written."""
        self._answers.append(step)
        if not self._due:
            self._soon()

    def show(self, step: Step) -> None:
        """Do this when the answers have left."""
        self._shows.append(step)
        if not self._due:
            self._soon()

    def _soon(self) -> None:
        self._due = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        try:
            _take(self._writes)
            _take(self._answers)
            _take(self._shows)
        finally:
            self._due = False
            if self._writes or self._answers or self._shows:
                self._soon()  # What a later step asked for begins again with the first one.


def _take(steps: list[Step]) -> None:
    """Take the steps in their order, also those that they ask for themselves."""
    at = 0
    try:
        while at < len(steps):
            at += 1
            steps[at - 1]()
    finally:
        del steps[:at]
