"""Delay levels: parsing, limits, and the queues in which messages wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.delay_levels import (
    JAVA_LEVELS,
    DelayLevels,
    delivered_mark,
    level_of,
    parse_delivered_mark,
    queue_of,
)


@pytest.mark.covers("S-RETRY-01")
@pytest.mark.covers("S-DELAY-01")
def test_the_levels_of_java() -> None:
    levels = DelayLevels.parse()
    assert levels.max == 18
    assert [levels.delay_ms(level) for level in (1, 3, 5, 18)] == [1000, 10_000, 60_000, 7_200_000]
    assert str(levels) == JAVA_LEVELS


@pytest.mark.covers("S-DELAY-01")
def test_days_may_be_added() -> None:
    assert DelayLevels.parse(JAVA_LEVELS + " 1d").delay_ms(19) == 86_400_000


@pytest.mark.covers("S-DELAY-02")
def test_a_level_beyond_the_last_is_the_last() -> None:
    levels = DelayLevels.parse("1s  5s")
    assert (levels.clamp(2), levels.clamp(3), levels.clamp(100)) == (2, 2, 2)
    assert levels.deliver_timestamp_ms(100, 1_000_000) == 1_005_000


@pytest.mark.parametrize("level", [0, -1])
def test_no_level_is_no_delay(level: int) -> None:
    assert DelayLevels.parse().deliver_timestamp_ms(level, 7) == 7


def test_a_level_waits_in_the_queue_before_its_number() -> None:
    assert [queue_of(level) for level in (1, 18)] == [0, 17]
    assert level_of(queue_of(3)) == 3


@pytest.mark.parametrize("text", ["", "  ", "1", "s", "1x", "1s -5s", "1.5s", "1s,5s", "100ms", "9999999999s"])
def test_a_setting_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        DelayLevels.parse(text)


@given(st.lists(st.integers(0, 10**8).map(lambda seconds: seconds * 1000), min_size=1))
def test_levels_are_written_as_they_are_read(delays_ms: list[int]) -> None:
    levels = DelayLevels(tuple(delays_ms))
    assert DelayLevels.parse(str(levels)) == levels


@pytest.mark.parametrize(("queue_id", "queue_offset"), [(0, 0), (17, 5), (0, (1 << 48) - 1), (1000, 1 << 40)])
def test_a_mark_names_a_place_and_is_no_offset_of_a_half_message_or_a_timer(queue_id, queue_offset):
    mark = delivered_mark(queue_id, queue_offset)
    assert parse_delivered_mark(mark) == (queue_id, queue_offset)
    assert -(1 << 63) <= mark <= -(1 << 62)
    assert parse_delivered_mark(0) is parse_delivered_mark(1 << 50) is parse_delivered_mark(-1 - (1 << 50)) is None
