"""A thread that calls a function which may block, one call at a time: a handler, or a listener for queues.

It is a daemon, so a function that never returns keeps neither its consumer nor the program from ending; the threads of
asyncio's executor are waited for.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from sparrowmq.client.arguments import Wrapped, is_coroutine_function
from sparrowmq.client.consuming.consumer_settings import QueuesChanged, check_listener
from sparrowmq.protocol.messages.message import MessageQueue

log = logging.getLogger(__name__)


class HandlerThread:
    """Calls `function` in a thread that starts with the first call."""

    def __init__(self, function: Callable[[Any], object], name: str) -> None:
        self._function = function
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def __call__(self, argument: Any) -> object:
        """Call the function in the thread, and return its result. Cancelling leaves the call running."""
        if not self._thread.is_alive():
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()
        self._calls.put(lambda: self._call(context, argument, loop, future))
        result = await future
        return await result if inspect.isawaitable(result) else result

    @property
    def ident(self) -> int | None:
        """The thread's number; None before the first call."""
        return self._thread.ident

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
        future: asyncio.Future[object],
    ) -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = context.run(self._function, argument)
        except BaseException as error:  # A SystemExit ends nothing here either.
            failure = error
        with suppress(RuntimeError):  # The loop has ended, so no task waits.
            loop.call_soon_threadsafe(_finish, future, result, failure)


def _finish(future: asyncio.Future[object], result: object, failure: BaseException | None) -> None:
    if future.done():  # The task was cancelled.
        if failure is not None:
            log.error("a function that was waited for no more has failed", exc_info=failure)
        return
    if failure is None:
        future.set_result(result)
    elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        future.set_exception(failure)
    else:  # A future cannot carry it, or a loop does not survive it.
        error = RuntimeError(f"the handler raised {failure!r}")
        error.__cause__ = failure  # It has the lines of the handler.
        future.set_exception(error)


def in_thread(handler: Callable[[Any], object], name: str) -> tuple[Callable[[Any], object], HandlerThread | None]:
    """The handler as a loop may call it, and its thread if the handler is plain, and so may block."""
    function = handler.handler if isinstance(handler, Wrapped) else handler
    if is_coroutine_function(function):
        return _call_of(handler, function), None
    thread = HandlerThread(function, name)
    return _call_of(handler, thread), thread


def _call_of(handler: Callable[[Any], object], inner: Callable[[Any], object]) -> Callable[[Any], object]:
    return handler.around(inner) if isinstance(handler, Wrapped) else inner


def with_listening_threads(options: Any) -> Any:
    """Options of a consumer whose listeners may call the blocking client."""
    listeners = {name: options[name] for name in ("on_assigned", "on_revoked") if options.get(name) is not None}
    return {**options, **{name: listening_in_thread(name, listener) for name, listener in listeners.items()}}


def listening_in_thread(name: str, listener: QueuesChanged) -> QueuesChanged:
    """A listener that calls a plain one in a thread, where it may call the blocking client. Raises: ConfigError."""
    check_listener(name, listener)
    if is_coroutine_function(listener):
        return listener

    async def call_in_thread(queues: list[MessageQueue]) -> None:
        thread = HandlerThread(listener, "queues changed")
        try:
            await thread(queues)
        finally:
            thread.end()

    return call_in_thread
