"""Questions that a client asks once for each broker of a topic, and all of them at mqproxy.

Java's clients and tools send the question for the messages with a key to each broker of the topic, one after another,
and name no broker. Brokers behind mqproxy have the same address, so all of these questions arrive at mqproxy, and are
the same. Its answer to the first has the messages of all brokers. The others find nothing, so the client gets each
message once.

Source: MQAdminImpl.queryMessage, Java 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.wire.command import Command

TOGETHER_S: Final = 1.0  # clients send them in one loop, without waiting for an answer
MOST_QUESTIONS: Final = 1000  # of one client within this time


@dataclass(slots=True)
class _Question:
    since: float
    repeats_left: int


class Repeats:
    """The questions of one client within the last second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._questions: dict[int, _Question] = {}  # the oldest first

    def has(self, question: Command, brokers: int) -> bool:
        """Return whether a question for so many brokers repeats one whose answer is for all of them."""
        now = self._clock.monotonic()
        self._forget(now)
        key = hash((question.code, *sorted(question.ext_fields().items())))
        asked = self._questions.get(key)
        if asked is None:
            self._questions[key] = _Question(now, brokers - 1)
            return False
        asked.repeats_left -= 1
        if asked.repeats_left <= 0:
            del self._questions[key]
        return True

    def _forget(self, now: float) -> None:
        """Forget the questions of more than a second ago, and the oldest if there are too many."""
        for key, asked in list(self._questions.items()):
            if now - asked.since < TOGETHER_S and len(self._questions) < MOST_QUESTIONS:
                break
            del self._questions[key]
