"""A number that only rises, and its waiters.

Waiting for a flush, for replication, for dispatch or for a new message is the same wait: until a number reaches N. Java
4.9.8 has five classes for it (GroupCommitService, GroupTransferService, PullRequestHoldService, ...).

A waiter is a callback, so a thousand sends that wait for one sync cost a thousand list entries and no task. Coroutines
use `reached`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from functools import partial

OnReached = Callable[[BaseException | None], object]


class Waiter:
    """One callback that waits for a target; `cancel` forgets it."""

    __slots__ = ("_mark", "callback")

    def __init__(self, mark: Watermark, callback: OnReached) -> None:
        self._mark = mark
        self.callback: OnReached | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._mark._note_cancelled()


class Watermark:
    """A rising number; not thread-safe, so each belongs to one event loop."""

    __slots__ = ("_cancelled_count", "_heap", "_sequence", "error", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.error: BaseException | None = None
        # Invariant: every living waiter's target is above `value`, and there is none once `error` is set.
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = itertools.count()
        self._cancelled_count = 0

    def advance(self, value: int) -> None:
        """Raise the number to `value`, unless that is lower. Call the waiters that it reaches, lowest target first."""
        if value <= self.value or self.error is not None:
            return
        self.value = value
        while self._heap and self._heap[0][0] <= self.value:
            self._call(heapq.heappop(self._heap)[2], None)

    def fail(self, error: BaseException) -> None:
        """Give every present and future waiter `error`: the value will never rise again."""
        self.error = self.error or error
        while self._heap:
            self._call(heapq.heappop(self._heap)[2], self.error)

    def refuse(self, error: BaseException) -> None:
        """Give every present waiter `error`; later ones may see the value rise."""
        heap, self._heap, self._cancelled_count = self._heap, [], 0
        for _, _, waiter in sorted(heap):
            callback, waiter.callback = waiter.callback, None
            if callback is not None:
                callback(error)

    def when(self, target: int, callback: OnReached) -> Waiter | None:
        """Call `callback(None)` once the value reaches `target`, or `callback(error)` if it never will. Returns None
        when the callback was called at once, else the waiter, which can be cancelled.
        """
        if target <= self.value:
            callback(None)
            return None
        if self.error is not None:
            callback(self.error)
            return None
        waiter = Waiter(self, callback)
        heapq.heappush(self._heap, (target, next(self._sequence), waiter))
        return waiter

    async def reached(self, target: int) -> int:
        """Return the value once it is at least `target`; cancelling leaves nothing behind. Raises: the error given to
        `fail`.
        """
        if target > self.value:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiter = self.when(target, partial(_end_wait, future))
            try:
                await future
            finally:
                if waiter is not None:
                    waiter.cancel()
        return self.value

    @property
    def waiting(self) -> int:
        return len(self._heap) - self._cancelled_count

    def _call(self, waiter: Waiter, error: BaseException | None) -> None:
        callback, waiter.callback = waiter.callback, None
        if callback is None:
            self._cancelled_count -= 1
        else:
            callback(error)

    def _note_cancelled(self) -> None:
        self._cancelled_count += 1
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
            self._cancelled_count -= 1
        if self._cancelled_count > len(heap) // 2:
            self._heap = [entry for entry in heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled_count = 0


def _end_wait(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
