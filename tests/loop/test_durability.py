"""What an answer waits for: every demand, no longer than promised, and the failure of any."""

import pytest

from sparrowmq.errors import NoSlaveNear, NotSafeInTime, StoreFailed
from sparrowmq.loop.durability import Durability, Requirement
from sparrowmq.loop.watermark import Watermark
from sparrowmq.testing.clock import ManualClock


class Told:
    """Notes what somebody who waits is told."""

    def __init__(self, safety: Durability, target: int) -> None:
        self.said: list[BaseException | None] = []
        safety.when(target, self.said.append)


@pytest.fixture
def flushed() -> Watermark:
    return Watermark()


@pytest.fixture
def replicated() -> Watermark:
    return Watermark()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def both(flushed: Watermark, replicated: Watermark, clock: ManualClock) -> Durability:
    return Durability((Requirement(flushed, 10, "on disk"), Requirement(replicated, 12, "replicated")), clock, 5)


async def test_who_waits_is_told_when_every_demand_is_fulfilled(
    both: Durability, flushed: Watermark, replicated: Watermark
) -> None:
    told = Told(both, 100)
    flushed.advance(100)
    assert told.said == [] and not both.holds(100)
    replicated.advance(99)
    assert told.said == []
    replicated.advance(100)
    assert told.said == [None] and both.holds(100) and not both.holds(101)


async def test_the_order_in_which_demands_are_fulfilled_does_not_matter(
    both: Durability, flushed: Watermark, replicated: Watermark
) -> None:
    told = Told(both, 100)
    replicated.advance(100)
    assert told.said == []
    flushed.advance(100)
    assert told.said == [None]


async def test_what_is_safe_is_told_at_once(both: Durability, flushed: Watermark, replicated: Watermark) -> None:
    flushed.advance(100)
    replicated.advance(100)
    assert Told(both, 100).said == [None]
    assert both.waiting == 0


@pytest.mark.parametrize(("reached", "code", "words"), [(False, 10, "on disk"), (True, 12, "replicated")])
async def test_who_waits_too_long_is_told_which_demand_did_not_come(
    both: Durability, flushed: Watermark, clock: ManualClock, reached: bool, code: int, words: str
) -> None:
    told = Told(both, 100)
    if reached:
        flushed.advance(100)
    await clock.advance(4.9)
    assert told.said == []
    await clock.advance(0.6)
    (late,) = told.said
    assert isinstance(late, NotSafeInTime)
    assert (late.code, late.timeout_s) == (code, 5)
    assert f"was not {words} within 5 s" in str(late)


async def test_each_has_the_whole_time(both: Durability, flushed: Watermark, clock: ManualClock) -> None:
    first = Told(both, 1)
    await clock.advance(3)
    second = Told(both, 2)
    await clock.advance(2.5)
    assert (len(first.said), len(second.said)) == (1, 0)
    await clock.advance(3)
    assert len(second.said) == 1


async def test_who_was_told_that_it_took_too_long_hears_nothing_more(
    both: Durability, flushed: Watermark, replicated: Watermark, clock: ManualClock
) -> None:
    told = Told(both, 100)
    await clock.advance(6)
    assert flushed.waiting == 0
    flushed.advance(100)
    replicated.advance(100)
    assert len(told.said) == 1


async def test_a_failure_of_any_mark_is_told_to_those_who_wait_and_to_those_who_come(
    both: Durability, flushed: Watermark, replicated: Watermark
) -> None:
    before = Told(both, 100)
    failure = StoreFailed("the disk is gone")
    flushed.fail(failure)
    assert before.said == [failure]
    assert Told(both, 100).said == [failure]
    replicated.advance(7)
    assert both.waiting == 0


async def test_nothing_ticks_while_nobody_waits(
    both: Durability, flushed: Watermark, replicated: Watermark, clock: ManualClock
) -> None:
    Told(both, 100)
    flushed.advance(100)
    replicated.advance(100)
    await clock.advance(1)
    ticks = both._ticks
    await clock.advance(60)
    assert both._ticks == ticks
    late = Told(both, 200)
    await clock.advance(6)
    assert len(late.said) == 1


# What is waited for by itself ---------------------------------------------------------------------------------------


@pytest.fixture
def chain(flushed: Watermark, replicated: Watermark, clock: ManualClock) -> Durability:
    """First the disk, for 5 s; then the slave, for 3 s."""
    then = Durability((Requirement(replicated, 12, "at a slave"),), clock, 3)
    return Durability((Requirement(flushed, 10, "on disk"),), clock, 5, then)


async def test_the_next_promise_has_a_time_limit_of_its_own(
    chain: Durability, flushed: Watermark, replicated: Watermark, clock: ManualClock
) -> None:
    told = Told(chain, 100)
    await clock.advance(4)
    flushed.advance(100)
    assert told.said == [] and not chain.holds(100)
    await clock.advance(2.9)
    assert told.said == []
    await clock.advance(0.6)
    (late,) = told.said
    assert isinstance(late, NotSafeInTime) and (late.code, late.timeout_s) == (12, 3)
    replicated.advance(100)
    assert chain.holds(100) and len(told.said) == 1


async def test_when_the_first_promise_is_broken_the_next_is_not_waited_for(
    chain: Durability, replicated: Watermark, clock: ManualClock
) -> None:
    told = Told(chain, 100)
    await clock.advance(5.5)
    (late,) = told.said
    assert isinstance(late, NotSafeInTime) and late.code == 10
    assert replicated.waiting == 0


async def test_all_promises_kept_is_told_at_once(chain: Durability, flushed: Watermark, replicated: Watermark) -> None:
    flushed.advance(100)
    replicated.advance(100)
    assert chain.holds(100) and Told(chain, 100).said == [None]


async def test_what_is_not_worth_waiting_for_is_told_at_once_and_only_if_it_is_not_there(
    replicated: Watermark, clock: ManualClock
) -> None:
    nobody = NoSlaveNear(11, "no slave is connected", 0)
    near = [nobody]
    lacks = lambda target: near[0] if target > 50 else None  # noqa: E731
    safety = Durability((Requirement(replicated, 12, "at a slave", lacks),), clock, 3)
    assert Told(safety, 100).said == [nobody] and safety.waiting == 0
    assert Told(safety, 40).said == []
    replicated.advance(100)
    assert Told(safety, 100).said == [None]
    assert "no slave is connected; if this machine is lost" in str(nobody)
