"""Coroutines that wait: for modules that are compiled and so have none of their own, and for the end of a server.

From Python 3.12 on mypyc's coroutines warn when an exception passes through them, and where warnings are errors the
warning takes the exception's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, cast

T = TypeVar("T")

_LOOK_S: Final = 0.01


class _Waiter(Protocol):
    def cancel(self) -> None: ...


class _Mark(Protocol):
    """The part of a Watermark that this module uses."""

    value: int

    def when(self, target: int, callback: Callable[[BaseException | None], object]) -> _Waiter | None: ...


async def after_thread(work: Callable[[], object], then: Callable[[], T | Awaitable[T]]) -> T:
    """The result of `then`, called on the loop after `work` in a thread."""
    await asyncio.to_thread(work)
    result = then()
    return await result if isinstance(result, Awaitable) else result


async def resolved(result: T | Awaitable[T | Awaitable[T]]) -> T:
    """The result, or what it becomes when it is awaited, perhaps twice."""
    found: object = result
    while isinstance(found, Awaitable):
        found = await found
    return cast(T, found)


async def in_turns(step: Callable[[], bool]) -> None:
    """Take steps until one says that there are no more; others may run between two of them."""
    for _ in iter(step, False):
        await asyncio.sleep(0)


async def over(is_busy: Callable[[], bool], most_s: float) -> None:
    """Return when something is over, or after `most_s` of the loop's own time.

    What ends cannot wait by a `Clock`: in a test nothing may move it any more.
    """
    now_s = asyncio.get_running_loop().time
    end_s = now_s() + most_s
    while is_busy() and now_s() < end_s:  # noqa: ASYNC110 (what is busy has no event for its end)
        await asyncio.sleep(_LOOK_S)


async def reached(mark: _Mark, target: int) -> int:
    if target > mark.value:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = mark.when(target, lambda error: _settle(future, error))
        try:
            await future
        finally:
            if waiter is not None:
                waiter.cancel()
    return mark.value


async def tell(awaitable: Awaitable[T], callback: Callable[[T | None, Exception | None], object]) -> None:
    """Await, and call `callback(result, None)` or `callback(None, error)`; cancelling calls it with neither."""
    try:
        result = await awaitable
    except Exception as error:
        callback(None, error)
    else:
        callback(result, None)


def close_after(task: asyncio.Task[Any], work: Awaitable[object]) -> None:
    """Close a coroutine at the end of the task that awaits it: one cancelled before its first step never does."""
    if isinstance(work, Coroutine):
        task.add_done_callback(lambda _: work.close())


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
