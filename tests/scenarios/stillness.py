"""A loop that knows when nothing moves any more.

All of a scenario's programs live on one loop, so when no callback is due, no socket has bytes and no thread works,
nothing happens until somebody turns the clock. (The idea is trio's autojump clock.)

    with Loop() as loop:
        loop.run(main(loop))        # in which: await loop.still()
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# What one socket of this machine wrote another can read at once, but for a moment in the kernel on a busy machine.
LOOKS = 3
LOOK_S = 0.001


class _Threads(ThreadPoolExecutor):
    """Knows what its threads have still to do."""

    def __init__(self) -> None:
        super().__init__(4)
        self._working: set[Future[Any]] = set()
        self.others: Callable[[], bool] = lambda: False

    @property
    def busy(self) -> bool:
        return self.others() or any(not each.done() for each in self._working)

    def submit(self, function: Any, /, *args: Any, **more: Any) -> Future[Any]:
        """Run it in a thread, which works until the loop knows the result: a busy machine may halt it before."""
        result: Future[Any] = Future()

        def work() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                found = function(*args, **more)
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(found)

        self._working = {each for each in self._working if not each.done()}
        self._working.add(super().submit(work))
        return result


class _Selector(selectors.DefaultSelector):
    """Tells who waits for stillness when the loop would sleep."""

    def __init__(self, threads: _Threads) -> None:
        super().__init__()
        self._waiting: asyncio.Future[None] | None = None
        self._threads = threads
        self._looks = 0

    def still(self, looks: int) -> asyncio.Future[None]:
        self._waiting = asyncio.get_running_loop().create_future()
        self._looks = looks
        return self._waiting

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._waiting is None or (timeout is not None and timeout <= 0):
            return self._seen(super().select(timeout))
        events = self._seen(super().select(LOOK_S if self._looks else 0))
        if not events and not self._threads.busy:
            self._looks -= 1
            if self._looks <= 0:
                self._waiting.set_result(None)
                self._waiting = None
        return events

    def _seen(
        self, events: list[tuple[selectors.SelectorKey, int]]
    ) -> list[tuple[selectors.SelectorKey, int]]:
        if events or self._threads.busy:
            self._looks = LOOKS
        return events


class Loop:
    """Runs a scenario."""

    def __init__(self) -> None:
        self._threads = _Threads()
        self._selector = _Selector(self._threads)
        self._runner = asyncio.Runner(loop_factory=self._make)

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.run(main)
        finally:
            self._runner.close()
            self._threads.shutdown()

    def watch(self, busy: Callable[[], bool]) -> None:
        """Count other threads as busy while `busy()` is true."""
        self._threads.others = busy

    async def still(self) -> None:
        """Return when nothing happens any more unless time passes. One look is enough while only time has passed."""
        await self._selector.still(0)

    async def still_after_a_step(self) -> None:
        """As `still`, when somebody did something: what was written may be on its way."""
        await self._selector.still(LOOKS)

    def _make(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(self._selector)
        loop.set_default_executor(self._threads)
        return loop
