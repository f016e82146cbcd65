from datetime import timedelta

import pytest

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.delay_levels import JAVA_LEVELS
from sparrowmq.protocol.messages.delays import delay_level


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (None, 0),
        (1, 1),
        (18, 18),
        (40, 40),
        ("60s", 5),
        ("120m", 18),
        (timedelta(seconds=1), 1),
        (timedelta(minutes=1), 5),
        (timedelta(hours=2), 18),
        *[(word, level) for level, word in enumerate(JAVA_LEVELS.split(), 1)],
    ],
)
def test_a_delay_is_a_level_of_the_broker(delay, level):
    assert delay_level(delay) == level


@pytest.mark.parametrize(
    ("delay", "nearest"),
    [
        ("15s", "10s (level 3) and 30s (level 4)"),
        ("0s", "1s (level 1) and 5s (level 2)"),
        ("3h", "1h (level 17) and 2h (level 18)"),
        (timedelta(seconds=-1), "1s (level 1) and 5s (level 2)"),
        (timedelta(milliseconds=1500), "1s (level 1) and 5s (level 2)"),
        (timedelta(seconds=1, microseconds=1), "1s (level 1) and 5s (level 2)"),
        (timedelta(minutes=15), "10m (level 14) and 20m (level 15)"),
        (timedelta(days=1), "1h (level 17) and 2h (level 18)"),
    ],
)
def test_a_duration_that_brokers_do_not_have_is_refused_with_the_nearest(delay, nearest):
    with pytest.raises(InvalidMessage) as caught:
        delay_level(delay)
    assert f"the nearest are {nearest}" in str(caught.value)


@pytest.mark.parametrize("delay", [0, -1])
def test_levels_begin_with_1(delay):
    with pytest.raises(InvalidMessage, match=f"delay={delay}: levels begin with 1"):
        delay_level(delay)


@pytest.mark.parametrize("delay", [True, False, 1.0, "", "soon", "10 s", "-1s", "1h30m", b"1s", [1]])
def test_what_is_no_delay_is_refused(delay):
    with pytest.raises(InvalidMessage, match="is not a delay; give a duration such as"):
        delay_level(delay)
