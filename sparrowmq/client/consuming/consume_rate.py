"""The speed at which a consumer pulls and handles the messages of each topic, for operators (request 307).

Each topic has sums that only rise. Every commit, each five seconds, keeps a `Snapshot` of them. The figures of the last
minute and the last hour are differences to the oldest snapshot. A message costs one addition, a pull three. Every
sixteenth call of a handler is timed. Source: ConsumerStatsManager, Java 4.9.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparrowmq.kernel.messages import DoneCount
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.client_bodies import ConsumeStatus

_MINUTE_PERIOD_S: Final = 5.0
_HOUR_PERIOD_S: Final = 60.0
_MIN_SPAN_S: Final = 0.001


class Snapshot(NamedTuple):
    """The sums at a moment, in seconds of a clock that never goes back."""

    moment_s: float
    pulls: int
    pull_ms: int
    pulled: int
    timed_calls: int
    handling_s: float
    done: int
    failed: int


class TopicStats(DoneCount):
    """The sums of one topic: `pulls` counts those that brought messages, `pull_ms` includes the wait for the first
    message at the broker, `timed_calls` took `handling_s` together, and `done` and `failed` count handled messages.
    """

    __slots__ = ("_hour", "_minute", "failed", "handling_s", "pull_ms", "pulled", "pulls", "timed_calls")

    def __init__(self, now_s: float = 0.0) -> None:
        super().__init__()
        self.pulls = 0
        self.pull_ms = 0
        self.pulled = 0
        self.timed_calls = 0
        self.handling_s = 0.0
        self.failed = 0
        begin = self._snapshot(now_s)
        self._minute = deque([begin], maxlen=12)
        self._hour = deque([begin], maxlen=60)

    def sample(self, now_s: float) -> None:
        """Keep the present sums, when it is time."""
        for row, period_s in ((self._minute, _MINUTE_PERIOD_S), (self._hour, _HOUR_PERIOD_S)):
            if now_s - row[-1].moment_s >= period_s:
                row.append(self._snapshot(now_s))

    def status(self, now_s: float) -> ConsumeStatus:
        """The figures of the last minute. As in Java, failures, and times of untimed calls, are of the last hour."""
        now, minute, hour = self._snapshot(now_s), self._minute[0], self._hour[0]
        span_s = max(now_s - minute.moment_s, _MIN_SPAN_S)
        timed = minute if now.timed_calls > minute.timed_calls else hour
        return ConsumeStatus(
            pull_rt=_mean(now.pull_ms - minute.pull_ms, now.pulls - minute.pulls),
            pull_tps=(now.pulled - minute.pulled) / span_s,
            consume_rt=_mean((now.handling_s - timed.handling_s) * 1000, now.timed_calls - timed.timed_calls),
            consume_ok_tps=(now.done - minute.done) / span_s,
            consume_failed_tps=(now.failed - minute.failed) / span_s,
            consume_failed_msgs=now.failed - hour.failed,
        )

    def _snapshot(self, now_s: float) -> Snapshot:
        return Snapshot(
            now_s, self.pulls, self.pull_ms, self.pulled, self.timed_calls, self.handling_s, self.done, self.failed
        )


class ConsumeStats:
    """The sums of all topics of a consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_topic: dict[str, TopicStats] = {}

    def of(self, topic: str) -> TopicStats:
        stats = self._by_topic.get(topic)
        if stats is None:
            stats = self._by_topic[topic] = TopicStats(self._clock.monotonic())
        return stats

    def add_timed_call(self, topic: str, handling_s: float) -> None:
        """Count a timed call of a handler."""
        stats = self.of(topic)
        stats.timed_calls += 1
        stats.handling_s += handling_s

    def sample(self) -> None:
        """Keep all present sums; called about every five seconds."""
        for stats in self._by_topic.values():
            stats.sample(self._clock.monotonic())

    def statuses(self, topics: Iterable[str]) -> dict[str, ConsumeStatus]:
        now_s = self._clock.monotonic()
        return {topic: self.of(topic).status(now_s) for topic in topics}


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0
