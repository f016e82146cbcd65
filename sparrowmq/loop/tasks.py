"""Tasks that live exactly as long as their owner's `async with`, and coroutines that wait.

A bare TaskGroup would wrap each exception of our `async with` into an ExceptionGroup, and would wait for endless loops.
`Background` ends its tasks when the owner leaves, and does not wrap the owner's own exception. As in any TaskGroup, a
task that fails cancels the owner; the context then raises the task's error, unwrapped if it is the only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar, cast

from sparrowmq.errors import ClientClosed, ConfigError

T = TypeVar("T")

_POLL_S: Final = 0.01
ENTERED_TWICE: Final = "it can be entered only once; use one `with` block for all of it, or create another one"

LEFT_FROM_INSIDE: Final = (
    "a handler, listener or check cannot leave its own consumer or client, which waits for it; let it set an "
    "asyncio.Event, and leave in the task that waits for this"
)


class Spawn(Protocol):
    def __call__(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]: ...


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest event loop that is installed, for `asyncio.Runner`."""
    try:
        import uvloop
    except ImportError:  # There is none for Windows.
        return None
    return uvloop.new_event_loop


class Background:
    """An async context manager that starts tasks and ends them all at its exit."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in their order, in which they are cancelled
        self._open = False
        self._was_entered = False

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def is_inside(self) -> bool:
        return asyncio.current_task() in self._tasks

    def check_outside(self) -> None:
        """Raises: ConfigError, the caller is one of its tasks, so leaving would wait for itself forever."""
        if self.is_inside:
            raise ConfigError(LEFT_FROM_INSIDE)

    def check_new(self) -> None:
        """Raises: ConfigError, its owner was entered before."""
        if self._was_entered:
            raise ConfigError(ENTERED_TWICE)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task. Raises: ClientClosed, the owner has left, or never entered, its `async with`, or a task has
        ended it.
        """
        if not self._open:
            coroutine.close()
            raise ClientClosed("it is closed, or not open yet; use it inside its `with` block")
        is_plain = asyncio.get_running_loop().get_task_factory() is None
        first_coroutine = coroutine if is_plain else _start_later(coroutine)
        try:
            task = self._group.create_task(first_coroutine, name=name)
        except RuntimeError as error:
            for unstarted in (first_coroutine, coroutine):
                unstarted.close()
            raise ClientClosed("a task has failed, which ends the others") from error
        self._tasks[task] = None
        if not is_plain:
            close_after(task, coroutine)
        task.add_done_callback(self._tasks.pop)
        return task

    async def __aenter__(self) -> Background:
        self.check_new()
        self._was_entered = True
        await self._group.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        for task in self._tasks:
            task.cancel()
        # Only a cancellation concerns the group: it may be the one by which a failed task stopped the owner.
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        try:
            await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))
        except BaseExceptionGroup as group:
            raise single_error(group) from None
        except asyncio.CancelledError as raised:
            if raised is not error:
                raise
            # The caller raises it. An AsyncExitStack that gets its own error back makes the error its own context, and
            # the stack around it then follows these contexts forever (Python 3.11).


async def _start_later(coroutine: Coroutine[Any, Any, T]) -> T:
    """Begin a task after its owner has noted it. An eager task factory runs the first part of a task in `spawn`."""
    await asyncio.sleep(0)
    return await coroutine


def single_error(error: BaseException) -> BaseException:
    """The single error inside groups of one, or the group itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def after_thread(work: Callable[[], object], then: Callable[[], T | Awaitable[T]]) -> T:
    """The result of `then`, called on the loop after `work` in a thread."""
    await asyncio.to_thread(work)
    result = then()
    return await result if isinstance(result, Awaitable) else result


async def await_result(result: T | Awaitable[T | Awaitable[T]]) -> T:
    """The result, or what it becomes when it is awaited, perhaps twice."""
    awaited: object = result
    while isinstance(awaited, Awaitable):
        awaited = await awaited
    return cast(T, awaited)


async def wait_until_idle(is_busy: Callable[[], bool], max_s: float) -> None:
    """Return when something is over, or after `max_s` of the loop's own time. What ends cannot wait by a `Clock`: in a
    test nothing may move it any more.
    """
    now_s = asyncio.get_running_loop().time
    end_s = now_s() + max_s
    while is_busy() and now_s() < end_s:  # noqa: ASYNC110 (what is busy has no event for its end)
        await asyncio.sleep(_POLL_S)


async def await_and_call(awaitable: Awaitable[T], callback: Callable[[T | None, Exception | None], object]) -> None:
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


async def gather(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all coroutines, in their order, as `asyncio.gather` does. One alone runs in the caller's
    task: a task of its own would cost ten microseconds.
    """
    if len(work) == 1:
        return [await work[0]]
    return await asyncio.gather(*work)
