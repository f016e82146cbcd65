"""Tasks that live exactly as long as their owner's `async with`."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from sparrowmq.errors import ClientClosed, ConfigError, StoreFailed
from sparrowmq.loop.tasks import Background, single_error


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_loops_end_with_their_owner() -> None:
    async with Background() as background:
        task = background.spawn(forever(), "loop")
    assert task.cancelled()


async def test_the_owners_own_error_passes_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with Background() as background:
            background.spawn(forever())
            raise KeyError("mine")


async def test_a_failed_task_stops_its_owner_and_tells_why() -> None:
    async def fail() -> None:
        raise StoreFailed("EIO")

    with pytest.raises(StoreFailed, match="EIO"):
        async with Background() as background:
            background.spawn(forever())
            background.spawn(fail())
            await forever()


async def test_nothing_starts_while_a_failed_task_ends_the_others() -> None:
    async def fail() -> None:
        raise StoreFailed("EIO")

    async def start_another() -> None:
        try:
            await forever()
        finally:
            with pytest.raises(ClientClosed, match="a task has failed"):
                background.spawn(forever())
            refused.append(True)

    refused: list[bool] = []
    with pytest.raises(StoreFailed):
        async with Background() as background:
            background.spawn(start_another())
            await asyncio.sleep(0)
            background.spawn(fail())
            await forever()
    assert refused


async def test_nothing_starts_outside_the_context() -> None:
    background = Background()
    with pytest.raises(ClientClosed):
        background.spawn(forever())
    async with background:
        pass
    with pytest.raises(ClientClosed, match="inside its `with` block"):
        background.spawn(forever())


def test_groups_of_one_are_opened_and_others_kept() -> None:
    one = StoreFailed("EIO")
    assert single_error(ExceptionGroup("outer", [ExceptionGroup("inner", [one])])) is one
    many = ExceptionGroup("two", [one, one])
    assert single_error(many) is many


async def test_it_is_entered_once() -> None:
    background = Background()
    async with background:
        task = background.spawn(forever())
        with pytest.raises(ConfigError, match="can be entered only once; use one `with` block"):
            await background.__aenter__()
        assert background.is_open and not task.done()
    with pytest.raises(ConfigError, match="create another one"):
        await background.__aenter__()


async def test_tasks_are_cancelled_in_the_order_in_which_they_began():
    """With the order of a set, that of their addresses, a simulated run could not be repeated."""
    ended = []

    async def last(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async with Background() as tasks:
        for number in range(50):
            tasks.spawn(last(number))
        await asyncio.sleep(0)
    assert ended == list(range(50))


class Waits:
    """A context whose end waits. If that is cancelled, the error has the first one as its context."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, kind: object, first: BaseException | None, trace: object) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as again:
            again.__context__ = first
            raise


@pytest.mark.timeout(20)
async def test_a_second_cancellation_of_an_end_ends_it() -> None:
    """As a member with its broker does that is stopped again while it stops: one stack of contexts in another."""

    async def serve() -> None:
        async with AsyncExitStack() as outer:
            inner = await outer.enter_async_context(AsyncExitStack())
            await inner.enter_async_context(Background())
            await inner.enter_async_context(Waits())
            await asyncio.sleep(60)

    task = asyncio.create_task(serve())
    for _ in range(2):
        await asyncio.sleep(0.01)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Begun(Coroutine[Any, Any, Any]):
    """A coroutine whose first part has run, as eager task factories run it. Python 3.11 has none."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner
        self._first = [inner.send(None)]

    def send(self, value: Any) -> Any:
        return self._first.pop() if self._first else self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        raise NotImplementedError


@contextmanager
def eager_tasks() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, coroutine, **named: asyncio.Task(Begun(coroutine), loop=loop, **named))
    try:
        yield
    finally:
        loop.set_task_factory(None)


async def test_an_eager_task_begins_after_its_owner_has_noted_it() -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")

    with eager_tasks():
        async with Background() as background:
            task = background.spawn(work())
            steps.append("noted")
            await task
            background.spawn(work()).cancel()
    assert steps == ["noted", "begun"]
