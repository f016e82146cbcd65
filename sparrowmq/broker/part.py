"""A part of a broker: its handlers, chores, tasks and saves.

    topics.part()  ─┐
    delayed.part() ─┤── broker.py: one dispatcher of all handlers, one runner of all chores, all tasks, all saves
    Part(handlers) ─┘

So a new part is one more file, and one more line in `broker.py`. A part adds its figures to the broker's `Figures` when
it is created.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from sparrowmq.core.safe_text import error_sentence
from sparrowmq.errors import DiskFull, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import Probe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chore:
    """One periodic task; `do` may be a coroutine function."""

    name: str
    period_s: float
    do: Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Task:
    """Work that goes on as long as the broker runs. If the store fails, work that `needs_writing` ends, and no more."""

    name: str
    start: Callable[[], Coroutine[Any, Any, object]]
    needs_writing: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """One part. `saves` save its state when the broker stops, those of the last part first; `probes`: conditions.py."""

    handlers: tuple[object, ...] = ()
    chores: tuple[Chore, ...] = ()
    tasks: tuple[Task, ...] = ()
    saves: tuple[Callable[[], Awaitable[None]], ...] = ()
    probes: tuple[Probe, ...] = ()


async def run_chores(chores: Iterable[Chore], clock: Clock) -> None:
    """Run every chore in its period, forever. One that fails is logged and goes on, unless the store has failed."""
    async with asyncio.TaskGroup() as tasks:
        for chore in chores:
            tasks.create_task(_repeat(chore, clock), name=chore.name)


async def _repeat(chore: Chore, clock: Clock) -> None:
    while True:
        await clock.sleep(chore.period_s)
        try:
            awaitable = chore.do()
            if inspect.isawaitable(awaitable):
                await awaitable
        except StoreFailed:
            log.warning("the store failed: the chore %r stopped", chore.name)
            return
        except (OSError, DiskFull) as error:  # a full disk, no descriptors: no fault of ours
            log.warning(
                "the chore %r failed (%s); it is tried again in %g s",
                *(chore.name, error_sentence(error), chore.period_s),
            )
        except Exception:
            log.exception("the chore %r failed; it is tried again in %g s", chore.name, chore.period_s)
