"""What one part of a broker brings to it.

    topics.part()  ─┐
    delayed.part() ─┤── broker.py: one dispatcher of all handlers, one runner of all chores, all tasks, all saves
    Part(handlers) ─┘

So a new part is a file of its own and one line in `broker.py`. Its figures it gives to the broker's `Figures` itself,
when it is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Chore:
    """One periodic task; `do` may be a coroutine function."""

    name: str
    period_s: float
    do: Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Task:
    """Work that goes on as long as the broker runs, and ends it by its failure.

    Attributes:
        needs_writing: that the store takes nothing any more ends this work only, and not the broker, which can be read.
    """

    name: str
    start: Callable[[], Coroutine[Any, Any, object]]
    needs_writing: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """One part.

    Attributes:
        handlers: objects with methods marked by `remoting.dispatch.handles`.
        saves: what brings its state to disk when the broker stops, the last part's first.
    """

    handlers: tuple[object, ...] = ()
    chores: tuple[Chore, ...] = ()
    tasks: tuple[Task, ...] = ()
    saves: tuple[Callable[[], Awaitable[None]], ...] = ()
