import pytest

from sparrowmq.broker.metrics.consumption import MAX_PAIRS, SAMPLE_PERIOD_S, Consumption
from sparrowmq.metrics.figures import Figures


@pytest.fixture
def consumption(clock):
    return Consumption(clock, Figures())


async def passes(consumption, clock, seconds, *takes):
    """Time passes, and in each second each of `takes` is taken."""
    for second in range(seconds):
        for take in takes:
            consumption.count_received(*take)
        await clock.advance(seconds=1)
        if second % SAMPLE_PERIOD_S == 0:
            consumption.sample()


async def test_the_paces_are_a_figure(clock):
    figures = Figures()
    consumption = Consumption(clock, figures)
    consumption.count_received("g", "Orders", 20)
    consumption.count_received("h", "Orders", 10)
    await clock.advance(seconds=10)
    assert figures.values("sparrowmq_group_pace") == {("g", "Orders"): 2, ("h", "Orders"): 1}
    (chore,) = consumption.part().chores
    assert (chore.period_s, chore.do) == (SAMPLE_PERIOD_S, consumption.sample)


def test_groups_may_come_and_go_while_paces_are_read(consumption):
    consumption.count_received("g", "Orders", 20)
    consumption.count_received("h", "Orders", 10)
    paces = iter(consumption.paces())
    next(paces)
    consumption.count_received("i", "Orders", 10)
    assert [key for key, _ in paces] == [("h", "Orders")]


async def test_a_group_has_a_pace_in_each_topic(consumption, clock):
    await passes(consumption, clock, 120, ("g", "Orders", 30), ("g", "Bills", 2), ("h", "Orders", 5))
    assert consumption.per_second("g", ["Orders"]) == pytest.approx(30, rel=0.05)
    assert consumption.per_second("g", ["Orders", "Bills", "Never"]) == pytest.approx(32, rel=0.05)
    assert consumption.per_second("h", ["Orders", "Bills"]) == pytest.approx(5, rel=0.05)


async def test_the_pace_is_that_of_the_last_minute(consumption, clock):
    await passes(consumption, clock, 120, ("g", "Orders", 30))
    await passes(consumption, clock, 30)
    assert consumption.per_second("g", ["Orders"]) == pytest.approx(15, rel=0.15)
    await passes(consumption, clock, 60, ("g", "Orders", 4))
    assert consumption.per_second("g", ["Orders"]) == pytest.approx(4, rel=0.15)


async def test_who_takes_nothing_for_a_minute_is_forgotten(consumption, clock):
    consumption.count_received("g", "Orders", 30)
    await passes(consumption, clock, 40)
    assert len(consumption._pairs) == 1
    await passes(consumption, clock, 40)
    assert not consumption._pairs and consumption.per_second("g", ["Orders"]) == 0
    assert consumption.messages.value == 30


async def test_there_are_never_more_pairs_than_the_limit(consumption, clock):
    for number in range(MAX_PAIRS + 5):
        consumption.count_received("g", f"Topic{number}", 1)
    assert len(consumption._pairs) == MAX_PAIRS and consumption.messages.value == MAX_PAIRS + 5
    await passes(consumption, clock, 120, ("g", "Topic0", 1))
    await passes(consumption, clock, 60, ("g", f"Topic{MAX_PAIRS + 1}", 3))
    assert consumption.per_second("g", [f"Topic{MAX_PAIRS + 1}"]) == pytest.approx(3, rel=0.1)


def test_pulls_are_counted_by_whether_they_found_something(consumption):
    for count in (3, 0, 1, 0, 0):
        consumption.count_received("g", "Orders", count)
    assert (consumption.messages.value, consumption.pulls_with_messages.value, consumption.missed.value) == (
        4,
        2,
        3,
    )
