"""A client in this process: its requests go to the dispatcher of a server, and the answers come back, without bytes.

    call, ask ── time and room in this turn? ── Dispatcher ── handler ── reply ── the caller
                  └ put off, to a later turn

It is a session without a socket: with time limits, signatures, limits of waiting requests, and an end. What is put off
counts as waiting requests of the server's budget, so its caller asks `has_room_for` before it sends more.

If no caller waits any more for the answer to a pull or a pop, the request is cancelled. Otherwise it would take
messages that no consumer gets.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.protocol.requests.request_table import ROWS, Role
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, Command
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.protocol.wire.reply import Buffer, reply_command
from sparrowmq.remoting.budget import COUNTED_BYTES, SHORT_ANSWERS, Budget, SessionLimits
from sparrowmq.remoting.handler import PendingReply
from sparrowmq.remoting.request_in_flight import RequestInFlight
from sparrowmq.remoting.server_session import HELD, ServerSession
from sparrowmq.remoting.session import Dispatch

REQUEST_BYTES: Final = 512  # the memory of a request besides its body
FEW_BYTES: Final = 64 * 1024  # of requests that are put off, which there is room for in any case
_PUSHES: Final = frozenset(int(row.code) for row in ROWS if row.served_by & Role.CLIENT)


@dataclass(frozen=True)
class LocalServer:
    """The server, as its clients in this process see it. `address` is that of its own port."""

    dispatch: Dispatch
    clock: Clock
    address: str = "?"
    limits: SessionLimits | None = None
    turn: Turn | None = None
    budget: Budget | None = None


class LocalPeer(ServerSession):
    """A client at `address`, which calls the server by the same methods by which the server calls the client.

    `push` handles the requests that only clients serve.
    """

    def __init__(self, server: LocalServer, address: tuple[str, int], push: Dispatch, sign: Sign | None = None) -> None:
        super().__init__(
            server.dispatch, server.clock, server.limits, sign=sign, turn=server.turn, budget=server.budget
        )
        self.address = hosts.address_text(address)
        self.host = hosts.pack(self.address)
        self.local_address = server.address
        self._push = push
        self._held_replies: dict[int, PendingReply] = {}  # by the number of their request
        self._put_off_bytes = 0
        self._is_sending = False
        self._is_closing = False

    def has_room_for(self, body: bytes) -> bool:
        """Whether a request with this body is handled now, or may be put off."""
        if self._budget.has_room or not (self._undone or self._stop_reasons & HELD):
            return True
        return self._put_off_bytes + len(body) + REQUEST_BYTES <= FEW_BYTES

    def reply(
        self,
        request: Command,
        code: int = 0,
        header: Header | None = None,
        remark: str | None = None,
        body: Buffer | list[memoryview] = b"",
    ) -> None:
        self._held_replies.pop(request.opaque, None)
        waiting = self._wire.claim(request)
        if waiting is None or request.flag & ONEWAY_FLAG:
            return
        reply = reply_command(request, code, header, remark, body)
        if len(reply.body) > COUNTED_BYTES:
            self._share.count_answer(len(reply.body))
        if self._is_sending:  # callers expect no answer before they have sent the request
            self._loop.call_soon(waiting.settle, reply)
        else:
            waiting.settle(reply)

    def encode_replies(self, requests: list[tuple[Command, Header | None]]) -> list[tuple[Command, Header | None]]:
        return requests

    def write(self, replies: list[tuple[Command, Header | None]]) -> None:
        for command, header in replies:
            self.reply(command, 0, header)

    def hold_reply(self, pending_reply: PendingReply) -> None:
        assert pending_reply.request is not None, "the dispatcher has set it"
        self._held_replies[pending_reply.request.command.opaque] = pending_reply
        self.hold(1)

    def postpone(self, request: Command) -> None:
        self._undone.append(request)
        self._count_put_off(len(request.body) + REQUEST_BYTES)

    def go_on(self) -> None:
        if not self._stop_reasons & HELD:
            self._count_put_off(-self._put_off_bytes)
            super().go_on()

    def close(self) -> None:
        """End soon: answers that are on their way arrive before."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.connection_lost, None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._count_put_off(-self._put_off_bytes)

    def _post(self, request: Request[Any], body: bytes, waiter: RequestInFlight | None, is_alone: bool = False) -> None:
        command = self._wire.command(request, body, waiter)
        if command.code in _PUSHES:
            self._push(self, command)
            return
        if waiter is not None and isinstance(waiter.waiter, asyncio.Future) and waiter.is_long_poll:
            waiter.waiter.add_done_callback(partial(self._on_answer_done, command.opaque))
        is_spent = self._share.is_spent and command.code not in SHORT_ANSWERS
        if is_spent or self._undone or self._stop_reasons & HELD:
            self.postpone(command)
            self._regulate()
        else:
            self.last_read = self._clock.monotonic()
            self._is_sending = True
            self.dispatch(self, command)
            self._is_sending = False

    def _on_answer_done(self, opaque: int, answer: asyncio.Future[Any]) -> None:
        pending_reply = self._held_replies.pop(opaque, None) if answer.cancelled() else None
        if pending_reply is not None:
            pending_reply.cancel()

    def _count_put_off(self, change: int) -> None:
        self._put_off_bytes += change
        self._budget.hold(change)

    def _address_of(self, request: Request[Any]) -> str:
        return self.address if request.code in _PUSHES else self.local_address

    @property
    def _is_ending(self) -> bool:
        return self._is_closing

    def _regulate(self) -> None:
        if self._undone and not self._stop_reasons & HELD:
            self._share.wait(self)
