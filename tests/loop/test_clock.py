import asyncio
import time

import pytest

from sparrowmq.loop.clock import SystemClock

CLOCK = SystemClock()


def test_time_of_day_is_in_milliseconds():
    assert abs(CLOCK.now_ms() - time.time() * 1000) < 1000


def test_elapsed_time_never_goes_back():
    first = CLOCK.monotonic()
    assert CLOCK.monotonic() >= first


async def test_a_callback_comes_at_its_time_unless_cancelled():
    called = asyncio.Event()
    CLOCK.call_later(0.001, pytest.fail, "cancelled, yet called").cancel()
    CLOCK.call_later(0.002, called.set)
    await CLOCK.wait_for(called.wait(), 5)


async def test_what_takes_too_long_is_cancelled():
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await CLOCK.wait_for(never, 0.001)
    assert never.cancelled()


async def test_a_cancellation_is_obeyed_even_when_the_result_comes_in_the_same_turn():
    result = asyncio.get_running_loop().create_future()

    async def wait():
        await CLOCK.wait_for(result, 5)
        await asyncio.sleep(0)
        return "went on"

    waiting = asyncio.ensure_future(wait())
    await CLOCK.sleep(0)
    result.set_result(None)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
