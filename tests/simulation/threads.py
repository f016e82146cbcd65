"""Threads without threads: what a thread of the product would do runs between two callbacks, at a time from the seed.

A thread that waits for a queue cannot be stopped in the middle. So a queue that is empty raises `Idle`: the thread's
function ends, and begins again when something comes. That is the same for a function that keeps nothing while it waits,
as the flush thread does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tests.simulation.world import Process, World


class Idle(BaseException):
    """The thread waits for its queue."""


class Threads:
    """Stand-ins for `threading`, `SimpleQueue` and `ThreadPoolExecutor`, for the process that runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _process(self) -> Process:
        loop = self._world.scheduler.current
        assert loop is not None, "a thread belongs to a process"
        process: Process = loop.owner
        return process

    def Thread(self, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> SimThread:
        return SimThread(self._process(), target, args)

    def executor(self, *_: Any, **__: Any) -> SimExecutor:
        return SimExecutor(self._process())


class SimThread:
    """A thread that works through a queue."""

    running: ClassVar[SimThread | None] = None

    def __init__(self, process: Process, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._process = process
        self._target = target
        self._args = args
        self._has_ended = False
        self._is_due = False
        self._runs = False

    def start(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Go on, a little later."""
        if not self._is_due and not self._has_ended:
            self._is_due = True
            self._process.in_thread(self._run)

    def join(self, timeout: float | None = None) -> None:
        if not self._process.is_dead:
            self._run()

    def is_alive(self) -> bool:
        return not self._has_ended

    def _run(self) -> None:
        self._is_due = False
        if self._has_ended:
            return
        if self._runs:  # in a fiber that lets others run
            self.wake()
            return
        before, SimThread.running = SimThread.running, self
        self._runs = True
        try:
            self._target(*self._args)
            self._has_ended = True
        except Idle:
            pass
        finally:
            self._runs = False
            SimThread.running = before


class SimQueue:
    """A queue that one thread reads."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._reader: SimThread | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._reader is not None:
            self._reader.wake()

    def get(self) -> Any:
        if not self._items:
            self._reader = SimThread.running
            raise Idle
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()


class SimFuture(Future[Any]):
    """Work that runs later, or at once for a caller that waits for it."""

    def __init__(self, process: Process, work: Callable[[], Any]) -> None:
        super().__init__()
        self._process = process
        self._work = work

    def run(self) -> None:
        if self.done() or self._process.is_dead:
            return
        try:
            result = self._work()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def result(self, timeout: float | None = None) -> Any:
        self.run()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.run()
        return super().exception(0)


class SimExecutor:
    """A pool of one thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._futures: list[SimFuture] = []

    def __enter__(self) -> SimExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._futures:
            future.run()

    def submit(self, function: Callable[..., Any], *args: Any, **named: Any) -> SimFuture:
        future = SimFuture(self._process, lambda: function(*args, **named))
        self._futures = [each for each in self._futures if not each.done()] + [future]
        self._process.in_thread(future.run)
        return future
