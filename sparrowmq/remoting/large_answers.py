"""Large answers: made one after another, in slices.

    short answer                  made at once, also while a large one is being made
    large answer                  begun when the one before it is complete; a peer that has gone gets none
    several for one peer          in turn with those for other peers

An answer with all topics has megabytes. If thousands of them were made together, for peers that need not even read
them, they would fill the memory. Answers to peers that do not read have a limit of their own (budget.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine

from sparrowmq.loop.slices import Line, Steps, in_slices
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.peer import Peer


class LargeAnswers:
    """The large answers of one handler."""

    def __init__(self) -> None:
        self._line = Line()

    def make(self, peer: Peer, steps: Callable[[], Steps[Reply]]) -> Reply | Awaitable[Reply]:
        """Make an answer.

        Args:
            steps: begins the work, perhaps twice: what does not end in the first slice of a busy time begins again in
                its turn. Let it read the state, so that nothing is copied before, and change nothing.
        """
        if self._line.is_busy:
            answer = in_slices(steps())
            if not isinstance(answer, Coroutine):
                return answer
            answer.close()
        return self._line.work(_unless_gone(peer, steps), asker=peer)


def _unless_gone(peer: Peer, steps: Callable[[], Steps[Reply]]) -> Steps[Reply]:
    return Reply() if peer.closed else (yield from steps())
