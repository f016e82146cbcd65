"""The life of a client that a framework starts and closes, where no `async with` block can be.

    start ──> a task of its own: enters ── lives ── leaves <── close

One task enters and leaves, as task groups want it. A framework may start in one task, and close in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from sparrowmq.client.functions import is_stray
from sparrowmq.client.loop_affinity import check_asyncio
from sparrowmq.errors import ConfigError
from sparrowmq.loop.tasks import ENTERED


class ManagedLifetime:
    """The life of some context managers, from the first one in to the first one out."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def start(self, parts: Sequence[AbstractAsyncContextManager[Any]]) -> None:
        """Enter the parts, and return when they are entered. Cancelling leaves them.

        Raises:
            ConfigError: it was started before, or asyncio does not run.
            Exception: the error of the part that could not be entered.
        """
        check_asyncio()
        if self._task is not None:
            raise ConfigError(ENTERED)
        entered = asyncio.Event()
        self._task = asyncio.create_task(self._live(parts, entered), name="sparrowmq life")
        waiting = asyncio.ensure_future(entered.wait())
        try:
            await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end()
            raise
        finally:
            waiting.cancel()
        if not entered.is_set():
            failed, self._task = self._task, None
            await failed

    async def close(self) -> None:
        """Leave the parts; do nothing if they were not entered. Cancelling leaves them at once.

        Raises: Exception, the error that ended the life before, or that a part raises when it is left.
        """
        task = self._task
        if task is None:
            return
        self._leave.set()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and is_stray():
                return  # Another call was cancelled, and has ended it.
            await self._end()
            raise

    def ask(self) -> None:
        """Let the parts be left soon, without waiting for it."""
        self._leave.set()

    async def _end(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _live(self, parts: Sequence[AbstractAsyncContextManager[Any]], entered: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part)
            entered.set()
            await self._leave.wait()
