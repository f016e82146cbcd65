"""A part of a broker: its handlers, chores, tasks and saves.

    topics.part()  ─┐
    delayed.part() ─┤── broker.py: one dispatcher of all handlers, one runner of all chores, all tasks, all saves
    Part(handlers) ─┘

So a new part is one more file, and one more line in `broker.py`. A part adds its figures to the broker's `Figures` when
it is created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sparrowmq.metrics.condition_kinds import Probe


@dataclass(frozen=True, slots=True)
class Chore:
    """One periodic task; `do` may be a coroutine function."""

    name: str
    period_s: float
    do: Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Task:
    """Work that goes on as long as the broker runs. If it fails, the broker ends.

    Attributes:
        needs_writing: when the store has failed, only this work ends. The broker goes on and serves reads.
    """

    name: str
    start: Callable[[], Coroutine[Any, Any, object]]
    needs_writing: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """One part.

    Attributes:
        handlers: objects with methods marked by `remoting.dispatch.handles`.
        saves: functions that save its state when the broker stops, those of the last part first.
        probes: the conditions in which it does less than people expect, and how to see them (conditions.py).
    """

    handlers: tuple[object, ...] = ()
    chores: tuple[Chore, ...] = ()
    tasks: tuple[Task, ...] = ()
    saves: tuple[Callable[[], Awaitable[None]], ...] = ()
    probes: tuple[Probe, ...] = ()
