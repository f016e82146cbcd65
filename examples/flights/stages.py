"""The progress and the speed of each part of the demo."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stage:
    """One part, counted in messages by the thread that does it and read by the screen.

    Attributes:
        label: what happens to a message here, for people.
        total: the messages to do; None while not known.
        size_bytes: the bodies of what was done.
        first: when the first message was done, by the steady clock.
    """

    label: str
    total: int | None = None
    done: int = 0
    size_bytes: int = 0
    started: float | None = None
    ended: float | None = None
    first: float | None = None

    def begin(self) -> None:
        """The clock of this part runs."""
        self.started = time.monotonic()

    def reach(self, done: int) -> None:
        """So many are done altogether."""
        if self.started is None:
            self.begin()
        if done > self.done:
            self.done, self.ended = done, time.monotonic()
            self.first = self.first or self.ended

    @property
    def seconds(self) -> float:
        """From the beginning to the last message."""
        if self.started is None or self.ended is None:
            return 0.0
        return self.ended - self.started

    @property
    def messages_per_s(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6 if self.seconds else 0.0

    def report(self) -> dict[str, float]:
        return {
            "messages": self.done,
            "seconds": round(self.seconds, 3),
            "messages_per_s": round(self.messages_per_s),
            "megabytes_per_s": round(self.megabytes_per_s, 3),
        }


@dataclass(slots=True)
class Stages:
    """The four parts, in the order in which a message passes them.

    Attributes:
        waits: what is waited for while bars stand still, for people; empty while all move.
    """

    replay: Stage = field(default_factory=lambda: Stage("flights sent and acknowledged"))
    table: Stage = field(default_factory=lambda: Stage("in the table of flights"))
    statistics: Stage = field(default_factory=lambda: Stage("in the statistics"))
    results: Stage = field(default_factory=lambda: Stage("results consumed"))
    waits: str = ""

    def all(self) -> dict[str, Stage]:
        return {
            "replay": self.replay,
            "table": self.table,
            "statistics": self.statistics,
            "results": self.results,
        }
