"""Long work in slices of 2 ms, with a pause between two, so that no request keeps the event loop from the others.

The work is a generator. It yields wherever it may pause, at least every 100 us or so, and returns its result:

    def _locked(self, queues: list[Queue]) -> Steps[Answer]:
        for queue in queues:
            self._lock(queue)
            yield
        return Answer(...)

    return in_slices(self._locked(queues))     # a handler: short work is done at once, and costs no task
    await to_end(self._locked(queues))         # a coroutine

Each `yield` may be a pause, in which others change what the work has read. So decide, and act, between two yields. If
several works pause, one of them continues in each turn of the loop: a hundred of them delay other requests by 2 ms a
turn, like one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

K = TypeVar("K")
T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

SLICE_S: Final = 0.002

# The works that pause, by their event loop, in the order in which they continue. An empty line is removed.
_pauses: Final[dict[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]]] = {}
# The time at which the first work of the loop's turn began.
_turn_began_s: Final[dict[asyncio.AbstractEventLoop, float]] = {}


def in_slices(steps: Steps[T], now_s: Callable[[], float] = perf_counter) -> T | Awaitable[T]:
    """Do one slice of the work at once. Return the result, or the rest of the work to await. Thousands of requests may
    arrive at once, so the works that begin in one turn of the loop share a slice.
    """
    end_s = _began_in_turn(now_s) + SLICE_S
    try:
        while now_s() < end_s:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    return _run_rest(steps, now_s)


async def run_to_end(steps: Steps[T], now_s: Callable[[], float] = perf_counter) -> T:
    """Do the work, with a pause after each slice."""
    result = in_slices(steps, now_s)
    return await result if isinstance(result, Awaitable) else result


def at_once(steps: Steps[T]) -> T:
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return result


def for_each(items: Iterable[T], work: Callable[[T], object]) -> Steps[None]:
    """Call `work` for each item; each call is a step."""
    for item in items:
        work(item)
        yield


def empty_in_steps(table: dict[K, T] | list[T]) -> Steps[None]:
    """Remove the members one by one: to free thousands of them at once would be one long step."""
    remove = table.popitem if isinstance(table, dict) else table.pop
    while table:
        remove()
        yield


def free_soon(items: list[T]) -> None:
    """Free the items in several turns of the loop, without waiting for the end: they may have hundreds of megabytes."""
    end_s = perf_counter() + SLICE_S
    while items and perf_counter() < end_s:
        items.pop()
    if items:
        asyncio.get_running_loop().call_soon(free_soon, items)


class WorkQueue:
    """Works that are done one after another, each in slices. A peer that asks for a hundred works delays another peer
    by one.
    """

    def __init__(self) -> None:
        self.marks: set[object] = set()  # of the works that wait or are being done
        self.is_busy = False  # whether a work that begins now has to wait
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}  # by peer; the first has the next turn

    def work(self, steps: Steps[T], mark: object = None, peer: object = None) -> T | Awaitable[T]:
        """As `in_slices`, once all works before are done. A work that has to wait is not begun before its turn."""
        if self.is_busy:
            return self._run_in_turn(steps, mark, peer)
        result = in_slices(steps)
        return self._start(result, mark) if isinstance(result, Awaitable) else result

    async def _run_in_turn(self, steps: Steps[T], mark: object, peer: object) -> T:
        self.marks.add(mark)
        if self.is_busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(peer, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self.marks.discard(mark)
                if not turn.cancelled():
                    self._begin_next()
                raise
        return await self._start(run_to_end(steps), mark)

    def _start(self, work: Awaitable[T], mark: object) -> asyncio.Future[T]:
        """The rest as a task: its end is noticed even if it is cancelled before it first runs."""
        self.is_busy = True
        self.marks.add(mark)
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._on_end(mark))
        return task

    def _on_end(self, mark: object) -> None:
        self.marks.discard(mark)
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting:
            peer, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[peer]
            if turns:
                self._waiting[peer] = turns  # behind all others
            if not turn.done():  # its work was not cancelled
                turn.set_result(None)
                return
        self.is_busy = False


def _began_in_turn(now_s: Callable[[], float]) -> float:
    """Return the time at which the first work of this turn of the loop began: now, if this is the first."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no loop runs, so no request waits
        return now_s()
    began_s = _turn_began_s.get(loop)
    if began_s is None:
        began_s = _turn_began_s[loop] = now_s()
        loop.call_soon(_turn_began_s.pop, loop, None)
    return began_s


async def pause() -> None:
    """Let the event loop do other work. Of the tasks that pause, one continues in each turn of the loop."""
    loop = asyncio.get_running_loop()
    waiting = _pauses.get(loop)
    if waiting is None:
        waiting = _pauses[loop] = deque()
        loop.call_soon(_continue_first, loop, waiting)
    future: asyncio.Future[None] = loop.create_future()
    waiting.append(future)
    await future


async def _run_rest(steps: Steps[T], now_s: Callable[[], float]) -> T:
    try:
        while True:
            await pause()
            end_s = now_s() + SLICE_S
            while now_s() < end_s:
                next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


def _continue_first(loop: asyncio.AbstractEventLoop, waiting: deque[asyncio.Future[None]]) -> None:
    while waiting:
        future = waiting.popleft()
        if not future.done():  # its task was not cancelled
            future.set_result(None)
            break
    if waiting:
        loop.call_soon(_continue_first, loop, waiting)
    else:
        del _pauses[loop]
