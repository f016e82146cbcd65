"""Tasks that live exactly as long as their owner's `async with`.

A bare TaskGroup would wrap each exception of our `async with` into an ExceptionGroup, and would wait for endless loops.
This one ends its tasks when the owner leaves, and does not wrap the owner's own exception. As in any TaskGroup, a task
that fails cancels the owner; the context then raises the task's error, unwrapped if it is the only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.loop.waiting import close_after

T = TypeVar("T")

ENTERED: Final = "it was entered before, and can be only once; use one `with` block for all of it, or make another one"

INSIDE: Final = (
    "a handler, listener or check cannot leave its own consumer or client, which waits for it; let it set an "
    "asyncio.Event, and leave in the task that waits for this"
)


class Spawn(Protocol):
    """Starts a task that lives as long as some owner: `Background.spawn`."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]: ...


class Background:
    """An async context manager that starts tasks and ends them all at its exit."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in their order, in which they are cancelled
        self._open = False
        self._was_entered = False

    @property
    def is_open(self) -> bool:
        """Whether its owner was entered, and not left yet."""
        return self._open

    @property
    def is_inside(self) -> bool:
        """Return whether the caller is one of its tasks."""
        return asyncio.current_task() in self._tasks

    def check_outside(self) -> None:
        """Raises: ConfigError, the caller is one of its tasks, so leaving would wait for itself forever."""
        if self.is_inside:
            raise ConfigError(INSIDE)

    def check_new(self) -> None:
        """Raises: ConfigError, its owner was entered before."""
        if self._was_entered:
            raise ConfigError(ENTERED)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task.

        Raises: ClientClosed, the owner has left, or never entered, its `async with`, or a task has ended it.
        """
        if not self._open:
            coroutine.close()
            raise ClientClosed("it is closed, or not open yet; use it inside its `with` block")
        is_plain = asyncio.get_running_loop().get_task_factory() is None
        begun = coroutine if is_plain else _in_a_later_turn(coroutine)
        try:
            task = self._group.create_task(begun, name=name)
        except RuntimeError as error:
            for each in (begun, coroutine):
                each.close()
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
            raise alone(group) from None
        except asyncio.CancelledError as raised:
            if raised is not error:
                raise
            # The caller raises it. An AsyncExitStack that gets its own error back makes the error its own context, and
            # the stack around it then follows these contexts forever (Python 3.11).


async def _in_a_later_turn(coroutine: Coroutine[Any, Any, T]) -> T:
    """Begin a task after its owner has noted it. An eager task factory runs the first part of a task in `spawn`."""
    await asyncio.sleep(0)
    return await coroutine


def alone(error: BaseException) -> BaseException:
    """The single error inside groups of one, or the group itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
