import asyncio
import time

import pytest

from sparrowmq.loop import clock
from sparrowmq.loop.clock import MAX_PAUSES, TICK_S, Pauses, RunningTime, running_time


class Hand:
    """Elapsed time, set by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_pause_counts_as_one_tick():
    hand = Hand()
    running = RunningTime(hand)
    hand.now_s += 125
    assert running.age(99.0) == 1 + TICK_S
    assert running.age(hand.now_s) == 0


def test_time_without_a_pause_counts_whole():
    hand = Hand()
    running = RunningTime(hand)
    hand.now_s += 0.9
    assert running.age(100.0) == pytest.approx(0.9)


def test_a_pause_before_the_moment_does_not_count():
    pauses = Pauses()
    pauses.add(10.0, 5.0)
    pauses.add(30.0, 7.0)
    assert [pauses.total_s_since(moment) for moment in (0.0, 15.0, 40.0)] == [12.0, 7.0, 0.0]


def test_old_pauses_are_forgotten():
    pauses = Pauses()
    for end in range(2 * MAX_PAUSES):
        pauses.add(end, 1.0)
    assert pauses.total_s_since(-1.0) == MAX_PAUSES
    assert pauses.total_s_since(2.0 * MAX_PAUSES - 2) == 1.0


async def test_a_loop_notices_that_it_did_not_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "TICK_S", 0.001)
    monkeypatch.setattr(clock, "MIN_PAUSE_S", 0.2)
    running = running_time(time.monotonic)
    assert running_time(time.monotonic) is running, "one for each loop"
    began = time.monotonic()
    time.sleep(0.5)  # noqa: ASYNC251 - the loop is to stand still
    assert running.age(began) < 0.4
    await asyncio.sleep(0.01)
    assert running.age(began) < 0.4
