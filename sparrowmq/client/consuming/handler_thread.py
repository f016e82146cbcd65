"""A thread that calls a function which may block, one call at a time: a handler, or a listener for queues.

It is a daemon, so a function that never returns keeps neither its consumer nor the program from ending; the threads of
asyncio's executor are waited for.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any


class HandlerThread:
    """Calls `function` in a thread that starts with the first call.

    Args:
        name: the thread's.
    """

    def __init__(self, function: Callable[[Any], object], name: str) -> None:
        self._function = function
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def __call__(self, argument: Any) -> object:
        """Call the function in the thread, and return its result. Cancelling leaves the call running."""
        if not self._thread.is_alive():
            self._thread.start()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()
        self._calls.put(lambda: self._call(context, argument, loop, done))
        result = await done
        return await result if inspect.isawaitable(result) else result

    def end(self) -> None:
        """End the thread when the function returns."""
        self._calls.put(None)

    def _run(self) -> None:
        while call := self._calls.get():
            call()

    def _call(
        self,
        context: contextvars.Context,
        argument: Any,
        loop: asyncio.AbstractEventLoop,
        done: asyncio.Future[object],
    ) -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = context.run(self._function, argument)
        except BaseException as error:  # A SystemExit ends nothing here either.
            failure = error
        with suppress(RuntimeError):  # The loop has ended, so no task waits.
            loop.call_soon_threadsafe(_finish, done, result, failure)


def _finish(done: asyncio.Future[object], result: object, failure: BaseException | None) -> None:
    if done.done():
        return  # The task was cancelled.
    if failure is None:
        done.set_result(result)
    elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        done.set_exception(failure)
    else:  # A future cannot carry it, or a loop does not survive it.
        done.set_exception(RuntimeError(f"the handler raised {failure!r}"))


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Return whether a call gives a coroutine and does not block; also for objects with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
