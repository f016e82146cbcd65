"""Large answers: made one after another, in slices.

An answer with all topics has megabytes. If thousands of them were made together, for peers that need not even read
them, they would fill the memory. So each is begun when the one before it is complete. A peer that has gone gets none.
Answers to peers that do not read have a limit of their own (budget.py).
"""

from __future__ import annotations

from collections.abc import Awaitable

from sparrowmq.loop.slices import Line, Steps
from sparrowmq.remoting.handler import Answer
from sparrowmq.remoting.peer import Peer


class LargeAnswers:
    """The large answers of one handler."""

    def __init__(self) -> None:
        self._line = Line()

    def make(self, peer: Peer, steps: Steps[Answer]) -> Answer | Awaitable[Answer]:
        """Make an answer in its turn. Let `steps` read the state, so that nothing is copied before."""
        return self._line.work(_unless_gone(peer, steps))


def _unless_gone(peer: Peer, steps: Steps[Answer]) -> Steps[Answer]:
    return Answer() if peer.closed else (yield from steps)
