"""Long polling: wait until a queue has a message that a consumer wants.

    pull finds nothing ── hold ── queue end rises ── read again ── match? answer : wait on, from where the read stopped

A held pull waits for the Watermark of the queue's end. So it wakes when the consume queue has the entry, not when the
log has the record. While no message arrives, it costs no time, no task and no timer, and less than a kilobyte:

    line      the held pulls of one queue; all of them are one waiter of the queue's Watermark
    wheel     their time limits, rounded up to a tenth of a second; one timer for all
    ready     pulls to read again, in slices of 2 ms between which the event loop does other work. Lines take turns, so
              a queue with one consumer does not wait for a queue with thousands

A pull whose connection has many unsent answers waits until these are sent. Otherwise one message could become thousands
of answers in memory. The pulls of a connection that has ended are forgotten, and those that a peer in this process
drops. All held pulls, and those of one connection, are limited. A pull above a limit is answered SYSTEM_BUSY: Java's
clients then wait for 3 s, and after "not found" they would ask again at once.
Source: PullRequestHoldService, which ReputMessageService calls, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import perf_counter
from typing import Final, cast

from sparrowmq.compiled import mypyc_attr
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock, Timer
from sparrowmq.loop.slices import SLICE_S
from sparrowmq.loop.watermark import Waiter, Watermark
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.requests.pop_headers import Notification, PopMessage
from sparrowmq.protocol.selector import Selector
from sparrowmq.remoting.handler import Answer, Later
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Quotas, Usage, release
from sparrowmq.store.queues.queue_reading import Read

TICKS: Final = 10  # of the wheel in a second
EARLY_S: Final = 0.001  # a timer may fire so much before its time
FULL_S: Final = 0.01  # until a connection with many unsent answers is looked at again


@dataclass(frozen=True, slots=True)
class HeldLimits:
    """The most held pulls: of all connections together, and of one."""

    together: int = 100_000
    of_one: int = 5000


@mypyc_attr(acyclic=True)
class Held:
    """One held pull, or pop.

    Attributes:
        selector: the filter; None for a pull that only waits.
        next_offset: the offset to read on at.
        scanned: the last read, if it passed messages that do not match.
        usages: the quotas that count it.
        is_void: its queue was deleted. Another one of its name may exist by now, with other messages.
    """

    __slots__ = (
        "header",
        "is_done",
        "is_void",
        "later",
        "line",
        "next_offset",
        "peer",
        "scanned",
        "selector",
        "tick",
        "usages",
    )

    def __init__(
        self,
        header: PullMessage | PopMessage | Notification,
        selector: Selector | None,
        peer: Peer,
        next_offset: int = 0,
    ) -> None:
        self.header = header
        self.selector = selector
        self.peer = peer
        self.next_offset = next_offset
        self.scanned: Read | None = None
        self.later = Later()
        self.line: _Line | None = None
        self.tick = 0
        self.is_done = False
        self.is_void = False
        self.usages: list[Usage] | None = None


class _Line:
    def __init__(self, end: Watermark) -> None:
        self.end = end
        self.pulls: dict[Held, bool] = {}
        self.waiter: Waiter | None = None


class _Batch:
    """Pulls to look at, the last one first.

    Attributes:
        is_over: their time is over.
        is_gone: their connection has ended.
        error: the answer to them.
    """

    def __init__(
        self, pulls: list[Held], is_over: bool, is_gone: bool = False, error: Exception | None = None
    ) -> None:
        self.pulls = pulls
        self.is_over = is_over
        self.is_gone = is_gone
        self.error = error


class HeldPulls:
    """All held pulls of a broker.

    Args:
        serve: returns the answer to a pull, its `later` if another answers it, or None if it waits on. The flag says
            that its time is over.
    Attributes:
        refused: the number of pulls that were not held because of a limit.
        quotas: further limits.
    """

    def __init__(
        self,
        clock: Clock,
        serve: Callable[[Held, bool], Answer | Later | None],
        limits: HeldLimits | None = None,
    ) -> None:
        self.count = 0
        self.refused = 0
        self.quotas: Quotas | None = None
        self._serve = serve
        self._limits = limits or HeldLimits()
        self._lines: dict[Watermark, _Line] = {}
        self._by_peer: dict[Peer, dict[Held, bool]] = {}
        self._wheel = _Wheel(clock, self._time_is_over)
        self._clock = clock
        self._ready: deque[_Batch] = deque()
        self._is_serving = False
        self._full: dict[Peer, _Batch] = {}

    def show(self, figures: Figures) -> None:
        figures.gauge("sparrowmq_held_pulls", "pulls that wait for messages", lambda: self.count)
        figures.counted(
            "sparrowmq_held_pulls_refused_total",
            "pulls that did not wait because there were too many",
            lambda: self.refused,
        )

    def use(self, limits: HeldLimits) -> None:
        """Apply other limits to further pulls."""
        self._limits = limits

    def hold(self, held: Held, end: Watermark | None, timeout_s: float) -> Later:
        """Hold a pull until `end` rises and `serve` has an answer, or until its time is over.

        Raises: RemoteError, there are too many.
        """
        peer = held.peer
        of_peer = self._by_peer.get(peer)
        if self.count >= self._limits.together or (of_peer and len(of_peer) >= self._limits.of_one):
            self._refuse(len(of_peer or ()))
        if self.quotas is not None and self.quotas.is_on:
            held.usages = self.quotas.hold(peer, held.header.topic)
        if of_peer is None:
            of_peer = self._by_peer[peer] = {}
            peer.on_end(self._ended)
        of_peer[held] = True
        self.count += 1
        if peer.is_linked:
            held.later.dropped = partial(self._drop, held)
        self._wheel.add(held, timeout_s)
        if end is not None:
            self._wait(held, end)
        return held.later

    def void(self, end: Watermark) -> None:
        """Let the pulls that wait until `end` rises have their answers: it never will, as its queue was deleted."""
        line = self._lines.get(end)
        if line is not None:
            for held in line.pulls:
                held.is_void = True
            if line.waiter is not None:
                line.waiter.cancel()
            self._wake(line, None)

    def waiting_for(self, end: Watermark) -> int:
        """Return how many pulls wait until `end` rises."""
        line = self._lines.get(end)
        return 0 if line is None else len(line.pulls)

    def _refuse(self, count: int) -> None:
        self.refused += 1
        limits = self._limits
        raise RemoteError(
            ResponseCode.SYSTEM_BUSY,
            f"too many pulls wait for messages: {count} of this connection (maxHeldPullsPerConnection is "
            f"{limits.of_one}), {self.count} of all (maxHeldPulls is {limits.together}); try again in some seconds",
        )

    def _wait(self, held: Held, end: Watermark) -> None:
        line = self._lines.get(end)
        if line is None:
            line = self._lines[end] = _Line(end)
        held.line = line
        line.pulls[held] = True
        if line.waiter is None:
            line.waiter = end.when(end.value + 1, lambda error: self._wake(line, error))

    def _wake(self, line: _Line, error: BaseException | None) -> None:
        pulls, line.pulls, line.waiter = list(line.pulls), {}, None
        self._lines.pop(line.end, None)
        pulls.reverse()
        self._add(_Batch(pulls, False, error=cast(Exception | None, error)))

    def _time_is_over(self, pulls: list[Held]) -> None:
        self._add(_Batch(pulls, True))

    def _ended(self, peer: Peer) -> None:
        self._full.pop(peer, None)
        self._add(_Batch(list(self._by_peer.pop(peer, ())), False, is_gone=True))

    def _drop(self, held: Held) -> None:
        if not held.is_done:
            self._forget(held)
            held.later.answer(Answer(ResponseCode.POLLING_TIMEOUT), None)

    def _forget(self, held: Held) -> None:
        held.is_done = True
        self.count -= 1
        if held.usages is not None:
            release(held.usages)
        self._wheel.remove(held)
        held.later.dropped = None  # which refers to it
        of_peer = self._by_peer.get(held.peer)
        if of_peer is not None:
            of_peer.pop(held, None)
        line, held.line = held.line, None
        if line is not None and line.pulls.pop(held, False) and not line.pulls:
            if line.waiter is not None:
                line.waiter.cancel()
                line.waiter = None
            self._lines.pop(line.end, None)

    # Slices ---------------------------------------------------------------------------------------------------------

    def _add(self, batch: _Batch) -> None:
        self._ready.append(batch)
        if not self._is_serving:
            self._is_serving = True
            asyncio.get_running_loop().call_soon(self._serve_slice)

    def _serve_slice(self) -> None:
        end_s = perf_counter() + SLICE_S
        ready = self._ready
        while ready:
            batch = ready.popleft()
            if not batch.pulls:
                continue
            held = batch.pulls.pop()
            if batch.pulls:
                ready.append(batch)
            if not held.is_done:
                self._look_at(held, batch)
                if perf_counter() >= end_s:
                    break
        self._is_serving = len(ready) > 0
        if self._is_serving:
            asyncio.get_running_loop().call_soon(self._serve_slice)

    def _look_at(self, held: Held, batch: _Batch) -> None:
        if batch.is_gone:
            self._forget(held)
            return
        if held.later.is_full:
            self._put_off(held, batch.is_over)
            return
        line, before = held.line, held.next_offset
        if batch.error is not None:
            self._forget(held)
            held.later.answer(None, batch.error)
        elif held.later.attempt(self._serve, held, batch.is_over):
            self._forget(held)
        elif line is not None and before < held.next_offset < line.end.value:
            self._add(_Batch([held], False))  # there is more to read
        elif line is not None:
            self._wait(held, line.end)

    def _put_off(self, held: Held, is_over: bool) -> None:
        """Wait until the connection has sent some of its answers."""
        batch = self._full.get(held.peer)
        if batch is None:
            batch = self._full[held.peer] = _Batch([], is_over)
            if len(self._full) == 1:
                self._clock.call_later(FULL_S, self._look_at_full)
        batch.is_over = batch.is_over or is_over
        batch.pulls.append(held)

    def _look_at_full(self) -> None:
        for peer, batch in list(self._full.items()):
            if not batch.pulls[-1].later.is_full:
                del self._full[peer]
                batch.pulls.reverse()
                self._add(batch)
        if self._full:
            self._clock.call_later(FULL_S, self._look_at_full)


class _Wheel:
    """The time limits of held pulls. `due` is called with those whose time is over."""

    def __init__(self, clock: Clock, due: Callable[[list[Held]], None]) -> None:
        self._clock = clock
        self._due = due
        self._ticks: list[int] = []  # a heap: those of `_pulls`
        self._pulls: dict[int, dict[Held, None]] = {}
        self._timer: Timer | None = None

    def add(self, held: Held, timeout_s: float) -> None:
        tick = held.tick = ceil((self._clock.monotonic() + timeout_s) * TICKS)
        pulls = self._pulls.get(tick)
        if pulls is None:
            pulls = self._pulls[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        pulls[held] = None

    def remove(self, held: Held) -> None:
        pulls = self._pulls.get(held.tick)
        if pulls is not None:
            pulls.pop(held, None)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            wait_s = self._ticks[0] / TICKS - self._clock.monotonic()
            self._timer = self._clock.call_later(max(0.0, wait_s), self._ring)

    def _ring(self) -> None:
        now_s = self._clock.monotonic() + EARLY_S
        while self._ticks and self._ticks[0] / TICKS <= now_s:
            pulls = self._pulls.pop(heapq.heappop(self._ticks))
            if pulls:
                self._due(list(pulls))
        self._set_timer()
