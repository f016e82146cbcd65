"""A loop that knows when nothing moves any more.

All of a scenario's programs live on one loop. When no callback is due, no socket has bytes and no thread works, nothing
happens until somebody turns the clock. (The idea is trio's autojump clock.) What one socket of this machine writes,
another can read at once. So a scenario may start threads only by `run_in_executor`, or `watch` tells the loop of them.

    loop = Loop()
    loop.run(main(loop))  # in which: await loop.still()
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Events(asyncio.SelectorEventLoop):
    """Knows which threads work for it: each until the loop has its result, as a busy machine may halt it before."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        self.working: set[asyncio.Future[Any]] = set()

    def run_in_executor(self, executor: Executor | None, function: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        work = super().run_in_executor(executor, function, *args)
        self.working.add(work)
        work.add_done_callback(self.working.discard)
        return work


class _Selector(selectors.DefaultSelector):
    """Reports stillness when the loop would sleep. The end of a thread's work wakes the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: Callable[[], bool] = lambda: False
        self._waiting: asyncio.Future[None] | None = None

    def still(self) -> asyncio.Future[None]:
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._waiting is None or (timeout is not None and timeout <= 0) or self.busy():
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self._waiting.set_result(None)
            self._waiting = None
        return events


class Loop:
    """Runs a scenario."""

    def __init__(self) -> None:
        self._selector = _Selector()
        self._events = _Events(self._selector)
        self.watch(lambda: False)

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._events) as runner:
            runner.run(main)

    def watch(self, busy: Callable[[], bool]) -> None:
        """Count other threads as busy while `busy()` is true."""
        self._selector.busy = lambda: bool(self._events.working) or busy()

    async def still(self) -> None:
        """Return when nothing happens any more unless time passes."""
        await self._selector.still()
