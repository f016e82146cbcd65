"""Functions on stacks of their own, for code that waits without `await`: what a thread of the product does, and tools.

A fiber has a real thread that runs only while the scheduler waits for it. So one stack runs at any time, and which one
is drawn from the seed.

    resume ──> runs until it pauses: at a future without a result, and now and then at a call of the system
    the process dies ──> its fibers go on once more, and end with `Died`
"""

from __future__ import annotations

import _thread
import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, Final

from tests.simulation.schedule import Died, ProcessLoop

_PAUSE_S: Final = 1e-3


class _Stack:
    """A thread that runs one fiber after the other."""

    idle: ClassVar[list[_Stack]] = []

    def __init__(self) -> None:
        self.turn = _thread.allocate_lock()
        self.turn.acquire()
        self.work: Callable[[], object] = int
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            self.work()


class Fiber:
    """A function of a process.

    Args:
        pauses: the share of its calls of the system at which it lets others run.
    """

    current: ClassVar[Fiber | None] = None

    def __init__(self, loop: ProcessLoop, function: Callable[[], object], pauses: float) -> None:
        self._loop = loop
        self._function = function
        self._pauses = pauses
        self._has_ended = False
        self._pause_number = 0
        self._stack = _Stack.idle.pop() if _Stack.idle else _Stack()
        self._stack.work = self._run
        self._others = _thread.allocate_lock()
        self._others.acquire()

    def start(self) -> None:
        """Run it up to its first pause."""
        self._loop.fibers[self] = None
        self._enter()

    def resume(self, number: int) -> None:
        """Run it from its pause of this number up to its next one."""
        if not self._has_ended and number == self._pause_number:
            self._pause_number += 1
            self._enter()

    def end(self) -> None:
        """Let `Died` pass through it, because its process died."""
        while not self._has_ended:
            self._enter()

    def _enter(self) -> None:
        before, Fiber.current = Fiber.current, self
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            self._stack.turn.release()
            self._others.acquire()
        finally:
            asyncio._set_running_loop(running)
            Fiber.current = before

    def _run(self) -> None:
        try:
            self._function()
        except Died:
            pass
        finally:
            self._has_ended = True
            self._loop.fibers.pop(self, None)
            _Stack.idle.append(self._stack)
            self._others.release()

    # Inside of it -----------------------------------------------------------------------------------------------------

    def called_system(self) -> None:
        """Perhaps let others run. Raises: Died."""
        rng = self._loop.scheduler.rng
        if self._pauses and rng.random() < self._pauses:
            self._pause(rng.random() * _PAUSE_S)

    def wait_for(self, future: Future[Any], timeout_s: float | None) -> None:
        """Let others run until a future is done. Raises: Died."""
        number = self._pause_number
        future.add_done_callback(lambda _: self._loop.call_soon(self.resume, number))
        self._pause(timeout_s)

    def _pause(self, timeout_s: float | None) -> None:
        if timeout_s is not None:
            self._loop.call_later(timeout_s, partial(self.resume, self._pause_number))
        self._others.release()
        self._stack.turn.acquire()
        if self._loop.is_dead:
            raise Died


def waiting(result: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Future.result` as it is in a run: a fiber that calls it lets others run."""

    def waited(future: Future[Any], timeout: float | None = None) -> Any:
        fiber = Fiber.current
        if fiber is None:
            return result(future, timeout)
        if not future.done():
            fiber.wait_for(future, timeout)
        return result(future, 0)

    return waited
