"""What became of the rounds of a rig, and what that proves.

No failure in N independent rounds does not mean that there is none: the true rate is below 3/N, with 95 % certainty.
The messages of one round are not independent of each other, so it is the rounds that count.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

# The first word of a sentence that tells of a violation, and what it is counted as.
KINDS: Final = {
    "lost": "lost",
    "phantom": "phantom",
    "misplaced": "phantom",
    "disorder": "reordered",
    "doubled": "doubled",
}


@dataclass(slots=True)
class Outcome:
    """What a rig did, and found.

    Attributes:
        rounds: how often the fault was there.
        acked: messages that the broker had acknowledged, all of which had to be there afterwards.
        maybe: messages of which nobody knows, which may be there.
        problems: each broken promise in a sentence.
        more: what else there is to be told, by name.
    """

    rig: str
    seed: int
    rounds: int = 0
    acked: int = 0
    maybe: int = 0
    problems: list[str] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def note(self, problems: Iterable[str]) -> None:
        """Remember broken promises."""
        self.problems += problems

    def line(self) -> str:
        """All of it in one line of JSON; `bound` is what the rate of failures is below, if there was none."""
        kinds = Counter(KINDS.get(problem.split(":")[0], "other") for problem in self.problems)
        counts = {kind: kinds[kind] for kind in ("lost", "phantom", "reordered", "doubled", "other")}
        shown = {
            "rig": self.rig,
            "seed": self.seed,
            "rounds": self.rounds,
            "acked": self.acked,
            "maybe": self.maybe,
            **counts,
            "bound": round(3 / max(self.rounds, 1), 6),
            "seconds": round(time.monotonic() - self.began, 1),
            **self.more,
        }
        return json.dumps(shown)
