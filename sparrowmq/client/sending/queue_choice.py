"""Chooses the queue of a message: round robin from a random start, by key, and around brokers that failed or are slow.

Round robin over all queues of all brokers spreads the load; the random start keeps a thousand freshly started
producers from beginning at the same queue. Source: TopicPublishInfo and SelectMessageQueueByHash, Java 4.9.8, and
MQFaultStrategy, Java 5.4.0.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.message import MessageQueue

# The latency of a broker, and the time for which it is then avoided (MQFaultStrategy.latencyMax and
# notAvailableDuration of Java 5.4.0). Unlike Java 4.9.8, which avoids a broker that took 0.55 s for 30 s, and a broker
# that failed for 10 minutes.
_LATENCIES_S: Final = (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0)
_AVOIDANCE_S: Final = (0.0, 0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
FAILED_S: Final = 30.0


class RoundRobin:
    """Takes the queues of each topic in turn."""

    def __init__(self, start: Callable[[int], int] = random.randrange) -> None:
        self._start = start
        self._turns: dict[str, int] = {}

    def next(self, queues: Sequence[MessageQueue], preferences: Sequence[Callable[[str], bool]] = ()) -> MessageQueue:
        """Return the next of a topic's queues whose broker fits the first preference that any broker fits."""
        topic = queues[0].topic
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._start(1 << 16)
        if preferences:
            turn += next(
                (step for preference in preferences if (step := _steps(queues, turn, preference)) is not None), 0
            )
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]


class BatchRoundRobin:
    """Takes the queues of each topic in turn for batches: of two neighbours the one with fewer messages so far."""

    def __init__(self, start: Callable[[int], int] = random.randrange) -> None:
        self._start = start
        self._turns: dict[str, int] = {}
        self._sent_counts: dict[MessageQueue, int] = {}

    def next(self, queues: Sequence[MessageQueue], count: int) -> MessageQueue:
        """Return the queue of a topic for so many messages."""
        topic, sent_counts = queues[0].topic, self._sent_counts
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._start(1 << 16)
        self._turns[topic] = turn + 1
        candidate, next_candidate = queues[turn % len(queues)], queues[(turn + 1) % len(queues)]
        queue = next_candidate if sent_counts.get(next_candidate, 0) < sent_counts.get(candidate, 0) else candidate
        if queue not in sent_counts:
            sent_counts[queue] = sent_counts.get(candidate, 0)  # a queue that is new has no arrears
        sent_counts[queue] += count
        return queue


def _steps(queues: Sequence[MessageQueue], turn: int, preference: Callable[[str], bool]) -> int | None:
    return next(
        (step for step in range(len(queues)) if preference(queues[(turn + step) % len(queues)].broker_name)), None
    )


class SlowBrokers:
    """The brokers that answered slowly or not at all, and the end of the time for which they are avoided."""

    def __init__(self) -> None:
        self._avoided_until: dict[str, float] = {}

    def report(self, broker_name: str, latency_s: float, now: float) -> None:
        """Note the latency of one send; an error counts as `FAILED_S`."""
        avoided_s = _AVOIDANCE_S[bisect_right(_LATENCIES_S, latency_s)]
        if avoided_s:
            self._avoided_until[broker_name] = now + avoided_s
        else:
            self._avoided_until.pop(broker_name, None)

    def is_usable(self, broker_name: str, now: float) -> bool:
        return self._avoided_until.get(broker_name, now) <= now


def by_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a key: always the same, and the one that a Java producer picks for the text."""
    return queues[abs(string_hash(key)) % len(queues)]
