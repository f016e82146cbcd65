"""Runs the periodic tasks of a broker's parts.

A chore that fails is logged, and runs again after its period. A chore that stores something ends when the store
has failed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable

from sparrowmq.broker.part import Chore
from sparrowmq.core.safe_text import sentence
from sparrowmq.errors import DiskFull, StoreFailed
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)


async def run_chores(chores: Iterable[Chore], clock: Clock) -> None:
    """Run every chore in its period, forever. A chore that stores something ends when the store has failed."""
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
            log.warning("the chore %r ends with the store", chore.name)
            return
        except (OSError, DiskFull) as error:  # a full disk, no descriptors: no fault of ours
            log.warning(
                "the chore %r failed (%s); it is tried again in %g s",
                *(chore.name, sentence(error), chore.period_s),
            )
        except Exception:
            log.exception("the chore %r failed; it is tried again in %g s", chore.name, chore.period_s)
