"""Coroutines that wait; `tests/loop/test_watermark.py` has `Watermark.reached`."""

import asyncio
import inspect
from typing import Any

import pytest

from sparrowmq.errors import SparrowError
from sparrowmq.loop.tasks import await_and_call, close_after
from sparrowmq.loop.watermark import Watermark


async def test_what_is_reached_already_is_not_waited_for() -> None:
    mark = Watermark(5)
    assert await mark.reached(5) == 5
    assert mark.waiting == 0


async def test_a_callback_is_told_the_result_or_the_error() -> None:
    told: list[Any] = []

    async def outcome(error: Exception | None) -> str:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return "done"

    failed = SparrowError("failed")
    await await_and_call(outcome(None), lambda *told_now: told.append(told_now))
    await await_and_call(outcome(failed), lambda *told_now: told.append(told_now))
    assert told == [("done", None), (None, failed)]


async def test_who_is_cancelled_tells_nobody() -> None:
    told: list[Any] = []
    task = asyncio.create_task(await_and_call(asyncio.sleep(60), lambda *told_now: told.append(told_now)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []


async def test_coroutine_of_a_task_that_is_cancelled_before_its_first_step_is_closed() -> None:
    async def work() -> None: ...

    coroutine = work()
    task = asyncio.ensure_future(await_and_call(coroutine, lambda *_: None))
    close_after(task, coroutine)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
