from collections import Counter

import pytest

from sparrowmq.client.consuming.consume_rate import ConsumeStats, TopicStats
from sparrowmq.protocol.requests.client_bodies import ConsumeStatus
from sparrowmq.testing.clock import ManualClock
from tests.client.conftest import until
from tests.client.consuming.test_consumer import numbers


def at(stats: TopicStats, seconds: range) -> None:
    """A second each: a pull of 8 messages in 40 ms, of which 6 are done and 2 fail, and a call of 10 ms."""
    for now_s in seconds:
        stats.sample(now_s)
        stats.pulls += 1
        stats.pull_ms += 40
        stats.pulled += 8
        stats.timed_calls += 1
        stats.handling_s += 0.01
        stats.done += 6
        stats.failed += 2


def test_rates_are_those_of_the_last_minute_and_failures_of_the_last_hour():
    stats = TopicStats()
    at(stats, range(2 * 3600))
    status = stats.status(2 * 3600)
    assert (status.pull_rt, status.pull_tps) == (40, 8)
    assert status.consume_rt == pytest.approx(10)
    assert (status.consume_ok_tps, status.consume_failed_tps) == (6, 2)
    assert status.consume_failed_msgs == 2 * 3600


def test_before_a_minute_is_over_rates_are_those_since_the_start():
    stats = TopicStats(now_s=100.0)
    at(stats, range(100, 110))
    assert stats.status(110.0).consume_ok_tps == 6


def test_handling_is_told_of_the_last_hour_when_there_was_none_in_the_last_minute():
    stats = TopicStats()
    at(stats, range(60))
    for now_s in range(60, 200):
        stats.sample(now_s)
    status = stats.status(200)
    assert (status.pull_rt, status.pull_tps, status.consume_ok_tps) == (0, 0, 0)
    assert status.consume_rt == pytest.approx(10) and status.consume_failed_msgs == 120


def test_each_topic_has_its_own_and_one_that_was_never_seen_has_none():
    clock = ManualClock()
    stats = ConsumeStats(clock)
    stats.of("a").done += 10
    stats.add_timed_call("a", 0.5)
    assert stats.statuses(["b"]) == {"b": ConsumeStatus()}
    assert stats.statuses(["a"])["a"].consume_rt == 500


@pytest.mark.parametrize("ordered", [False, True])
async def test_an_operator_is_told_how_fast_each_topic_is_consumed(mq, ordered):
    await numbers(mq, "t", 20)
    await mq.admin.create_topic("quiet")
    done: set[bytes] = set()
    seen: Counter[bytes] = Counter()

    async def handle(message) -> None:
        seen[message.body] += 1
        if message.body == b"3" and seen[b"3"] == 1:
            raise LookupError
        done.add(message.body)

    tuning = {"ordered": True, "suspend_s": 0.01} if ordered else {}
    async with mq.subscribe(["t", "quiet"], handle, group="g", start="earliest", **tuning) as consumer:
        await until(lambda: len(done) == (20 if ordered else 19))
        stats = consumer._running_info().status_table
    assert stats["t"].consume_failed_msgs == 1 and stats["t"].consume_failed_tps > 0
    assert stats["t"].consume_ok_tps > 10 * stats["t"].consume_failed_tps
    assert stats["t"].pull_tps > 0 and stats["t"].pull_rt >= 0 and stats["t"].consume_rt > 0
    assert stats["quiet"] == ConsumeStatus()
