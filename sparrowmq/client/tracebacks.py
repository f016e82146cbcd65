"""Short tracebacks: a program that a SparrowError ends prints its own lines, one line of ours, and the sentence.

    Traceback (most recent call last):
      File "shop.py", line 6, in <module>
        mq.send("orders", b"hello")                                  the program
      File ".../sparrowmq/client/sync.py", line 78, in call
        raise shortened(error) from None                             the method that it called
    sparrowmq.errors.SendFailed: the message was not sent: ...       the reason, and what to do

The frames below that method, and the errors that led to this one, are in the log at level DEBUG. Any other exception
is a fault of this package and keeps its whole traceback.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import traceback
from asyncio import Task
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from sparrowmq.errors import SparrowError

log = logging.getLogger(__name__)
C = TypeVar("C", bound=type)
E = TypeVar("E", bound=SparrowError)
P = ParamSpec("P")
R = TypeVar("R")


def shortened(error: E) -> E:
    """Return the error without its frames. A method that programs call raises it `from None`."""
    log.debug("%s", error, exc_info=error)
    return error.with_traceback(None)


def short_tracebacks(cls: C) -> C:
    """Shorten the errors of a class's public coroutine methods and of `__aenter__`."""
    for name, method in list(vars(cls).items()):
        if inspect.iscoroutinefunction(method) and (not name.startswith("_") or name == "__aenter__"):
            setattr(cls, name, short_traceback(method))
    return cls


def short_traceback(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Shorten the errors of a coroutine method."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # pytest leaves this frame out
        try:
            return await method(*args, **kwargs)
        except SparrowError as error:
            raise shortened(error) from None

    return call


def stack_of(task: Task[None] | None, thread_id: int | None) -> str:
    """The lines at which a handler is now, in its thread or in its task; empty if it is nowhere."""
    if thread_id is not None:
        frame = sys._current_frames().get(thread_id)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""
    return "".join(traceback.format_list(traceback.StackSummary.extract(_frames(task)))) if task else ""


def _frames(task: Task[None]) -> Iterator[tuple[FrameType, int]]:
    awaited: Any = task.get_coro()
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        awaited = awaited.cr_await
