"""Two sessions of one process that are connected without a socket: whole commands cross, and no bytes.

    request ── Command ──> inbox of the other session ── dispatcher ── reply ── Command ──> inbox of the first

Commands cross in the next turn of the loop. Otherwise both are ordinary sessions: with time limits, signatures, limits
of waiting requests, and an end. The inbox of a session that does not read now counts as waiting requests of its
server's budget, so its peer asks `has_room_for` before it sends more.

If no caller waits any more for the answer to a pull or a pop, the other session drops it. Otherwise it would take
messages that no consumer gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, Command
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.protocol.wire.reply import Buffer, reply_command
from sparrowmq.remoting.budget import COUNTED_BYTES, Budget, SessionLimits
from sparrowmq.remoting.request_in_flight import RequestInFlight
from sparrowmq.remoting.session import Session

COMMAND_BYTES: Final = 512  # the memory of a command besides its body
FEW_BYTES: Final = 64 * 1024  # of an inbox, which there is room for in any case


class LinkedSession(Session):
    """One of the two. Connect it by `other`, on both sides, before its `connection_made`."""

    def __init__(
        self,
        dispatch: Callable[[Session, Command], None],
        clock: Clock,
        limits: SessionLimits | None = None,
        *,
        sign: Sign | None = None,
        turn: Turn | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(dispatch, clock, limits, sign=sign, turn=turn, budget=budget)
        self.is_linked = True
        self.other: LinkedSession | None = None
        self._inbox: list[Command] = []
        self._inbox_bytes = 0
        self._is_due = False

    def has_room_for(self, body: bytes) -> bool:
        """Whether the other session takes a request with this body, or has room for it in its inbox."""
        return self.other is None or self.other._has_room(len(body) + COMMAND_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._inbox.clear()
        self._count_inbox(-self._inbox_bytes)

    def reply(
        self,
        request: Command,
        code: int = 0,
        header: Header | None = None,
        remark: str | None = None,
        body: Buffer | list[memoryview] = b"",
    ) -> None:
        if not self.closed and not request.flag & ONEWAY_FLAG:
            reply = reply_command(request, code, header, remark, body)
            if len(reply.body) > COUNTED_BYTES:
                self._share.count_answer(len(reply.body))
            self._pass(reply)

    def write(self, replies: list[Any]) -> None:
        for reply in replies if not self.closed else ():
            self._pass(reply)

    def deliver(self) -> None:
        """Handle the commands that have come, unless the session does not read now."""
        self._is_due = False
        if self._inbox and not self.closed and not self._is_paused:
            received, self._inbox = self._inbox, []
            self._count_inbox(-self._inbox_bytes)
            self.last_read = self._clock.monotonic()
            if self._undone:
                received, self._undone = self._undone + received, []
            self._handle(received, self.last_read)

    def _post(self, request: Request[Any], body: bytes, waiter: RequestInFlight | None, is_alone: bool = False) -> None:
        command = self._wire.command(request, body, waiter)
        if waiter is not None and waiter.is_long_poll and isinstance(waiter.waiter, asyncio.Future):
            waiter.waiter.add_done_callback(partial(self._on_answer_done, command.opaque))
        self._pass(command)

    def _on_answer_done(self, opaque: int, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() and self.other is not None:
            self.other.drop(opaque)

    def drop(self, opaque: int) -> None:
        pending_reply = self.pending_replies.get(opaque)
        if pending_reply is not None and pending_reply.on_cancel is not None:
            pending_reply.on_cancel()

    def _pass(self, command: Command) -> None:
        other = self.other
        if other is not None and not other.closed:
            other._inbox.append(command)
            other._count_inbox(len(command.body) + COMMAND_BYTES)
            other._deliver_soon()

    def _has_room(self, size: int) -> bool:
        budget = self._budget
        has_room = budget is None or budget.has_room or self._inbox_bytes + size <= FEW_BYTES
        return has_room or not self._is_paused

    def _count_inbox(self, change: int) -> None:
        if self._budget is not None:
            self._inbox_bytes += change
            self._budget.hold(change)

    def _deliver_soon(self) -> None:
        if self._inbox and not self._is_due and not self._is_paused:
            self._is_due = True
            self._loop.call_soon(self.deliver)

    def _regulate(self) -> None:
        super()._regulate()
        self._deliver_soon()
