"""Events count only while they are recent, and only if there are enough of them."""

from sparrowmq.core.stats import PERIOD_S, RecentEvents
from sparrowmq.testing.clock import ManualClock


async def test_enough_events_show_the_latest_until_they_are_old() -> None:
    clock = ManualClock()
    recent = RecentEvents(clock, min_count=2)
    recent.note("first")
    assert recent.last == ""
    await clock.advance(PERIOD_S - 1)
    recent.note("second")
    assert recent.last == "second"
    await clock.advance(1)
    assert recent.last == "", "the first one is too old"
    recent.note("third")
    assert recent.last == "third"


def test_events_whose_cause_is_gone_are_forgotten() -> None:
    recent = RecentEvents(ManualClock())
    recent.note("once")
    assert recent.last == "once"
    recent.forget()
    assert recent.last == ""
