"""A number that only rises, and who waits for it."""

import asyncio
from functools import partial

import pytest

from sparrowmq.errors import StoreFailed
from sparrowmq.loop.watermark import Waiter, Watermark


def test_waiters_are_called_lowest_target_first() -> None:
    mark, order = Watermark(), list[int]()
    for target in (5, 1, 3):
        mark.when(target, partial(lambda target, error: order.append(target), target))
    mark.advance(4)
    assert order == [1, 3]
    mark.advance(5)
    assert order == [1, 3, 5]


def test_a_target_already_reached_is_called_at_once() -> None:
    called = list[object]()
    assert Watermark(7).when(7, called.append) is None
    assert called == [None]


def test_the_value_never_goes_back() -> None:
    mark = Watermark(10)
    mark.advance(3)
    assert mark.value == 10


def test_failing_reaches_present_and_future_waiters() -> None:
    mark, seen = Watermark(), list[object]()
    mark.when(1, seen.append)
    error = StoreFailed("the disk said no")
    mark.fail(error)
    mark.when(1, seen.append)
    mark.advance(9)
    assert seen == [error, error]
    assert mark.value == 0


def test_the_first_failure_is_the_one_that_is_told() -> None:
    mark, seen = Watermark(), list[object]()
    first = StoreFailed("the disk said no")
    mark.fail(first)
    mark.fail(StoreFailed("and no again"))
    mark.when(1, seen.append)
    assert seen == [first]


def test_what_was_reached_before_the_failure_stays_reached() -> None:
    mark, seen = Watermark(5), list[object]()
    mark.fail(StoreFailed("late"))
    mark.when(4, seen.append)
    assert seen == [None]


def test_abandoned_waiters_do_not_pile_up() -> None:
    mark = Watermark()
    waiters = [mark.when(1_000_000, lambda error: None) for _ in range(10_000)]
    for waiter in waiters:
        assert waiter is not None
        waiter.cancel()
        waiter.cancel()
    assert mark.waiting == 0
    assert len(mark._heap) < 10


def test_abandoned_waiters_behind_a_living_one_do_not_pile_up() -> None:
    mark, seen = Watermark(), list[object]()
    mark.when(1, seen.append)
    for number in range(10_000):
        waiter = mark.when(1_000_000 + number, seen.append)
        assert waiter is not None
        waiter.cancel()
    assert mark.waiting == 1
    assert len(mark._heap) < 10
    mark.advance(2_000_000)
    assert seen == [None]


def test_a_cancelled_waiter_between_living_ones_is_not_called() -> None:
    mark, seen = Watermark(), list[object]()
    mark.when(1, lambda error: seen.append(1))
    middle = mark.when(2, lambda error: seen.append(2))
    mark.when(3, lambda error: seen.append(3))
    assert middle is not None
    middle.cancel()
    mark.advance(3)
    assert seen == [1, 3]
    assert mark.waiting == 0


def test_a_callback_may_wait_again() -> None:
    mark, seen = Watermark(), list[object]()

    def again(error: BaseException | None) -> None:
        seen.append(mark.value)
        if mark.value < 6:
            mark.when(mark.value + 2, again)

    mark.when(2, again)
    for value in range(1, 8):
        mark.advance(value)
    assert seen == [2, 4, 6]


async def test_a_coroutine_waits_until_the_target_is_reached() -> None:
    mark = Watermark()
    waiting = asyncio.ensure_future(mark.reached(3))
    await asyncio.sleep(0)
    mark.advance(2)
    assert not waiting.done()
    mark.advance(4)
    assert await waiting == 4


async def test_cancelling_a_coroutine_leaves_no_waiter() -> None:
    mark = Watermark()
    waiting = asyncio.ensure_future(mark.reached(3))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert mark.waiting == 0


async def test_a_waiting_coroutine_gets_the_failure() -> None:
    mark = Watermark()
    waiting = asyncio.ensure_future(mark.reached(3))
    await asyncio.sleep(0)
    mark.fail(StoreFailed("gone"))
    with pytest.raises(StoreFailed):
        await waiting


def test_who_waits_can_be_refused_and_later_ones_see_it_rise():
    mark = Watermark()
    told: list[tuple[int, BaseException | None]] = []

    def wait(target: int) -> Waiter | None:
        return mark.when(target, lambda error: told.append((target, error)))

    for target in (5, 3, 9):
        wait(target)
    cancelled = wait(4)
    assert cancelled is not None
    cancelled.cancel()
    refusal = OSError("not now")
    mark.refuse(refusal)
    assert told == [(3, refusal), (5, refusal), (9, refusal)] and mark.waiting == 0
    wait(5)
    assert mark.waiting == 1
    mark.advance(5)
    assert told[3:] == [(5, None)]
