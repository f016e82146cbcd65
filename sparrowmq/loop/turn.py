"""One turn of a broker's event loop: write appended messages, then send answers, then show the messages in queues.

    a burst of requests      handled one by one; the steps below wait for the end of the turn
      1  write               the store writes appended messages (and starts a sync, if answers wait for the disk)
      2  answer              sessions send the answers that wait for nothing more
      3  show                the store adds the messages to the queues, and held pulls wake

With SYNC_FLUSH, answers wait for the disk, so the store shows messages right after the write, while the disk works.
Otherwise `show` may wait for one more look at the sockets, and then needs one write for each queue: 256 sends in flight
on one connection cost 3 % less. It does not wait if several connections sent in this turn. The next turn would find
only the client that was answered first, and many small turns cost more.

Only this module knows the order. The store asks for `write` and `show`, sessions ask for `answer`, and neither knows
the other. All sockets that are readable at once belong to one turn, so a hundred sends cost one write.

After a turn, a server polls its sockets for a moment before the loop sleeps. A client with one request at a time sends
the next one within 50 us. Sleeping costs more than handling it: on a virtual machine a single pull took 66 us, 40 of
them to wake two idle processors (ADR 0010). Without requests the server soon polls less.

An answer is correct because of its `Durability`, not because of this order. The order lets an answer that needs only a
write leave in the same turn, before work without a waiting client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

Step: TypeAlias = Callable[[], object]

LOOKS: Final = 60  # of about 1 us each
MOST_IN_VAIN: Final = 6  # after which the break grows no more: 64 turns


class Turn:
    """The steps that one event loop takes at the end of each of its turns; steps do not raise.

    Args:
        looks: how often the loop looks for more before it sleeps, if that has found something lately.
    Attributes:
        now: a clock, where somebody wants to know when turns did what.
        handled_at, written_at: when the last turn that wrote something began to, and when that was done.
    """

    __slots__ = (
        "_answers",
        "_break",
        "_due",
        "_in_vain",
        "_is_looking",
        "_left",
        "_looks",
        "_loop",
        "_puts_off",
        "_rests",
        "_shows",
        "_writes",
        "handled_at",
        "now",
        "written_at",
    )

    def __init__(self, looks: int = 0) -> None:
        self._looks = looks
        self._left = 0  # looks of this time
        self._is_looking = False
        self._rests = False
        self._in_vain = 0  # times in a row that nothing came
        self._break = 0  # turns until the next time
        self._writes: list[Step] = []
        self._answers: list[Step] = []
        self._shows: list[Step] = []
        self._due = False
        self._puts_off = False  # The steps of `show` wait until the loop has looked for more; they do so once.
        self._loop: asyncio.AbstractEventLoop | None = None
        self.now: Callable[[], float] | None = None
        self.handled_at = 0.0
        self.written_at = 0.0

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

    def rest(self) -> None:
        """Let the loop sleep after this turn: a thread works, and looking around would only be in its way."""
        self._rests = True

    def _soon(self) -> None:
        self._due = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        is_one = len(self._answers) < 2  # who asked
        try:
            if self._writes:
                self._write()
            _take(self._answers)
            self._puts_off = is_one and not self._puts_off and len(self._shows) > 0
            if not self._puts_off:
                _take(self._shows)
        finally:
            self._due = False
            if self._writes or self._answers or self._shows:
                self._soon()  # What a later step asked for begins again with the first one.
            elif self._looks:
                self._look_around()

    def _write(self) -> None:
        now = self.now
        if now is None:
            _take(self._writes)
            return
        self.handled_at = now()
        _take(self._writes)
        self.written_at = now()

    def _look_around(self) -> None:
        if self._rests:
            self._rests = False
            if self._left:
                self._in_vain = 0
            self._left = 0
        elif self._left:  # This turn was found by looking.
            self._in_vain = 0
            self._left = self._looks
        elif self._break:
            self._break -= 1
        else:
            self._left = self._looks
            self._look_soon()

    def _look_soon(self) -> None:
        """Have the loop see whether there is something to read, without sleeping: a call soon does just that."""
        if not self._is_looking and self._loop is not None:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        if self._left == 0:
            return  # `rest` was called
        self._left -= 1
        if self._left:
            self._look_soon()
        else:
            self._in_vain = min(self._in_vain + 1, MOST_IN_VAIN)
            self._break = 1 << self._in_vain


def _take(steps: list[Step]) -> None:
    """Take the steps in their order, also those that they ask for themselves."""
    at = 0
    try:
        while at < len(steps):
            at += 1
            steps[at - 1]()
    finally:
        del steps[:at]
