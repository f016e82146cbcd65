"""Shares the work of a round among tables: a topic with a large backlog delays the others by one round at most.

Tables that need little get all they need. What is left is shared equally by the others:

    waiting   a 10   b 500   c 100,000      budget 1,000
    share     a 10   b 495   c 495
"""

from __future__ import annotations

from collections.abc import Mapping


def fair_shares(waiting: Mapping[str, int], budget: int) -> dict[str, int]:
    """Return how much each may do, of what waits for it; 1 at least, also if that exceeds the budget."""
    shares: dict[str, int] = {}
    left = budget
    for done, (name, amount) in enumerate(sorted(waiting.items(), key=lambda each: (each[1], each[0]))):
        share = min(amount, max(1, left // (len(waiting) - done)))
        shares[name] = share
        left -= share
    return shares


class Pace:
    """The budget of a round: as much as the last rounds did in the time that a round should take.

    Args:
        most: the budget of a quick machine, and of the first round.
        round_s: the time that a round should take.
    """

    def __init__(self, most: int, round_s: float) -> None:
        self._most = most
        self._round_s = round_s
        self.budget = most

    def note(self, amount: int, seconds: float) -> None:
        """Note a round; small ones, whose time is that of starting, say nothing about the pace."""
        if seconds <= 0 or (amount < self.budget // 2 and seconds < self._round_s):
            return
        wanted = int(amount / seconds * self._round_s)
        self.budget = max(self._most // 20, 1, min(self._most, (self.budget + wanted) // 2))
