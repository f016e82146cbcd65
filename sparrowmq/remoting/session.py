"""One TCP connection: bytes in, commands out to the dispatcher, replies to whoever asked.

Both ends of RocketMQ's protocol are the same: either may ask at any time, and replies come in any order. A
chunk from the socket may hold dozens of requests; all are handled in one go and their replies leave in one
write, at the end of the turn (turn.py). Reading stops while the peer does not read our answers, or while too many
of its requests wait: back-pressure lives here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from sparrowmq.clock import Clock
from sparrowmq.errors import ConnectionClosed, RemoteError, RemoteProtocolError, RequestTimeout
from sparrowmq.protocol import hosts
from sparrowmq.protocol.wire.codec import encode_reply
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, REPLY_FLAG, Command, language_name
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.frame import FrameLimits, Serializer
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.turn import Turn

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Header)
Buffer = bytes | bytearray | memoryview
Dispatch = Callable[["Session", Command], None]

# How precise request timeouts are: one timer a session looks at all that wait, instead of one timer a request.
EXPIRY_PERIOD_S = 0.1

# Requests are written at the end of a turn of the loop, or once there are so many pieces: a program that makes
# hundreds in one turn lets the peer begin with the first while it still makes the last.
REQUEST_PIECES = 64


@dataclass(frozen=True)
class SessionLimits:
    """What one peer may make us hold.

    Attributes:
        frame: sizes of frames.
        waiting_requests: its requests that wait for their answer (long polls, syncs) before we stop reading.
        unsent_bytes: answers it did not read yet before we stop reading its requests.
    """

    frame: FrameLimits = field(default_factory=FrameLimits)
    waiting_requests: int = 10_000
    unsent_bytes: int = 4 * 1024 * 1024


class Response(Generic[R]):
    """An answer. One with an accepted error code has its header too, or it is a RemoteProtocolError."""

    __slots__ = ("body", "code", "header", "remark", "version")

    def __init__(self, code: int, header: R, remark: str | None, body: bytes, version: int) -> None:
        self.code = code
        self.header = header
        self.remark = remark
        self.body = body
        self.version = version


class _Waiting:
    """A request of ours in flight."""

    __slots__ = ("accept", "deadline", "future", "request", "timeout_s")

    def __init__(
        self,
        request: Request[Any],
        accept: Collection[int],
        future: asyncio.Future[Response[Any]],
        deadline: float,
        timeout_s: float,
    ) -> None:
        self.request = request
        self.accept = accept
        self.future = future
        self.deadline = deadline
        self.timeout_s = timeout_s


class Session(asyncio.Protocol):
    """A live connection. Made by `Server` and `Pool`; use `call`, `tell` and, in the dispatcher, `reply`.

    `turn` is that of the loop, if others take part in it; `on_begin(session)` is called once it is connected,
    `on_end`'s callbacks once it has ended.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        limits: SessionLimits | None = None,
        *,
        sign: Sign | None = None,
        serializer: Serializer = Serializer.JSON,
        turn: Turn | None = None,
        on_begin: Callable[[Session], object] | None = None,
    ) -> None:
        self.address = "?"
        self.host = bytes(8)
        self.local = "?"
        self.version = 0
        self.spoken: str | int | None = None
        self.closed = False
        self.turn = turn or Turn()
        # Replies to this turn's requests that wait until what they say is safe; the dispatcher's.
        self.parked: list[Any] = []
        self.last_read = clock.monotonic()
        self._dispatch = dispatch
        self._clock = clock
        self._limits = limits or SessionLimits()
        self._wire: Connection[_Waiting] = Connection(self._limits.frame, serializer, sign)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[Buffer] = []
        self._flush_due = False
        self._on_begin = on_begin
        self._held = 0
        self._unread = False
        self._throttled = False
        self._end_callbacks: list[Callable[[Session], object]] = []
        self._expiry_due = False

    @property
    def language(self) -> str:
        """What the peer is written in, as Java names it, by its latest request."""
        return language_name(self.spoken)

    def __repr__(self) -> str:
        return f"<session {self.local} - {self.address}>"

    # What upper floors use ------------------------------------------------------------------------------------------

    def call(
        self, request: Request[R], body: bytes = b"", *, timeout_s: float = 3.0, accept: Collection[int] = ()
    ) -> asyncio.Future[Response[R]]:
        """Ask, and await the answer; or ask more before: no task is made for any of them.

        Args:
            accept: codes besides 0 that are answers rather than errors.
        Raises:
            RemoteError: the peer answered with another code.
            RequestTimeout, ConnectionClosed: no answer; whether the request was carried out is unknown.
        """
        future: asyncio.Future[Response[Any]] = self._loop.create_future()
        if self.closed:
            future.set_exception(ConnectionClosed(self.address))
            return future
        deadline = self._clock.monotonic() + timeout_s
        waiting = _Waiting(request, accept, future, deadline, timeout_s)
        _, head = self._wire.request(request, body, waiting)
        if self._throttled:
            self._regulate()
        self._write(head, body)
        self._watch_expiry()
        return future

    def tell(self, request: Request[Any], body: bytes = b"") -> None:
        """Send a request that wants no answer; on a closed connection nothing happens."""
        if not self.closed:
            self._write(self._wire.oneway(request, body), body)

    def reply(
        self,
        request: Command,
        code: int = 0,
        header: Header | None = None,
        remark: str | None = None,
        body: Buffer | list[memoryview] = b"",
    ) -> None:
        """Answer a request of the peer; the bodies' buffers must stay unchanged until they are sent."""
        if not self.closed:
            add_reply(self._out, request, code, header, remark, body)
            self._flush_soon()

    def write(self, replies: list[Buffer]) -> None:
        """Send what `add_reply` made."""
        if not self.closed:
            self._out.extend(replies)
            self._flush_soon()

    def hold(self, change: int) -> None:
        """Count requests of the peer that wait for something; too many stop the reading."""
        self._held += change
        if self._held > self._limits.waiting_requests or self._throttled:
            self._regulate()

    def on_end(self, callback: Callable[[Session], object]) -> None:
        """Call `callback(session)` once when the connection has ended."""
        self._end_callbacks.append(callback)

    def close(self) -> None:
        """Send what was answered so far, then end the connection."""
        if self._transport is not None and not self.closed:
            self._flush()
            self._transport.close()

    @property
    def is_backed_up(self) -> bool:
        """Whether the peer does not read what we write: more would only fill our memory."""
        return self._unread

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._wire.pending_bytes

    # What the event loop calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes)
        self.address = address_text(transport.get_extra_info("peername"))
        self.local = address_text(transport.get_extra_info("sockname"))
        self.host = hosts.pack(self.address)
        if self._on_begin is not None:
            self._on_begin(self)

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        try:
            received = self._wire.receive(data)
        except RemoteProtocolError as error:
            log.warning("closing the connection of %s: %s", self.address, error)
            self.close()
            return
        dispatch = self._dispatch
        for command in received:
            if command.flag & REPLY_FLAG:
                self._settle(command)
            else:
                dispatch(self, command)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._out.clear()
        for waiting in self._wire.abandon():
            if not waiting.future.done():
                waiting.future.set_exception(ConnectionClosed(self.address, exc))
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback(self)

    def pause_writing(self) -> None:
        self._unread = True
        self._regulate()

    def resume_writing(self) -> None:
        self._unread = False
        self._regulate()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _write(self, head: bytes, body: bytes) -> None:
        self._out.append(head)
        if body:
            self._out.append(body)
        if len(self._out) >= REQUEST_PIECES:
            self._write_out()
        else:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.turn.answer(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._out:
            self._write_out()

    def _write_out(self) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _settle(self, reply: Command) -> None:
        waiting = self._wire.claim(reply)
        if waiting is None or waiting.future.done():
            return  # It came after its time limit.
        self.version = reply.version or 0
        if reply.code != 0 and reply.code not in waiting.accept:
            waiting.future.set_exception(RemoteError(reply.code, reply.remark))
            return
        try:
            header = self._reply_header(waiting.request, reply)
        except RemoteProtocolError as error:
            waiting.future.set_exception(error)
            return
        waiting.future.set_result(Response(reply.code, header, reply.remark, reply.body, reply.version or 0))

    @staticmethod
    def _reply_header(request: Request[R], reply: Command) -> R:
        return cast(R, reply.header(request.Reply))

    def _watch_expiry(self) -> None:
        if not self._expiry_due:
            self._expiry_due = True
            self._clock.call_later(EXPIRY_PERIOD_S, self._expire)

    def _expire(self) -> None:
        self._expiry_due = False
        now = self._clock.monotonic()
        # What was cancelled goes here too: a callback for each request would cost more than this look.
        for waiting in self._wire.expired(lambda entry: entry.deadline <= now or entry.future.done()):
            if not waiting.future.done():
                what = type(waiting.request).__name__
                waiting.future.set_exception(RequestTimeout(self.address, what, waiting.timeout_s))
        if self._wire.in_flight and not self.closed:
            self._watch_expiry()

    def _regulate(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        # Who waits for answers must go on reading. Two sides that each wait for the other to read first, a client with
        # a large message and a broker with pulled ones, would wait for ever.
        unread = self._unread and not self._wire.in_flight
        too_much = unread or self._held > self._limits.waiting_requests
        if too_much and not self._throttled:
            self._transport.pause_reading()
        elif self._throttled and not too_much:
            self._transport.resume_reading()
        self._throttled = too_much


def add_reply(
    pieces: list[Buffer],
    request: Command,
    code: int,
    header: Header | None,
    remark: str | None = None,
    body: Buffer | list[memoryview] = b"",
) -> None:
    """Add the pieces of a reply, which are none for a request that wants none."""
    if request.flag & ONEWAY_FLAG:
        return
    if not body:
        pieces.append(encode_reply(request, code, header, remark))
    elif isinstance(body, list):
        size = 0
        for piece in body:
            size += len(piece)
        pieces.append(encode_reply(request, code, header, remark, size))
        pieces.extend(body)
    else:
        pieces.append(encode_reply(request, code, header, remark, len(body)))
        pieces.append(body)


def address_text(address: object) -> str:
    """A socket address as `host:port`."""
    if isinstance(address, tuple) and len(address) >= 2:
        return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"
    return str(address or "?")
