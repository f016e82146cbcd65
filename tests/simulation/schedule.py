"""Virtual time, and the order in which simulated processes run: one thread, driven by one seed.

Each process has an event loop of its own (`ProcessLoop`), without a selector and without threads. The scheduler owns
the time and chooses the loop that runs next:

    timers   a heap of (time, number, loop, callback); time jumps to the first one when no loop has anything to do
    ready    per loop, in the order that asyncio promises; which loop is next is drawn from the seed

So a process that pauses is a loop that is not chosen, and a process that dies is a loop whose callbacks are dropped. No
clean-up of a dead process runs: `Died` passes through it at its next call of the system.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import itertools
import random
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TextIO

_TURN: Final = 8  # callbacks of one loop before another one may be chosen
_CALLBACK_S: Final = 20e-6  # a callback takes about this time
_RECENT: Final = 400


class Died(BaseException):
    """The process does not exist any more. Raised by its calls of the system, so that nothing of it goes on."""


class Scheduler:
    """The time and the choices of one run.

    Attributes:
        now: seconds since the begin of the run.
        rng: every choice of the simulation.
        current: the loop that runs now; None between two callbacks.
        recent: the last events of the trace.
        unhandled: errors that a loop reported.
        sink: gets every event.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        SimTask.serials, SimFuture.serials = itertools.count(), itertools.count()
        self.now = 0.0
        self.current: ProcessLoop | None = None
        self.recent: deque[str] = deque(maxlen=_RECENT)
        self.unhandled: list[str] = []
        self.sink: TextIO | None = None
        self._digest = hashlib.blake2b(digest_size=8)
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, ProcessLoop | None, Callable[[], object]]] = []
        self._ready: list[ProcessLoop] = []

    def note(self, text: str, *, is_small: bool = False) -> None:
        """Add an event to the trace; small ones are not among the last events."""
        line = f"{self.now:.6f} {text}"
        self._digest.update(line.encode())
        if not is_small:
            self.recent.append(line)
        if self.sink is not None:
            self.sink.write(line + "\n")

    @property
    def trace_hash(self) -> str:
        """A hash of all events and of all choices so far."""
        digest = self._digest.copy()
        digest.update(f"{self.now!r} {hash(self.rng.getstate()[1])}".encode())
        return digest.hexdigest()

    def at(self, when: float, callback: Callable[[], object], loop: ProcessLoop | None = None) -> None:
        """Run a callback at a time: by `loop`, or outside of all processes."""
        heapq.heappush(self._timers, (when, next(self._numbers), loop, callback))

    def after(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Run a callback after a time, outside of all processes."""
        self.at(self.now + delay_s, callback)

    def made_ready(self, loop: ProcessLoop) -> None:
        """Note that a loop has something to do."""
        if not loop.is_listed:
            loop.is_listed = True
            self._ready.append(loop)

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            if self._timers and self._timers[0][0] <= self.now:
                self._fire()
            loop = self._next()
            if loop is not None:
                self.now += _CALLBACK_S * loop.turn(_TURN)
            elif self._timers and self._timers[0][0] <= until:
                self.now = max(self.now, self._timers[0][0])
            else:
                self.now = max(self.now, until)
                return
            if self.now > until:
                return

    def _fire(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            _, _, loop, callback = heapq.heappop(timers)
            if loop is None:
                callback()
            else:
                loop.enqueue(callback)

    def _next(self) -> ProcessLoop | None:
        able = [loop for loop in self._ready if not loop.is_paused and loop.may_run(self.now)]
        if len(able) > 1:
            return able[self.rng.randrange(len(able))]
        return able[0] if able else None

    def unlist(self, loop: ProcessLoop) -> None:
        """Note that a loop has nothing to do."""
        loop.is_listed = False
        self._ready.remove(loop)


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    _log_destroy_pending: bool
    serials = itertools.count()

    def __init__(self, *args: Any, **named: Any) -> None:
        self._serial = next(SimTask.serials)
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self._serial


class SimFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    serials = itertools.count()

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._serial = next(SimFuture.serials)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


_Loop: Any = asyncio.AbstractEventLoop  # only those of its methods that the product needs are there


class ProcessLoop(_Loop):  # type: ignore[misc]
    """The event loop of one simulated process.

    Attributes:
        owner: the process.
        is_dead: its callbacks are dropped.
        is_paused: its callbacks wait.
        busy_until: it runs nothing before this time, as if a call blocked it.
        dies_in: the number of callbacks after which its process dies; None for never.
        fibers: its functions on stacks of their own that have not ended.
    """

    def __init__(self, scheduler: Scheduler, owner: Any, network: Any) -> None:
        self.scheduler = scheduler
        self.owner = owner
        self.is_dead = False
        self.is_paused = False
        self.is_listed = False
        self.busy_until = 0.0
        self.dies_in: int | None = None
        self.fibers: dict[Any, None] = {}
        self._network = network
        self._queue: deque[Any] = deque()
        self._tasks: weakref.WeakSet[SimTask] = weakref.WeakSet()
        self._wake_at = 0.0

    # The scheduler's side ---------------------------------------------------------------------------------------------

    def enqueue(self, handle: Any) -> None:
        """Add what to run next."""
        if not self.is_dead:
            self._queue.append(handle)
            self.scheduler.made_ready(self)

    def may_run(self, now: float) -> bool:
        """Whether it may run its next callback now."""
        if self.busy_until > now:
            if self._wake_at < self.busy_until:
                self._wake_at = self.busy_until
                self.scheduler.at(self.busy_until, _nothing)
            return False
        return True

    def turn(self, most: int) -> int:
        """Run up to `most` callbacks; return how many."""
        count = 0
        self.scheduler.current = self
        asyncio._set_running_loop(self)
        try:
            while self._queue and count < most and not self.is_dead:
                handle = self._queue.popleft()
                count += 1
                if not handle.cancelled():
                    handle._run()
                if self.dies_in is not None:
                    self._count_down()
        finally:
            asyncio._set_running_loop(None)
            self.scheduler.current = None
        if not self._queue or self.is_dead:
            self.scheduler.unlist(self)
        return count

    def _count_down(self) -> None:
        assert self.dies_in is not None
        self.dies_in -= 1
        if self.dies_in <= 0 and not self.is_dead:
            self.owner.die_now("an await")

    def within(self, function: Callable[[], object]) -> None:
        """Call a function as this process."""
        before, running = self.scheduler.current, asyncio._get_running_loop()
        self.scheduler.current = self
        asyncio._set_running_loop(self)
        try:
            function()
        except Died:
            pass
        finally:
            asyncio._set_running_loop(running)
            self.scheduler.current = before

    def die(self) -> None:
        """Drop everything. `bury` must follow once no callback of it is on the stack."""
        self.is_dead = True
        self._queue.clear()

    def bury(self) -> None:
        """Close the coroutines of a dead process. Each call of the system that they still make raises `Died`."""
        for fiber in list(self.fibers):
            self.within(fiber.end)
        for task in sorted(self._tasks, key=hash):
            task._log_destroy_pending = False
            self.within(partial(_close, task))

    # asyncio's side ---------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.scheduler.now

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        """Return none: tasks begin in a later turn."""

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **named: Any) -> SimTask:
        task = SimTask(coro, loop=self, **named)
        self._tasks.add(task)
        return task

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._queue.append(handle)
            if not self.is_listed:
                self.scheduler.made_ready(self)
        return handle

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_later(self.scheduler.rng.random() * 1e-3, callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.scheduler.now + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self.scheduler.at(when, handle, self)  # type: ignore[arg-type]
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()
        self.owner.in_fiber(partial(_settle, self, future, func, args))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # An error of the disk while bytes are handled ends the connection: asyncio reports it, and that is all.
        is_disk = isinstance(error, OSError) and context.get("message") == "data_received failed"
        if not self.is_dead and not isinstance(error, Died) and not is_disk:
            lines = "".join(traceback.format_exception(error)) if error is not None else ""
            self.scheduler.unhandled.append(f"{self.owner}: {context.get('message')}: {error!r}\n{lines}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, ssl: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        assert ssl is None, "the simulated network has no TLS"
        transport = await self._network.connected(self, host, port)
        protocol = protocol_factory()
        transport.begin(protocol)
        return transport, protocol

    async def create_server(
        self,
        protocol_factory: Callable[[], Any],
        host: str = "",
        port: int = 0,
        *,
        sock: Any = None,
        **_: Any,
    ) -> Any:
        if sock is None:
            sock = self._network.socket_of(self.owner)
            sock.bind((host, port))
        return sock.listen(protocol_factory)


def _settle(loop: ProcessLoop, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Call a function as a thread does, and report its end to the loop a little later."""
    try:
        result = func(*args)
    except Exception as error:
        loop.call_soon_threadsafe(_end, future, None, error)
    else:
        loop.call_soon_threadsafe(_end, future, result, None)


def _end(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _close(task: SimTask) -> None:
    with suppress(BaseException):  # a dead process may raise any error
        task.get_coro().close()


def _nothing() -> None:
    """Only let the scheduler look."""
