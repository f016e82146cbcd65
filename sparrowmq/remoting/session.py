"""One connection of either side: it sends requests and remembers who waits for their answers, and sends replies.

Either end may send a request at any time, and replies come in any order. What is sent in one turn leaves in one write,
at its end (turn.py). A client reads all that its servers send; `ServerSession` (server_session.py) has the limits of a
server.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar, cast

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConnectionClosed, RemoteProtocolError, RequestTimeout
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import free_soon
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.protocol.wire.codec import encode_reply
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, REPLY_FLAG, Command, language_name
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.frame import Serializer
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.protocol.wire.reply import Buffer, add_reply
from sparrowmq.remoting.budget import SessionLimits
from sparrowmq.remoting.connection_errors import why_closed
from sparrowmq.remoting.request_in_flight import AnswerCallback, RequestInFlight, Response

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Header)
Dispatch = Callable[["Session", Command], None]

# The precision of request timeouts. One timer a session checks all waiting requests, instead of one timer a request.
EXPIRY_PERIOD_S = 0.1

# A peer may hang, or be cut off, if it sends nothing for this time although requests to it wait.
MUTE_S = 1.0

# Requests are written at the end of a turn of the loop, or once there are so many pieces. So if a program makes
# hundreds in one turn, the peer begins with the first while the program still makes the last.
REQUEST_PIECES = 64
LARGE_REQUEST_BYTES: Final = 16 * 1024  # it is worth a write of its own


class Session(asyncio.Protocol):
    """A live connection. `Pool` creates those of clients, and `Server` creates each as a `ServerSession`."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        limits: SessionLimits | None = None,
        *,
        sign: Sign | None = None,
        serializer: Serializer = Serializer.JSON,
        turn: Turn | None = None,
    ) -> None:
        self.address = "?"
        self.host = bytes(8)
        self.local_address = "?"
        self.version = 0
        self.language = language_name(None)
        self.principal: Any = None
        self.certificate: str | None = None
        self.applied_quotas: Any = None  # see quotas.py
        self.is_introduced = False
        self.is_backed_up = False  # whether the peer does not read our bytes: more would only fill our memory
        self.closed = False
        self.turn = turn or Turn()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.last_read = clock.monotonic()
        self.on_mute: Callable[[], object] | None = None  # called some times a second while the peer `is_mute`
        self.dispatch = dispatch
        self.monotonic = clock.monotonic
        self._clock = clock
        self._limits = limits or SessionLimits()
        self._wire: Connection[RequestInFlight] = Connection(self._limits.frame, serializer, sign)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[Buffer] = []
        self._flush_due = False
        self._end_callbacks: list[Callable[[Any], object]] = []
        self._expiry_due = False
        self._expiry_at = 0.0
        self._skipped_expiry = False

    def call(
        self, request: Request[R], body: bytes = b"", *, timeout_s: float = 3.0, accept: Collection[int] = ()
    ) -> asyncio.Future[Response[R]]:
        """Send a request, and await the answer. `accept` has codes besides 0 that are answers rather than errors.

        Raises: RemoteError, another code; RequestTimeout, ConnectionClosed: the peer may have carried out the request
        or not.
        """
        future: asyncio.Future[Response[Any]] = self._loop.create_future()
        self.ask(request, body, future, timeout_s=timeout_s, accept=accept)
        return future

    def ask(
        self,
        request: Request[R],
        body: bytes,
        answered: AnswerCallback | asyncio.Future[Response[R]],
        *,
        timeout_s: float,
        accept: Collection[int] = (),
        is_alone: bool = False,
    ) -> None:
        """Send a request as `call`, for frequent callers: `answered(answer, error)` is called later, one of them None.
        A request that `is_alone` in its turn is written now.
        """
        waiting = RequestInFlight(request, accept, answered, self._clock.monotonic() + timeout_s, timeout_s)
        if self.closed:
            self._loop.call_soon(waiting.end, None, ConnectionClosed(self._address_of(request)))
        else:
            self._post(request, body, waiting, is_alone)
            self._watch_expiry()

    def tell(self, request: Request[Any], body: bytes = b"") -> None:
        """Send a request that wants no answer. On a closed connection nothing happens."""
        if not self.closed:
            self._post(request, body, None)

    def reply(
        self,
        request: Command,
        code: int = 0,
        header: Header | None = None,
        remark: str | None = None,
        body: Buffer | list[memoryview] = b"",
    ) -> None:
        """Answer a request of the peer. The bodies' buffers must stay unchanged until they are sent."""
        if not self.closed:
            add_reply(self._out, request, code, header, remark, body)
            self._flush_soon()

    def write(self, replies: list[Any]) -> None:
        """Send replies in this step of the turn, unless others are sent in a later one: they leave together."""
        if replies and not self.closed:
            self._out.extend(replies)
            if not self._flush_due:
                self._write_out()

    def encode_replies(self, requests: list[tuple[Command, Header | None]]) -> list[Any]:
        """Return the replies to requests, with these headers, for `write`."""
        return [encode_reply(command, 0, header) for command, header in requests if not command.flag & ONEWAY_FLAG]

    def introduce(self, request: Command) -> None:
        self.version, self.language = request.version or 0, language_name(request.language)
        self.is_introduced = True

    def hold(self, change: int, body_bytes: int = 0) -> None:
        """Count the peer's waiting requests, and the bytes of their bodies. Servers do."""

    def hold_reply(self, pending_reply: Any) -> None:
        """Count a request whose answer comes later (`PendingReply`)."""
        self.hold(1)

    def on_end(self, callback: Callable[[Any], object]) -> None:
        self._end_callbacks.append(callback)

    def close(self) -> None:
        if self._transport is not None and not self.closed:
            if self._out:
                self._send(b"".join(self._out))
                self._out.clear()
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once; unsent bytes are lost. `close` would wait for a peer that does not read."""
        if self._transport is not None and not self.closed:
            self._transport.abort()

    @property
    def is_mute(self) -> bool:
        """Whether the peer has sent nothing for a second, while a request that it answers at once is older."""
        age = self._clock.age
        if self.closed or age(self.last_read) < MUTE_S:
            return False
        return any(
            age(entry.deadline - entry.timeout_s) >= MUTE_S and not entry.is_long_poll for entry in self._wire.waiting
        )

    @property
    def is_full(self) -> bool:
        """Whether so many answers are unsent that more should wait, if they can."""
        return self.is_backed_up

    @property
    def unread_bytes(self) -> int:
        return 0 if self._transport is None or self.closed else self._transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes)
        peername = transport.get_extra_info("peername")
        if peername is None:  # it was closed before it was accepted
            self._transport.abort()
            return
        self.address = hosts.address_text(peername)
        self.local_address = hosts.address_text(transport.get_extra_info("sockname"))
        self.host = hosts.pack(self.address)

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        self.received_bytes += len(data)
        try:
            commands = self._wire.receive(data)
        except RemoteProtocolError as error:
            log.warning("closing the connection of %s: %s", self.address, shown(error))
            self.close()
            return
        for command in commands:
            if command.flag & REPLY_FLAG:
                self._settle(command)
            else:
                self.dispatch(self, command)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        free_soon(self._out)
        self._out = []
        reason = why_closed(exc) if isinstance(exc, ssl.SSLError) else exc
        for waiting in self._wire.abandon():
            waiting.end(None, ConnectionClosed(self._address_of(waiting.request), reason))
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback(self)

    def pause_writing(self) -> None:
        self.is_backed_up = True

    def resume_writing(self) -> None:
        self.is_backed_up = False
        self._flush_soon()

    def _settle(self, reply: Command) -> None:
        waiting = self._wire.claim(reply)
        if waiting is not None and not waiting.is_abandoned:  # otherwise it came after its time limit
            self.version = reply.version or 0
            waiting.settle(reply)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.turn.answer(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._out:
            self._write_out()

    def _write_out(self) -> None:
        if self._transport is not None and not self.closed and not self.is_backed_up:
            self._send(b"".join(self._out))
            self._out.clear()

    def _send(self, piece: bytes) -> None:
        self.sent_bytes += len(piece)
        if self._transport is not None:
            self._transport.write(piece)

    def _post(self, request: Request[Any], body: bytes, waiter: RequestInFlight | None, is_alone: bool = False) -> None:
        wire, out = self._wire, self._out
        out.append(wire.oneway(request, body) if waiter is None else wire.request(request, body, waiter)[1])
        if body:
            out.append(body)
        if is_alone or len(out) >= REQUEST_PIECES or len(body) >= LARGE_REQUEST_BYTES:
            self._write_out()
        else:
            self._flush_soon()

    def _watch_expiry(self) -> None:
        if not self._expiry_due:
            self._expiry_due = True
            self._expiry_at = self._clock.monotonic() + EXPIRY_PERIOD_S
            self._clock.call_later(EXPIRY_PERIOD_S, self._expire)

    def _expire(self) -> None:
        self._expiry_due = False
        now = self._clock.monotonic()
        self._skipped_expiry = now - self._expiry_at > EXPIRY_PERIOD_S and not self._skipped_expiry
        if self._skipped_expiry:  # after a pause of this process, whose answers may wait in the socket: read first
            self._watch_expiry()
            return
        # Cancelled requests are removed here too: a callback for each request would cost more than this check.
        for waiting in self._wire.expired(lambda entry: entry.deadline <= now or entry.is_abandoned):
            request_name = type(waiting.request).__name__
            waiting.end(None, RequestTimeout(self._address_of(waiting.request), request_name, waiting.timeout_s))
        if self.on_mute is not None and now - self.last_read >= MUTE_S and self.is_mute:
            self.on_mute()
        if self._wire.in_flight and not self.closed:
            self._watch_expiry()

    def _address_of(self, request: Request[Any]) -> str:
        """The address of those who answer a request."""
        return self.address
