from datetime import UTC, datetime, timedelta, timezone

import pytest

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.delay_levels import JAVA_LEVELS
from sparrowmq.protocol.messages.delay_fields import level_s, nearest_level, wait_of


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (None, 0),
        ("60s", 5),
        ("120m", 18),
        (timedelta(seconds=1), 1),
        (timedelta(minutes=1), 5),
        (timedelta(hours=2), 18),
        *[(word, level) for level, word in enumerate(JAVA_LEVELS.split(), 1)],
    ],
)
def test_a_delay_is_a_level_of_the_broker(delay, level):
    assert wait_of(delay, None) == (level, 0, 0)


@pytest.mark.parametrize(
    ("delay_s", "level"), [(0.1, 1), (1, 1), (4, 2), (15, 3), (25, 4), (90, 5), (7200, 18), (90_000, 18)]
)
def test_brokers_that_know_levels_only_get_the_nearest_one(delay_s, level):
    assert nearest_level(delay_s) == level
    assert level_s(99) == 7200 and level_s(1) == 1


@pytest.mark.parametrize("level", [1, 18, 40])
def test_a_level_is_given_by_its_own_name(level):
    assert wait_of(None, None, level) == (level, 0, 0)


@pytest.mark.parametrize("level", [0, -1, True, 1.0, "3", 1 << 31])
def test_levels_begin_with_1(level):
    with pytest.raises(InvalidMessage, match=f"delay_level={level!r}: levels are whole numbers from 1"):
        wait_of(None, None, level)


@pytest.mark.parametrize("delay", [3, 30, 1.5, 2**70])
def test_a_bare_number_is_refused_because_it_could_be_seconds_or_a_level(delay):
    with pytest.raises(InvalidMessage, match=rf"could be seconds or a level; write delay='{delay}s' .* delay_level="):
        wait_of(delay, None)


@pytest.mark.parametrize("delay", [0, -1, -1.5, float("-inf"), "0s", timedelta(0)])
def test_a_delay_that_is_not_later_is_refused(delay):
    with pytest.raises(InvalidMessage, match="is not later than now; leave it out"):
        wait_of(delay, None)


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), True, b"3s"])
def test_something_that_is_no_delay_is_refused(delay):
    with pytest.raises(InvalidMessage, match="is not a delay"):
        wait_of(delay, None)


def test_a_delay_beyond_all_times_is_refused():
    with pytest.raises(InvalidMessage, match="longer than any broker keeps"):
        wait_of(timedelta.max, None)


@pytest.mark.parametrize("delay", [True, False, "", "soon", "10 s", "-1s", "1h30m", b"1s", [1]])
def test_what_is_no_delay_is_refused(delay):
    with pytest.raises(InvalidMessage, match="is not a delay; give a duration such as"):
        wait_of(delay, None)


@pytest.mark.parametrize(
    ("delay", "wait"),
    [
        (None, (0, 0, 0)),
        ("10s", (3, 0, 0)),
        (timedelta(minutes=1), (5, 0, 0)),
        ("100ms", (0, 100, 0)),
        ("15s", (0, 15_000, 0)),
        ("3h", (0, 3 * 3_600_000, 0)),
        ("40d", (0, 40 * 86_400_000, 0)),
        (timedelta(milliseconds=1500), (0, 1500, 0)),
        (timedelta(microseconds=1), (0, 1, 0)),
        (timedelta(days=1, microseconds=1), (0, 86_400_001, 0)),
    ],
)
def test_a_delay_that_is_no_level_is_a_time(delay, wait):
    assert wait_of(delay, None) == wait


@pytest.mark.parametrize("delay", ["0s", timedelta(0), timedelta(seconds=-1)])
def test_a_delay_of_nothing_is_refused(delay):
    with pytest.raises(InvalidMessage, match="not later than now"):
        wait_of(delay, None)


@pytest.mark.parametrize("delay", [True, "soon", b"1s"])
def test_what_is_no_delay_is_no_time_either(delay):
    with pytest.raises(InvalidMessage):
        wait_of(delay, None)


@pytest.mark.parametrize(
    "deliver_at",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 8, tzinfo=timezone(timedelta(hours=8))),
        datetime(2026, 1, 1, microsecond=999, tzinfo=UTC),
    ],
)
def test_a_time_is_the_same_moment_in_all_zones(deliver_at):
    assert wait_of(None, deliver_at) == (0, 0, 1_767_225_600_000)


def test_a_time_before_1970_has_passed():
    assert wait_of(None, datetime(1960, 1, 1, tzinfo=UTC)) == (0, 0, 1)


@pytest.mark.parametrize("deliver_at", [datetime(2026, 1, 1), "2026-01-01", 5, timedelta(seconds=5)])
def test_a_time_needs_a_zone(deliver_at):
    with pytest.raises(InvalidMessage, match="a datetime with a time zone"):
        wait_of(None, deliver_at)


def test_a_delay_and_a_time_are_one_too_many():
    with pytest.raises(InvalidMessage, match="give one of delay=, delay_level= and deliver_at="):
        wait_of("1s", datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidMessage, match="give one of"):
        wait_of("1s", None, 1)
