"""One turn of a broker's event loop: write appended messages, then send answers, then show the messages in queues.

    a burst of requests      handled one by one; the steps below wait for the end of the turn
      1  write               the store writes appended messages (and starts a sync, if answers wait for the disk)
      2  answer              sessions send the answers that wait for nothing more
      3  show                the store adds the messages to the queues, and held pulls wake

With SYNC_FLUSH the store shows messages right after the write, while the disk works. Otherwise `show` may wait for one
more poll of the sockets, and then needs one write for each queue: 256 sends in flight on one connection cost 3 % less.
It does not wait if several connections sent in this turn.

Only this module knows the order. All sockets that are readable at once belong to one turn, so a hundred sends cost one
write.

After a turn, a server polls its sockets for a moment before the loop sleeps. A client with one request at a time sends
the next one within 50 us. Sleeping costs more than handling it: of the 66 us of a single pull, 40 woke two idle
processors (ADR 0010).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeAlias

Step: TypeAlias = Callable[[], object]

POLLS: Final = 60  # of about 1 us each
MAX_IDLE_POLLS: Final = 6  # after which the break grows no more: 64 turns


class Turn:
    """The steps that one event loop takes at the end of each of its turns; steps do not raise. `polls`: how often the
    loop polls its sockets before it sleeps, if that has found something lately. `now` measures the turns.
    """

    __slots__ = (
        "_answers",
        "_idle_count",
        "_is_due",
        "_is_polling",
        "_is_show_delayed",
        "_loop",
        "_polls",
        "_polls_left",
        "_shows",
        "_skips_polling",
        "_turns_to_skip",
        "_writes",
        "handled_at",
        "is_shared",
        "now",
        "written_at",
    )

    def __init__(self, polls: int = 0, now: Callable[[], float] = time.monotonic) -> None:
        self.now: Callable[[], float] = now
        self._polls = polls
        self._polls_left = 0  # before the loop sleeps
        self._is_polling = False
        self._skips_polling = False
        self._idle_count = 0  # times in a row that no socket was ready
        self._turns_to_skip = 0  # until the loop polls again
        self._writes: list[Step] = []
        self._answers: list[Step] = []
        self._shows: list[Step] = []
        self._is_due = False
        self._is_show_delayed = False  # The steps of `show` wait for one more poll of the sockets.
        self._loop: asyncio.AbstractEventLoop | None = None
        self.handled_at = 0.0
        self.written_at = 0.0
        self.is_shared = False  # whether one step of this turn answers several connections

    def write(self, step: Step) -> None:
        """Do this first at the end of this turn."""
        self._writes.append(step)
        if not self._is_due:
            self._run_soon()

    def answer(self, step: Step) -> None:
        """Do this when everything is written."""
        self._answers.append(step)
        if not self._is_due:
            self._run_soon()

    def show(self, step: Step) -> None:
        """Do this when the answers have left."""
        self._shows.append(step)
        if not self._is_due:
            self._run_soon()

    def skip_polling(self) -> None:
        """Let the loop sleep after this turn: a thread works, and polling would slow it down."""
        self._skips_polling = True

    def _run_soon(self) -> None:
        self._is_due = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._run_all)

    def _run_all(self) -> None:
        is_one = len(self._answers) < 2 and not self.is_shared  # only one connection sent requests in this turn
        self.is_shared = False
        try:
            if self._writes:
                self.handled_at = self.now()
                _run_steps(self._writes)
                self.written_at = self.now()
            _run_steps(self._answers)
            self._is_show_delayed = is_one and not self._is_show_delayed and len(self._shows) > 0
            if not self._is_show_delayed:
                _run_steps(self._shows)
        finally:
            self._is_due = False
            if self._writes or self._answers or self._shows:
                self._run_soon()  # What a later step asked for begins again with the first one.
            elif self._polls:
                self._poll_sockets()

    def _poll_sockets(self) -> None:
        if self._skips_polling:
            self._skips_polling = False
            if self._polls_left:
                self._idle_count = 0
            self._polls_left = 0
        elif self._polls_left:  # polling found this turn
            self._idle_count = 0
            self._polls_left = self._polls
        elif self._turns_to_skip:
            self._turns_to_skip -= 1
        else:
            self._polls_left = self._polls
            self._poll_soon()

    def _poll_soon(self) -> None:
        """Let the loop poll its sockets once without sleeping: `call_soon` does that."""
        if not self._is_polling and self._loop is not None:
            self._is_polling = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        self._is_polling = False
        if self._polls_left == 0:
            return  # `skip_polling` was called
        self._polls_left -= 1
        if self._polls_left:
            self._poll_soon()
        else:
            self._idle_count = min(self._idle_count + 1, MAX_IDLE_POLLS)
            self._turns_to_skip = 1 << self._idle_count


def _run_steps(steps: list[Step]) -> None:
    """Take the steps in their order, also those that they ask for themselves."""
    at = 0
    try:
        while at < len(steps):
            at += 1
            steps[at - 1]()
    finally:
        del steps[:at]
