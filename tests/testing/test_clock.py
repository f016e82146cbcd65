"""Time that passes only when the test says so."""

import asyncio
from typing import Any

import pytest

from sparrowmq.testing import ManualClock


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.0)
    await clock.advance(1.5, minutes=1)
    assert (clock.now_ms(), clock.monotonic()) == (62_500, 61.5)


async def test_timers_run_in_the_order_of_their_time() -> None:
    clock, seen = ManualClock(), list[Any]()
    for delay_s in (3, 1, 2):
        clock.call_later(delay_s, lambda delay_s=delay_s: seen.append((delay_s, clock.monotonic())))
    await clock.advance(2)
    assert seen == [(1, 1.0), (2, 2.0)]
    await clock.advance(1)
    assert seen[-1] == (3, 3.0)


async def test_a_sleeper_may_sleep_again_within_one_advance() -> None:
    clock, moments = ManualClock(), list[float]()

    async def tick() -> None:
        while True:
            await clock.sleep(10)
            moments.append(clock.monotonic())

    task = asyncio.ensure_future(tick())
    await clock.advance(minutes=1)
    task.cancel()
    assert moments == [10, 20, 30, 40, 50, 60]


async def test_a_cancelled_timer_does_not_run() -> None:
    clock, seen = ManualClock(), list[Any]()
    clock.call_later(1, seen.append, 1).cancel()
    await clock.advance(2)
    assert seen == []


async def test_waiting_ends_with_the_result_or_with_the_time() -> None:
    clock = ManualClock()
    assert await clock.wait_for(asyncio.sleep(0, "done"), 5) == "done"
    waiting = asyncio.ensure_future(clock.wait_for(asyncio.Event().wait(), 5))
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.2)
    with pytest.raises(TimeoutError):
        await waiting


async def test_cancelling_a_wait_cancels_what_it_waits_for() -> None:
    clock = ManualClock()
    inner = asyncio.ensure_future(asyncio.Event().wait())
    waiting = asyncio.ensure_future(clock.wait_for(inner, 5))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert inner.cancelled()


async def test_what_a_timer_set_going_may_come_to_its_end_before_the_next() -> None:
    told: list[str] = []

    async def settle() -> None:
        told.append("settled")

    clock = ManualClock(settle=settle)
    clock.call_later(1, told.append, "first")
    clock.call_later(2, told.append, "second")
    await clock.advance(3)
    assert told == ["settled", "first", "settled", "second", "settled", "settled"]
