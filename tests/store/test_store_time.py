"""What one jump of the clock does to the times of messages, both ways."""

from __future__ import annotations

import pytest

from sparrowmq.store.store_time import DAY_S, MAX_LAG_S, RetentionTime, StoreTime

START_MS = 1_800_000_000_000
YEAR_MS = 365 * 86_400_000


class TwoClocks:
    """The time of day, which a test sets, beside a monotonic clock."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.s = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.s

    def go(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)
        self.s += seconds


@pytest.fixture
def clock() -> TwoClocks:
    return TwoClocks()


@pytest.fixture
def time(clock: TwoClocks) -> StoreTime:
    made = StoreTime(clock)  # type: ignore[arg-type]
    made.begin(START_MS)
    return made


def test_a_clock_that_goes_on_is_followed_in_silence(clock, time, caplog):
    for seconds in (0, 1, 0.001, 90_000, 3 * 86_400):
        clock.go(seconds)
        assert time.read() == clock.ms
    assert caplog.text == ""


def test_a_small_step_back_makes_time_stand_still(clock, time, caplog):
    clock.ms -= 59_000
    assert time.read() == START_MS
    clock.go(58)
    assert time.read() == START_MS
    clock.go(2)
    assert time.read() == START_MS + 1000
    assert caplog.text == ""


def test_a_jump_back_that_is_undone_does_nothing_but_warn(clock, time, caplog):
    clock.ms -= YEAR_MS
    for minutes in range(1, 6):
        clock.go(60)
        assert time.read() == START_MS + minutes * 60_000
    assert caplog.text.count("behind the time of the last message") == 1
    clock.ms += YEAR_MS
    clock.go(1)
    assert time.read() == clock.ms


def test_a_jump_back_that_stays_is_followed_after_ten_minutes(clock, time, caplog):
    clock.ms -= YEAR_MS
    time.read()
    clock.go(MAX_LAG_S - 1)
    assert time.read() == START_MS + (MAX_LAG_S - 1) * 1000
    clock.go(1)
    assert time.read() == clock.ms
    assert "messages are stored with its time from now on" in caplog.text


def test_one_jump_ahead_is_told_and_undone_ten_minutes_after_the_clock_is_right(clock, time, caplog):
    time.read()
    clock.go(1)
    clock.ms += YEAR_MS
    assert time.read() == clock.ms
    assert "jumped ahead by 31536000 s" in caplog.text
    clock.go(5)
    clock.ms -= YEAR_MS
    poisoned = time.read()
    assert poisoned > START_MS + YEAR_MS
    clock.go(MAX_LAG_S)
    assert time.read() == clock.ms == START_MS + 6000 + MAX_LAG_S * 1000


def test_a_log_from_the_future_is_gone_on_from_and_left(clock, time):
    time.begin(START_MS + YEAR_MS)
    assert time.read() == START_MS + YEAR_MS
    clock.go(MAX_LAG_S)
    assert time.read() == clock.ms


def old_by(clock: TwoClocks, newest_ms: int = START_MS) -> RetentionTime:
    return RetentionTime(clock, newest_ms)  # type: ignore[arg-type]


def test_messages_are_old_by_a_clock_that_goes_on(clock, caplog):
    time = old_by(clock)
    for seconds in (10, 90_000, 3 * DAY_S):
        clock.go(seconds)
        assert time.read() == clock.ms
    assert caplog.text == ""


def test_a_clock_that_went_ahead_makes_nothing_old_for_a_day(clock, caplog):
    time = old_by(clock)
    clock.ms += YEAR_MS
    for _ in range(24):
        assert time.read() == clock.ms - YEAR_MS
        clock.go(3590)
    assert len(caplog.records) == 1
    clock.go(241)
    assert time.read() == clock.ms
    assert "retention follows it now" in caplog.text


def test_a_clock_that_went_ahead_and_is_set_right_was_never_believed(clock):
    time = old_by(clock)
    clock.ms += YEAR_MS
    time.read()
    clock.go(3600)
    clock.ms -= YEAR_MS
    assert time.read() == clock.ms
    clock.go(DAY_S)
    clock.ms += YEAR_MS
    assert time.read() == clock.ms - YEAR_MS


def test_a_clock_that_goes_back_is_followed(clock):
    time = old_by(clock)
    clock.ms -= YEAR_MS
    assert time.read() == clock.ms


@pytest.mark.parametrize(("down_s", "is_believed"), [(0, True), (DAY_S - 1, True), (4 * DAY_S, False)])
def test_a_start_far_behind_the_newest_message_deletes_a_day_later(clock, down_s, is_believed):
    clock.go(down_s)
    time = old_by(clock)
    assert (time.read() == clock.ms) is is_believed
    clock.go(DAY_S + 1)
    assert time.read() == clock.ms


def test_a_store_without_messages_waits_for_nothing(clock):
    clock.go(YEAR_MS)
    assert old_by(clock, newest_ms=0).read() == clock.ms
