"""The periodic tasks of a broker in one table: name, period, function.

A chore that fails is logged and comes again in its time; only a failed store ends the broker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.config import BrokerSettings
from sparrowmq.broker.delay import DelayedDelivery
from sparrowmq.broker.figures import Figures
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.topics import Topics
from sparrowmq.clock import Clock
from sparrowmq.errors import StoreFailed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chore:
    """One periodic task; `do` may be a coroutine function."""

    name: str
    period_s: float
    do: Callable[[], Awaitable[None] | None]


def chores_of(
    settings: BrokerSettings,
    topics: Topics,
    groups: Groups,
    offsets: Offsets,
    delayed: DelayedDelivery,
    clients: Clients,
    locks: QueueLocks,
    figures: Figures,
) -> tuple[Chore, ...]:
    """The table."""
    return (
        Chore("save topics", 1, topics.file.save),
        Chore("save groups", 1, groups.file.save),
        Chore("save offsets", settings.save_offsets_ms / 1000, offsets.file.save),
        Chore("save delay offsets", settings.save_delays_ms / 1000, delayed.save),
        Chore("part with silent clients", 10, clients.expire),
        Chore("forget expired locks", 60, locks.forget_expired),
        Chore("sample rates", 1, figures.sample),
    )


async def run_chores(chores: Iterable[Chore], clock: Clock) -> None:
    """Do every chore in its period, for ever.

    Raises:
        ExceptionGroup of StoreFailed: the store failed.
    """
    async with asyncio.TaskGroup() as tasks:
        for chore in chores:
            tasks.create_task(_repeat(chore, clock), name=chore.name)


async def _repeat(chore: Chore, clock: Clock) -> None:
    while True:
        await clock.sleep(chore.period_s)
        try:
            done = chore.do()
            if inspect.isawaitable(done):
                await done
        except StoreFailed:
            raise
        except Exception:
            log.exception("the chore %r failed; it is tried again in %g s", chore.name, chore.period_s)
