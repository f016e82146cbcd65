"""One socket of the gRPC server: bytes between asyncio and `Connection`, and the calls that requests begin.

data_received      all frames of the chunk, the calls that they begin, one write of what is ready
flush              answers of methods that waited: one write at the end of the turn
pause_writing      the peer does not read: nothing is read from it, and answers wait in their streams
check              some times a minute: ends peers that are silent, stuck or slow
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.http2 import frames, response_headers
from sparrowmq.http2.calls import Call, Caller, GrpcError, Method, Status
from sparrowmq.http2.connection import Connection
from sparrowmq.http2.deadlines import Deadlines
from sparrowmq.http2.exchange import Spawn, Surroundings
from sparrowmq.http2.grpc_wire import ENCODINGS, MessageReader, timeout_s
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.plain_answer import PlainAnswer
from sparrowmq.http2.request_headers import RequestHeaders
from sparrowmq.http2.stream_exchange import exchange_of
from sparrowmq.http2.streams import Stream
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.remoting.budget import TurnShare
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.tls.encryption import GOODBYE_S, Encryption

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES: Final = 256 * 1024  # unsent bytes in the socket's transport, before answers wait in their streams
CLOSE_S: Final = 5.0  # for a peer to read its last answers
LEAST_SENT_BYTES: Final = 16 * 1024  # of waiting answers that a peer must take within `unread_s`


@dataclass(frozen=True, slots=True)
class Hall:
    """The things that the sessions of one server share.

    Attributes:
        begun: called with a session when its socket is connected.
        holds: called with a session and the change of the bytes that it occupies.
        lines: the log lines that peers cause.
        inflating, deadlines: see `Surroundings`.
        share: the work of one turn for all of them.
    """

    methods: Mapping[str, Method]
    limits: Limits
    clock: Clock
    turn: Turn
    spawn: Spawn
    begun: Callable[[GrpcSession], object]
    holds: Callable[[GrpcSession, int], object]
    lines: LogLimit
    inflating: asyncio.Lock
    share: TurnShare
    deadlines: Deadlines


class Answering(Protocol):
    """The work on one stream: a call, or the answer to a request that is none."""

    changed_at: float

    @property
    def is_unfinished(self) -> bool:
        """Whether the client owes the rest of a message."""

    def body(self, data: bytes, is_end: bool) -> None:
        """Take bytes of the request."""

    def fail(self, code: int, message: str) -> None:
        """End it with an error."""

    def ended(self) -> None:
        """The stream has ended."""

    def drained(self) -> None:
        """All answers so far are sent."""


class GrpcSession:
    """A live connection of a client.

    Attributes:
        address: of the client, as text.
        host: the address of the client, as `hosts.pack` encodes it.
        caller: the client; a proxy's header may replace it before the first bytes.
        closed: it has ended.
    """

    def __init__(self, hall: Hall) -> None:
        self.caller = Caller()
        self.address = "?"
        self.host = bytes(hosts.IPV4_SIZE)
        self.closed = False
        self.connection = Connection(self, hall.limits, hall.clock.monotonic, hall.share.share_end_s)
        self._hall = hall
        self._transport: asyncio.Transport | None = None
        self._around = Surroundings(
            self.connection, hall.clock, hall.spawn, self._flush_soon, hall.inflating, hall.deadlines
        )
        self._is_receiving = False
        self._flush_due = False
        self._is_paused = False
        self._last_read = self._began = hall.clock.monotonic()
        self._pinged_at = 0.0
        self._is_leaving = False
        self._counted_bytes = 0  # of `occupied_bytes`, by the server
        self._stuck_since = 0.0
        self._sent_then = 0
        self._end_callbacks: list[Callable[[GrpcSession], object]] = []

    @property
    def occupied_bytes(self) -> int:
        """The memory of its requests and of the answers that its peer has not read."""
        output = self.connection.output
        size = self.connection.held_bytes + output.pending_bytes
        if output.is_stopped and not self.closed and self._transport is not None:
            size += self._transport.get_write_buffer_size()
        return size

    # What the event loop calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple) and len(name) >= 2:
            self.comes_from(name[0], name[1])
            self.host = hosts.pack(self.address)
        self._hall.begun(self)

    def encrypted(self, transport: asyncio.Transport) -> None:
        """Use `transport` from now on. It encrypts for the transport that the connection began with."""
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def certified(self, name: str) -> None:
        """Note the common name in the client's verified certificate."""
        self.caller.certificate = name

    def comes_from(self, host: str, port: int) -> None:
        """Note the client's address as the header of a proxy gives it."""
        self.caller.host, self.caller.port = host, port
        self.address = str(self.caller)

    def data_received(self, data: bytes) -> None:
        self._last_read = self._hall.clock.monotonic()
        self._is_receiving = True
        self.connection.receive(data)
        self._is_receiving = False
        self._advance()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            self.connection.end()
            self._count_occupied()
            self._hall.share.forget(self)
            for callback in self._end_callbacks:
                callback(self)

    def pause_writing(self) -> None:
        self.connection.output.is_stopped = True
        self._regulate()

    def resume_writing(self) -> None:
        self.connection.output.is_stopped = False
        self._regulate()
        self._flush_soon()

    # What the server calls ------------------------------------------------------------------------------------------

    def on_end(self, callback: Callable[[GrpcSession], object]) -> None:
        """Call `callback(session)` once when the connection has ended."""
        self._end_callbacks.append(callback)

    def drain(self) -> None:
        """Ask the client to begin no more calls here. A connection that has not begun ends."""
        if self.connection.is_settled:
            self.connection.drain()
            self._flush_soon()
        else:
            self.abort()

    def close(self) -> None:
        """End the connection when what is written has left, or at once if the peer does not read."""
        if self._transport is not None and not self.closed:
            if self.connection.output.is_stopped or not self.connection.is_settled:
                self._transport.abort()
            else:
                self._write()
                self._transport.close()
                self._hall.clock.call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        if self._transport is not None and not self.closed:
            self._transport.abort()

    def drop(self, why: str) -> None:
        """End the connection at once, with a log line."""
        text = "ending the gRPC connection of %s: %s"
        self._hall.lines.log(log, logging.WARNING, text, self.address, why)
        self.abort()

    def check(self) -> Steps[None]:
        """End a peer that is silent, slow or stuck, and calls whose requests never become whole."""
        limits, age = self._hall.limits, self._hall.clock.age
        silent_s = age(self._last_read)
        if not self.connection.is_settled and age(self._began) > limits.opening_s:
            self.drop("no HTTP/2 settings came in time")
        elif self.connection.is_partial and silent_s > limits.partial_s:
            self.drop("an unfinished frame does not grow")
        elif self._is_stuck():
            self.drop("it does not read its answers")
        elif silent_s > limits.idle_s and not self.connection.streams:
            self.drain()
            self.close()
        elif silent_s > limits.ping_after_s + limits.partial_s and self._pinged_at > self._last_read:
            self.drop("it does not answer")
        elif silent_s > limits.ping_after_s and self._pinged_at <= self._last_read:
            self._pinged_at = self._hall.clock.monotonic()
            self.connection.output.pieces.append(frames.frame(frames.PING, 0, 0, bytes(8)))
            self._flush_soon()
        else:
            yield from self._end_slow_calls()

    # What the connection calls --------------------------------------------------------------------------------------

    def request(self, stream: Stream, request: RequestHeaders, is_end: bool) -> None:
        try:
            call = self._answering(stream, request)
        except GrpcError as error:
            self.connection.output.end(stream, response_headers.trailers_only(error.code, error.message))
            return
        stream.call = call
        if is_end:
            call.body(b"", True)

    def body(self, stream: Stream, data: bytes, is_end: bool) -> None:
        call: Answering | None = stream.call
        if call is not None:
            call.body(data, is_end)

    def ended(self, stream: Stream) -> None:
        call: Answering | None = stream.call
        if call is not None:
            stream.call = None
            call.ended()

    def drained(self, stream: Stream) -> None:
        call: Answering | None = stream.call
        if call is not None:
            call.drained()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _answering(self, stream: Stream, request: RequestHeaders) -> Answering:
        """Return what answers a request. Raises: GrpcError."""
        headers, limits, clock = request.headers, self._hall.limits, self._hall.clock
        if request.list_bytes > limits.header_list_bytes:
            return PlainAnswer(431, "the headers are too large", stream, self._around)
        if request.method != "POST":
            return PlainAnswer(405, "gRPC calls are sent by POST", stream, self._around)
        if not headers.get("content-type", "").startswith("application/grpc"):
            return PlainAnswer(415, "the content type is not application/grpc", stream, self._around)
        method = self._hall.methods.get(request.path)
        if method is None:
            raise GrpcError(Status.UNIMPLEMENTED, f"there is no method {request.path[:200]} here")
        encoding = headers.get("grpc-encoding", "identity")
        if encoding not in ENCODINGS:
            raise GrpcError(Status.UNIMPLEMENTED, f"grpc-encoding {encoding[:20]}; identity and gzip are known")
        limit = headers.get("grpc-timeout")
        deadline = None if limit is None else clock.monotonic() + timeout_s(limit)
        call = Call(request.path, headers, self.caller, request.authority, deadline=deadline, now=clock.monotonic)
        return exchange_of(method, call, stream, MessageReader(limits.message_bytes, encoding), self._around)

    def _flush_soon(self) -> None:
        if not self._flush_due and not self._is_receiving and not self.closed:
            self._flush_due = True
            self._hall.turn.answer(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self._advance()

    def _advance(self) -> None:
        """Write what is ready, and see to what is left."""
        connection = self.connection
        if self.closed or self._is_leaving or self._transport is None:
            return
        has_more = connection.output.flush() if connection.output.is_waiting else False
        self._write()
        self._count_occupied()
        if connection.fault is not None:
            self._end_faulty()
            return
        if connection.has_more or has_more:
            self._hall.share.wait(self)
        self._regulate()

    def _count_occupied(self) -> None:
        change = self.occupied_bytes - self._counted_bytes
        if change:
            self._counted_bytes += change
            self._hall.holds(self, change)

    def _write(self) -> None:
        pieces = self.connection.output.pieces
        if pieces and self._transport is not None:
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            self.connection.output.written()

    def go_on(self) -> None:
        """Handle the received frames that had to wait, and send what may be sent now."""
        if self.connection.has_more and not self.connection.output.is_stopped and not self.closed:
            self._is_receiving = True
            self.connection.go_on()
            self._is_receiving = False
        self._advance()

    def _regulate(self) -> None:
        """Read on, or stop reading."""
        is_paused = self.connection.has_more or self.connection.output.is_stopped
        if self._transport is None or self._transport.is_closing() or is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end_faulty(self) -> None:
        text = "closing the gRPC connection of %s: %s"
        self._hall.lines.log(log, logging.INFO, text, self.address, self.connection.fault)
        self.connection.end()
        self._end_behind_reason()

    def _end_behind_reason(self) -> None:
        """End the connection, and let the peer read GOAWAY.

        A socket that is closed with unread bytes in it discards the bytes that it has sent. So it is closed a little
        later, and bytes that still arrive are ignored.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self.connection.output.is_stopped:
            self.abort()
        elif isinstance(transport, Encryption):
            transport.close()
        elif not self._is_leaving:
            self._is_leaving = True
            transport.write_eof()
            self._hall.clock.call_later(GOODBYE_S, self.abort)

    def _is_stuck(self) -> bool:
        """Whether answers have waited for long, and hardly any left meanwhile."""
        output, clock = self.connection.output, self._hall.clock
        is_waiting = output.is_stopped or output.is_waiting
        if not is_waiting or not self._stuck_since or output.sent_bytes - self._sent_then >= LEAST_SENT_BYTES:
            self._stuck_since = clock.monotonic() if is_waiting else 0.0
            self._sent_then = output.sent_bytes
            return False
        return clock.age(self._stuck_since) > self._hall.limits.unread_s

    def _end_slow_calls(self) -> Steps[None]:
        limit_s, age = self._hall.limits.partial_s, self._hall.clock.age
        for stream in list(self.connection.streams.values()):
            call: Answering | None = stream.call
            if call is not None and call.is_unfinished and age(call.changed_at) > limit_s:
                call.fail(Status.DEADLINE_EXCEEDED, f"the rest of the request did not come within {limit_s:g} s")
            yield
