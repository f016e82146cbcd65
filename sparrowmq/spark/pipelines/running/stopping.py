"""Signals to a pipeline that waits for Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def noted() -> Iterator[Callable[[], bool]]:
    """Note signals instead of raising KeyboardInterrupt; yields a function that says whether one came.

    A KeyboardInterrupt during a call to Spark breaks the bridge to Java, which is needed to stop the query. Control-C
    is noted, and SIGTERM if it has a handler that raises. Only the main thread gets signals.
    """
    came: list[int] = []
    handlers: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        try:
            # Spark's own handler of Control-C would ask Java in the middle of another question.
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            handlers[number](number, frame)
        except KeyboardInterrupt:
            came.append(number)

    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(each)):
                handlers[each] = handler
                signal.signal(each, note)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def kept_handler() -> Iterator[None]:
    """Keep the handler of Control-C while a session begins: Spark puts its own in the place of any other.

    Python's own handler may go, and that of an earlier session: a notebook needs the new one, which cancels the jobs.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if not _may_go(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _may_go(handler: Any) -> bool:
    is_of_spark = str(getattr(handler, "__module__", "")).startswith("pyspark.")
    return handler is None or handler is signal.default_int_handler or is_of_spark
