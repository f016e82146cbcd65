"""Long work pauses for other work, and short work does not."""

import asyncio
import time
from collections.abc import Awaitable

import pytest

from sparrowmq.loop import slices
from sparrowmq.loop.slices import (
    SLICE_S,
    Steps,
    WorkQueue,
    empty_in_steps,
    for_each,
    free_soon,
    in_slices,
    pause,
    run_to_end,
)


class Ticks:
    """A clock that advances by half a slice with each reading."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.readings * SLICE_S / 2


def counted(seen: list[int], most: int) -> Steps[str]:
    for i in range(most):
        seen.append(i)
        yield
    return "done"


def test_short_work_is_done_at_once() -> None:
    seen: list[int] = []
    assert in_slices(counted(seen, 3), lambda: 0.0) == "done"
    assert seen == [0, 1, 2]


async def test_long_work_pauses_and_others_run_meanwhile() -> None:
    seen: list[int] = []
    rest = in_slices(counted(seen, 5), Ticks())
    assert isinstance(rest, Awaitable)
    assert seen == [0]
    for i in range(5):
        asyncio.get_running_loop().call_later(0, seen.append, 100 + i)
    assert await rest == "done"
    assert seen[0] == 0
    assert [i for i in seen if i < 100] == [0, 1, 2, 3, 4]
    assert seen[-1] == 4
    assert not slices._pauses


async def test_works_that_pause_take_turns_and_one_continues_in_a_turn_of_the_loop() -> None:
    seen: list[str] = []

    async def work(name: str) -> None:
        for _ in range(3):
            await pause()
            seen.append(name)

    async def turns() -> None:
        for _ in range(12):
            seen.append("|")
            await asyncio.sleep(0)

    await asyncio.gather(work("a"), work("b"), work("c"), turns())
    assert "".join(seen).strip("|").replace("||", "|") == "a|b|c|a|b|c|a|b|c"


async def test_cancelled_work_ends_its_steps_and_does_not_stop_the_others() -> None:
    ended: list[str] = []

    def endless() -> Steps[None]:
        try:
            while True:
                yield
        finally:
            ended.append("closed")

    task = asyncio.create_task(run_to_end(endless(), Ticks()))
    other = asyncio.create_task(run_to_end(counted([], 9), Ticks()))
    await asyncio.sleep(0)
    task.cancel()
    assert await other == "done"
    assert ended == ["closed"]
    assert not slices._pauses


async def test_an_error_of_the_work_reaches_the_caller_at_once_or_later() -> None:
    def failing(after: int) -> Steps[None]:
        yield from counted([], after)
        raise ValueError(after)

    with pytest.raises(ValueError, match="0"):
        in_slices(failing(0))
    with pytest.raises(ValueError, match="4"):
        await run_to_end(failing(4), Ticks())


async def test_each_item_is_a_step() -> None:
    seen: list[int] = []
    await run_to_end(for_each(range(4), seen.append), Ticks())
    assert seen == [0, 1, 2, 3]


async def test_works_that_begin_in_one_turn_of_the_loop_share_a_slice() -> None:
    seen: list[int] = []
    clock = Ticks()
    first, second = in_slices(counted(seen, 5), clock), in_slices(counted(seen, 5), clock)
    assert seen == [0]  # the first one used the whole slice
    assert isinstance(first, Awaitable) and isinstance(second, Awaitable)
    assert list(await asyncio.gather(first, second)) == ["done", "done"]
    await asyncio.sleep(0)
    assert not slices._turn_began_s


async def test_work_is_done_without_a_pause_where_it_must_be() -> None:
    seen: list[int] = []
    assert slices.at_once(counted(seen, 3)) == "done" and seen == [0, 1, 2]


def test_tables_and_lists_are_emptied_step_by_step() -> None:
    table, items = {1: "a", 2: "b"}, [1, 2, 3]
    assert len(list(empty_in_steps(table))) == 2
    assert len(list(empty_in_steps(items))) == 3
    assert not table
    assert not items


async def test_unsent_answers_are_freed_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-5)
    pieces = [bytes(10)] * 200
    free_soon(pieces)
    assert 0 < len(pieces) < 200
    while pieces:
        await asyncio.sleep(0)


def slow(seen: list[str], name: str) -> Steps[str]:
    for _ in range(3):
        seen.append(name)
        time.sleep(1e-5)  # longer than the slices here, so that each has one step
        yield
    if name == "broken":
        raise ValueError(name)
    return name


async def to_end_of(rest: Awaitable[str]) -> str:
    return await rest


async def test_works_in_a_line_are_done_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    line, seen = WorkQueue(), list[str]()
    names = ["first", "broken", "cancelled", "last"]
    works = [line.work(slow(seen, name), name) for name in names]
    tasks = [asyncio.ensure_future(work) for work in works if isinstance(work, Awaitable)]
    await asyncio.sleep(0)
    assert line.marks == set(names) and set(seen) <= {"first"}
    tasks[2].cancel()
    first, broken, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, last, str(broken)) == ("first", "last", "broken")
    assert isinstance(cancelled, asyncio.CancelledError)
    assert seen == 3 * ["first"] + 3 * ["broken"] + 3 * ["last"]
    assert not line.marks
    monkeypatch.setattr(slices, "SLICE_S", 60.0)  # however busy the machine is
    assert line.work(slow(seen, "alone")) == "alone"


async def test_a_work_that_is_cancelled_before_it_begins_its_turn_gives_the_turn_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    line, seen = WorkQueue(), list[str]()
    loop = asyncio.get_running_loop()

    def first() -> Steps[str]:
        yield from slow(seen, "first")
        # It runs after the turn is given, and before its work begins.
        loop.call_soon(lambda: loop.call_soon(cancelled.cancel))
        return "first"

    works = [
        line.work(first()),
        line.work(slow(seen, "cancelled"), "cancelled"),
        line.work(slow(seen, "last")),
    ]
    rest, cancelled, last = (asyncio.ensure_future(work) for work in works if isinstance(work, Awaitable))
    async with asyncio.timeout(5):
        await rest
        assert await last == "last"
    assert cancelled.cancelled()
    assert seen == 3 * ["first"] + 3 * ["last"]
    assert not line.marks


async def test_a_work_that_is_cancelled_during_its_turn_gives_the_turn_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    line, seen = WorkQueue(), list[str]()
    works = [line.work(slow(seen, name)) for name in ("first", "cancelled", "last")]
    first, cancelled, last = (asyncio.ensure_future(work) for work in works if isinstance(work, Awaitable))
    first.add_done_callback(lambda _: cancelled.cancel())
    assert await last == "last"
    assert cancelled.cancelled()


async def test_a_work_that_is_cancelled_before_it_first_runs_gives_the_turn_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    line, seen = WorkQueue(), list[str]()
    rest = line.work(slow(seen, "cancelled"), "cancelled")
    assert isinstance(rest, Awaitable)
    cancelled = asyncio.ensure_future(to_end_of(rest))
    cancelled.cancel()
    last = line.work(slow(seen, "last"))
    assert isinstance(last, Awaitable)
    async with asyncio.timeout(5):
        assert await last == "last"
    assert cancelled.cancelled()
    assert not line.marks


async def test_a_work_that_is_awaited_after_those_before_it_are_done_has_its_turn_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    line, seen = WorkQueue(), list[str]()
    first, second = (line.work(slow(seen, name)) for name in ("first", "second"))
    assert isinstance(first, Awaitable) and isinstance(second, Awaitable)
    await first
    begun = asyncio.ensure_future(second)
    await asyncio.sleep(0)
    third = line.work(slow(seen, "third"))
    assert isinstance(third, Awaitable)
    assert list(await asyncio.gather(begun, third)) == ["second", "third"]
    assert seen == 3 * ["first"] + 3 * ["second"] + 3 * ["third"]
