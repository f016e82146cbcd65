"""A process that was stopped, and a clock that is wrong, show until that is over."""

import pytest

from sparrowmq.metrics.conditions import (
    MAX_CLOCK_STEP_S,
    MIN_REPORTED_PAUSE_S,
    PAUSE_WINDOW_S,
    TRUST_NEW_TIME_AFTER_S,
    Machine,
)
from sparrowmq.testing.clock import ManualClock


class Wrong(ManualClock):
    """A clock whose time of day may be wrong."""

    skew_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.skew_s * 1000)


async def test_a_pause_shows_for_a_minute() -> None:
    clock = ManualClock()
    machine = Machine(clock, lambda: 0)
    await clock.advance(100)
    assert machine.pauses() == ""
    await clock.pause(MIN_REPORTED_PAUSE_S + 2)
    assert machine.pauses().startswith("the process did not run for")
    await clock.advance(PAUSE_WINDOW_S + 1)
    assert machine.pauses() == ""


@pytest.mark.parametrize(("jump_s", "words"), [(3600, "jumped 3600 s ahead"), (-60, "jumped 60 s back")])
async def test_a_jump_of_the_clock_shows_until_it_is_set_right(jump_s: float, words: str) -> None:
    clock = Wrong()
    machine = Machine(clock, lambda: 0)
    assert machine.wrong_clock() == ""
    clock.skew_s = jump_s
    assert words in machine.wrong_clock()
    clock.skew_s = 0
    assert machine.wrong_clock() == ""


async def test_a_new_time_counts_as_right_after_a_while() -> None:
    clock = Wrong()
    machine = Machine(clock, lambda: 0)
    machine.wrong_clock()
    clock.skew_s = 3600
    assert machine.wrong_clock()
    await clock.advance(TRUST_NEW_TIME_AFTER_S + 1)
    assert machine.wrong_clock() == ""
    clock.skew_s = 0
    assert "jumped 3600 s back" in machine.wrong_clock()


async def test_small_steps_are_no_jump_however_many_there_are() -> None:
    clock = Wrong()
    machine = Machine(clock, lambda: 0)
    for _ in range(20):
        clock.skew_s += MAX_CLOCK_STEP_S / 2
        assert machine.wrong_clock() == ""


async def test_a_message_from_the_future_shows_until_the_clock_has_reached_it() -> None:
    clock = ManualClock()
    newest_ms = clock.now_ms() + 60_000
    machine = Machine(clock, lambda: newest_ms)
    assert "60 s ahead of the clock" in machine.wrong_clock()
    await clock.advance(60)
    assert machine.wrong_clock() == ""


async def test_a_message_from_the_future_says_when_messages_have_the_time_of_the_clock() -> None:
    clock = ManualClock()
    newest_ms = clock.now_ms() + 3_600_000
    machine = Machine(clock, lambda: newest_ms)
    assert machine.wrong_clock().endswith("this ends by itself, with the first message after 10 min")
    await clock.advance(430)
    assert machine.wrong_clock().endswith("this ends by itself, with the first message after 3 min")
    await clock.advance(171)
    assert machine.wrong_clock().endswith("this ends by itself, with the first message")
