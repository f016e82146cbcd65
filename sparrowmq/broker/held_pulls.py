"""Long polling: wait until a queue has a message that a consumer wants.

    pull finds nothing ── hold ── queue end rises ── read again ── match? answer : wait on, from where the read stopped

A held pull waits for the Watermark of the queue's end, which rises when the consume queue has the entry. While no
message arrives, it costs no time, no task and no timer, and less than a kilobyte:

    line      the held pulls of one queue; all of them are one waiter of the queue's Watermark
    wheel     their time limits, rounded up to a tenth of a second; one timer for all
    ready     pulls to read again, in slices of 2 ms between which the event loop does other work. Lines take turns, so
              a queue with one consumer does not wait for a queue with thousands

A pull whose connection has many unsent answers waits until these are sent. Otherwise one message could become thousands
of answers in memory. All held pulls, and those of one connection, are limited. A pull above a limit is answered
SYSTEM_BUSY: Java's clients then wait for 3 s, and after "not found" they would ask again at once.
Source: PullRequestHoldService, which ReputMessageService calls, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from time import perf_counter
from typing import Final, cast

from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock, Timer
from sparrowmq.loop.slices import SLICE_S
from sparrowmq.loop.watermark import Waiter, Watermark
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.requests.pop_headers import Notification, PopMessage
from sparrowmq.protocol.selector import Selector
from sparrowmq.remoting.handler import PendingReply, Reply
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Quotas, Usage, release
from sparrowmq.store.queues.queue_reading import Read

TICKS_PER_SECOND: Final = 10  # of the wheel in a second
MAX_EARLY_S: Final = 0.001  # a timer may fire so much before its time
FULL_CONNECTION_PAUSE_S: Final = 0.01  # until a connection with many unsent answers is looked at again


@dataclass(frozen=True, slots=True)
class HeldLimits:
    total: int = 100_000
    per_peer: int = 5000


class HeldPull(PendingReply):
    """One held pull, or pop, from `next_offset` on; without a selector it only waits.

    `scanned` is the last read, if it passed messages that do not match. If it `is_void`, its queue was deleted.
    """

    __slots__ = (
        "header",
        "held_pulls",
        "is_done",
        "is_void",
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
        super().__init__()
        self.held_pulls: HeldPulls | None = None  # those that it is one of, from `HeldPulls.hold` on
        self.header = header
        self.selector = selector
        self.peer = peer
        self.next_offset = next_offset
        self.scanned: Read | None = None
        self.line: _HeldLine | None = None
        self.tick = 0
        self.is_done = False
        self.is_void = False
        self.usages: list[Usage] | None = None

    def cancel(self) -> None:
        if self.held_pulls is not None:
            self.held_pulls.drop(self)


class _HeldLine:
    def __init__(self, end: Watermark) -> None:
        self.end = end
        self.pulls: dict[HeldPull, bool] = {}
        self.waiter: Waiter | None = None


class _Batch:
    """Pulls to look at, the last one first. If their connection `is_gone`, they are forgotten."""

    def __init__(
        self, pulls: list[HeldPull], is_time_over: bool, is_gone: bool = False, error: Exception | None = None
    ) -> None:
        self.pulls = pulls
        self.is_time_over = is_time_over
        self.is_gone = is_gone
        self.error = error


class HeldPulls:
    """All held pulls of a broker.

    `serve` returns the answer to a pull whose time may be over, the pull if another answers it, or None if it
    waits on.
    """

    def __init__(
        self,
        clock: Clock,
        serve: Callable[[HeldPull, bool], Reply | PendingReply | None],
        quotas: Quotas,
        limits: HeldLimits | None = None,
    ) -> None:
        self.count = 0
        self.refused = 0
        self._quotas = quotas
        self._serve = serve
        self._limits = limits or HeldLimits()
        self._lines: dict[Watermark, _HeldLine] = {}
        self._by_peer: dict[Peer, dict[HeldPull, bool]] = {}
        self._wheel = _Wheel(clock, self._on_time_over)
        self._clock = clock
        self._ready: deque[_Batch] = deque()
        self._is_serving = False
        self._full_connections: dict[Peer, _Batch] = {}

    def declare_figures(self, figures: Figures) -> None:
        figures.gauge("sparrowmq_held_pulls", "pulls that wait for messages", lambda: self.count)
        figures.read_counter(
            "sparrowmq_held_pulls_refused_total",
            "pulls that did not wait because there were too many",
            lambda: self.refused,
        )

    def apply_limits(self, limits: HeldLimits) -> None:
        self._limits = limits

    def hold(self, pull: HeldPull, end: Watermark | None, timeout_s: float) -> PendingReply:
        """Hold a pull until `end` rises and `serve` has an answer, or time is over. Raises: RemoteError, too many."""
        peer = pull.peer
        of_peer = self._by_peer.get(peer)
        if self.count >= self._limits.total or (of_peer and len(of_peer) >= self._limits.per_peer):
            self._refuse(len(of_peer or ()))
        if self._quotas.is_on:
            pull.usages = self._quotas.hold(peer, pull.header.topic)
        if of_peer is None:
            of_peer = self._by_peer[peer] = {}
            peer.on_end(self._on_connection_end)
        of_peer[pull] = True
        self.count += 1
        pull.held_pulls = self
        self._wheel.add(pull, timeout_s)
        if end is not None:
            self._wait_for_growth(pull, end)
        return pull

    def void(self, end: Watermark) -> None:
        """Let the pulls that wait until `end` rises have their answers: it never will, as its queue was deleted."""
        line = self._lines.get(end)
        if line is not None:
            for pull in line.pulls:
                pull.is_void = True
            if line.waiter is not None:
                line.waiter.cancel()
            self._wake(line, None)

    def waiting_for(self, end: Watermark) -> int:
        line = self._lines.get(end)
        return 0 if line is None else len(line.pulls)

    def _refuse(self, count: int) -> None:
        self.refused += 1
        limits = self._limits
        raise RemoteError(
            ResponseCode.SYSTEM_BUSY,
            f"too many pulls wait for messages: {count} of this connection (maxHeldPullsPerConnection is "
            f"{limits.per_peer}), {self.count} of all (maxHeldPulls is {limits.total}); try again in some seconds",
        )

    def _wait_for_growth(self, pull: HeldPull, end: Watermark) -> None:
        line = self._lines.get(end)
        if line is None:
            line = self._lines[end] = _HeldLine(end)
        pull.line = line
        line.pulls[pull] = True
        if line.waiter is None:
            line.waiter = end.when(end.value + 1, lambda error: self._wake(line, error))

    def _wake(self, line: _HeldLine, error: BaseException | None) -> None:
        pulls, line.pulls, line.waiter = list(line.pulls), {}, None
        self._lines.pop(line.end, None)
        pulls.reverse()
        self._serve_soon(_Batch(pulls, False, error=cast(Exception | None, error)))

    def _on_time_over(self, pulls: list[HeldPull]) -> None:
        self._serve_soon(_Batch(pulls, True))

    def _on_connection_end(self, peer: Peer) -> None:
        self._full_connections.pop(peer, None)
        self._serve_soon(_Batch(list(self._by_peer.pop(peer, ())), False, is_gone=True))

    def drop(self, pull: HeldPull) -> None:
        """Forget a pull whose peer wants no answer any more."""
        if not pull.is_done:
            self._forget(pull)
            pull.answer(Reply(ResponseCode.POLLING_TIMEOUT), None)

    def _forget(self, pull: HeldPull) -> None:
        pull.is_done = True
        self.count -= 1
        if pull.usages is not None:
            release(pull.usages)
        self._wheel.remove(pull)
        of_peer = self._by_peer.get(pull.peer)
        if of_peer is not None:
            of_peer.pop(pull, None)
        line, pull.line = pull.line, None
        if line is not None and line.pulls.pop(pull, False) and not line.pulls:
            if line.waiter is not None:
                line.waiter.cancel()
                line.waiter = None
            self._lines.pop(line.end, None)

    def _serve_soon(self, batch: _Batch) -> None:
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
            pull = batch.pulls.pop()
            if batch.pulls:
                ready.append(batch)
            if not pull.is_done:
                self._serve_pull(pull, batch)
                if perf_counter() >= end_s:
                    break
        self._is_serving = len(ready) > 0
        if self._is_serving:
            asyncio.get_running_loop().call_soon(self._serve_slice)

    def _serve_pull(self, pull: HeldPull, batch: _Batch) -> None:
        if batch.is_gone:
            self._forget(pull)
            return
        if pull.is_full:
            self._put_off(pull, batch.is_time_over)
            return
        line, offset_before = pull.line, pull.next_offset
        if batch.error is not None:
            self._forget(pull)
            pull.answer(None, batch.error)
        elif pull.attempt(self._serve, pull, batch.is_time_over):
            self._forget(pull)
        elif line is not None and offset_before < pull.next_offset < line.end.value:
            self._serve_soon(_Batch([pull], False))  # there is more to read
        elif line is not None:
            self._wait_for_growth(pull, line.end)

    def _put_off(self, pull: HeldPull, is_over: bool) -> None:
        batch = self._full_connections.get(pull.peer)
        if batch is None:
            batch = self._full_connections[pull.peer] = _Batch([], is_over)
            if len(self._full_connections) == 1:
                self._clock.call_later(FULL_CONNECTION_PAUSE_S, self._look_at_full)
        batch.is_time_over = batch.is_time_over or is_over
        batch.pulls.append(pull)

    def _look_at_full(self) -> None:
        for peer, batch in list(self._full_connections.items()):
            if not batch.pulls[-1].is_full:
                del self._full_connections[peer]
                batch.pulls.reverse()
                self._serve_soon(batch)
        if self._full_connections:
            self._clock.call_later(FULL_CONNECTION_PAUSE_S, self._look_at_full)


class _Wheel:
    def __init__(self, clock: Clock, on_due: Callable[[list[HeldPull]], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._ticks: list[int] = []  # a heap: those of `_pulls`
        self._pulls: dict[int, dict[HeldPull, None]] = {}
        self._timer: Timer | None = None

    def add(self, pull: HeldPull, timeout_s: float) -> None:
        tick = pull.tick = ceil((self._clock.monotonic() + timeout_s) * TICKS_PER_SECOND)
        pulls = self._pulls.get(tick)
        if pulls is None:
            pulls = self._pulls[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        pulls[pull] = None

    def remove(self, pull: HeldPull) -> None:
        pulls = self._pulls.get(pull.tick)
        if pulls is not None:
            pulls.pop(pull, None)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            wait_s = self._ticks[0] / TICKS_PER_SECOND - self._clock.monotonic()
            self._timer = self._clock.call_later(max(0.0, wait_s), self._on_timer)

    def _on_timer(self) -> None:
        now_s = self._clock.monotonic() + MAX_EARLY_S
        while self._ticks and self._ticks[0] / TICKS_PER_SECOND <= now_s:
            pulls = self._pulls.pop(heapq.heappop(self._ticks))
            if pulls:
                self._on_due(list(pulls))
        self._set_timer()
