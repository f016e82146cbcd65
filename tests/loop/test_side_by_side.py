"""sparrowmq.loop.tasks: several coroutines run side by side, and one alone needs no task."""

from __future__ import annotations

import asyncio

import pytest

from sparrowmq.loop.tasks import gather


async def test_several_run_side_by_side_and_their_results_have_their_order():
    reached = asyncio.Barrier(3)

    async def work(number: int) -> int:
        await asyncio.wait_for(reached.wait(), 5)
        return number

    assert await gather([work(1), work(2), work(3)]) == [1, 2, 3]
    assert await gather([]) == []


async def test_one_alone_runs_in_the_task_of_its_caller():
    async def work() -> asyncio.Task[None] | None:
        return asyncio.current_task()

    assert await gather([work()]) == [asyncio.current_task()]


async def test_an_error_is_raised():
    async def fail() -> None:
        raise ValueError("wrong")

    for count in (1, 2):
        with pytest.raises(ValueError, match="wrong"):
            await gather([fail() for _ in range(count)])
