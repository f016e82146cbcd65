"""One socket of the gRPC server: bytes between asyncio and the kernel's `Http2`, and the calls that requests begin.

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
from math import inf
from typing import Final

from sparrowmq.http2.calls import Call, Caller, Method, Status, Streaming
from sparrowmq.http2.exchange import Spawn, StreamExchange, Surroundings, UnaryExchange
from sparrowmq.http2.limits import Limits
from sparrowmq.kernel.answers import Stream
from sparrowmq.kernel.http2 import Http2
from sparrowmq.loop.clock import Clock, Timer
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
FRAMES_AT_ONCE: Final = 16  # eight calls, between two looks at the clock
FRAMES_OF_A_CALL: Final = 2
STEP_S: Final = 0.05  # calls that end within the same step have one timer; the client itself counts exactly


@dataclass(frozen=True, slots=True)
class Hall:
    """The things that the sessions of one server share.

    Attributes:
        begun: called with a session when its socket is connected.
        holds: called with a session and the change of the bytes that it occupies.
        lines: the log lines that peers cause.
        kinds: of the methods, for the kernel.
        inflating: see `Surroundings`.
        share: the work of one turn for all of them.
    """

    methods: Mapping[str, Method]
    kinds: dict[str, int]
    limits: Limits
    clock: Clock
    turn: Turn
    spawn: Spawn
    begun: Callable[[GrpcSession], object]
    holds: Callable[[GrpcSession, int], object]
    lines: LogLimit
    inflating: asyncio.Lock
    share: TurnShare


class GrpcSession(asyncio.Protocol):
    """A live connection of a client.

    Attributes:
        address: of the client, as text.
        host: the address of the client, as `hosts.pack` encodes it.
        caller: the client; a proxy's header may replace it before the first bytes.
        closed: it has ended.
        http2: the connection's state.
    """

    def __init__(self, hall: Hall) -> None:
        self.caller = Caller()
        self.address = "?"
        self.host = bytes(hosts.IPV4_SIZE)
        self.closed = False
        self.http2 = Http2(hall.kinds, hall.limits.of_connection)
        self._hall = hall
        self._transport: asyncio.Transport | None = None
        self._around = Surroundings(self.http2, hall.spawn, self._flush_soon, hall.inflating, hall.limits.message_bytes)
        self._timer: Timer | None = None  # for time limits of calls
        self._timer_at = inf
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
        size = self.http2.held_bytes + self.http2.pending_bytes
        if self.http2.is_stopped and not self.closed and self._transport is not None:
            size += self._transport.get_write_buffer_size()
        return size

    # What the event loop calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
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
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            self._end_calls()
            self._count_occupied()
            self._hall.share.forget(self)
            for callback in self._end_callbacks:
                callback(self)

    def pause_writing(self) -> None:
        self.http2.is_stopped = True
        self._regulate()

    def resume_writing(self) -> None:
        self.http2.is_stopped = False
        self._regulate()
        self._flush_soon()

    # What the server calls ------------------------------------------------------------------------------------------

    def on_end(self, callback: Callable[[GrpcSession], object]) -> None:
        """Call `callback(session)` once when the connection has ended."""
        self._end_callbacks.append(callback)

    def drain(self) -> None:
        """Ask the client to begin no more calls here. A connection that has not begun ends."""
        if self.http2.is_settled:
            self.http2.drain()
            self._flush_soon()
        else:
            self.abort()

    def close(self) -> None:
        """End the connection when what is written has left, or at once if the peer does not read."""
        if self._transport is not None and not self.closed:
            if self.http2.is_stopped or not self.http2.is_settled:
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
        if not self.http2.is_settled and age(self._began) > limits.opening_s:
            self.drop("no HTTP/2 settings came in time")
        elif self.http2.is_partial and silent_s > limits.partial_s:
            self.drop("an unfinished frame does not grow")
        elif self._is_stuck():
            self.drop("it does not read its answers")
        elif silent_s > limits.idle_s and not self.http2.streams:
            self.drain()
            self.close()
        elif silent_s > limits.ping_after_s + limits.partial_s and self._pinged_at > self._last_read:
            self.drop("it does not answer")
        elif silent_s > limits.ping_after_s and self._pinged_at <= self._last_read:
            self._pinged_at = self._hall.clock.monotonic()
            self.http2.ping()
            self._flush_soon()
        else:
            yield from self._end_slow_calls()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        """Handle received frames, as far as this connection's share of the turn allows."""
        http2, clock = self.http2, self._hall.clock
        now = clock.monotonic()
        until = self._hall.share.share_end_s(now)
        self._is_receiving = True
        while True:
            for stream in http2.feed(data, now, FRAMES_AT_ONCE if now <= until else FRAMES_OF_A_CALL):
                self._handle(stream)
            if not http2.has_more or now > until:
                break
            data, now = b"", clock.monotonic()
        self._is_receiving = False
        if http2.due and http2.due < self._timer_at:
            self._set_timer(http2.due)
        self._advance()

    def _handle(self, stream: Stream) -> None:
        """See to a call that is whole, begins, goes on, or has ended."""
        around, exchange = self._around, self._around.tasks.get(stream.stream_id)
        if stream.is_closed:
            if exchange is not None:
                del around.tasks[stream.stream_id]
                exchange.ended()
            return
        if exchange is not None:
            exchange.wake()
            return
        call = Call(
            stream.path,
            stream.headers,
            self.caller,
            stream.authority,
            deadline=stream.deadline or None,
            now=self._hall.clock.monotonic,
        )
        method = self._hall.methods[stream.path]
        if isinstance(method, Streaming):
            StreamExchange(call, stream, around).begin(method.handler)
        else:
            UnaryExchange(call, stream, around, method).begin()

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        clock = self._hall.clock
        self._timer_at = (int(due / STEP_S) + 1) * STEP_S
        self._timer = clock.call_later(max(0.0, self._timer_at - clock.monotonic()), self._end_late_calls)

    def _end_late_calls(self) -> None:
        self._timer, self._timer_at = None, inf
        for stream in self.http2.overdue(self._hall.clock.monotonic()):
            self._handle(stream)
        if self.http2.due:
            self._set_timer(self.http2.due)
        self._advance()

    def _end_calls(self) -> None:
        """Forget all calls: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self.http2.end()
        for exchange in list(self._around.tasks.values()):
            exchange.ended()
        self._around.tasks.clear()

    def _flush_soon(self) -> None:
        if not self._flush_due and not self._is_receiving and not self.closed:
            self._flush_due = True
            self._hall.turn.answer(self._advance)

    def _advance(self) -> None:
        """Write what is ready, and see to what is left."""
        http2 = self.http2
        self._flush_due = False
        if self.closed or self._is_leaving or self._transport is None:
            return
        self._write()
        self._count_occupied()
        if http2.fault is not None:
            self._end_faulty()
            return
        if http2.has_more or http2.has_output:
            self._hall.share.wait(self)
        self._regulate()

    def _count_occupied(self) -> None:
        change = self.occupied_bytes - self._counted_bytes
        if change:
            self._counted_bytes += change
            self._hall.holds(self, change)

    def _write(self) -> None:
        raw = self.http2.take()
        if raw and self._transport is not None:
            self._transport.write(raw)
        for exchange in list(self._around.blocked):
            exchange.wake()

    def go_on(self) -> None:
        """Handle the received frames that had to wait, and send what may be sent now."""
        if self.http2.has_more and not self.http2.is_stopped and not self.closed:
            self._receive(b"")
        else:
            self._advance()

    def _regulate(self) -> None:
        """Read on, or stop reading."""
        is_paused = self.http2.has_more or self.http2.is_stopped
        if self._transport is None or self._transport.is_closing() or is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end_faulty(self) -> None:
        """End the connection, and let the peer read GOAWAY.

        A socket that is closed with unread bytes in it discards the bytes that it has sent. So it is closed a little
        later, and bytes that still arrive are ignored.
        """
        text = "closing the gRPC connection of %s: %s"
        self._hall.lines.log(log, logging.INFO, text, self.address, self.http2.fault)
        self._end_calls()
        transport = self._transport
        if transport is None or transport.is_closing() or self.http2.is_stopped:
            self.abort()
        elif isinstance(transport, Encryption):
            transport.close()
        elif not self._is_leaving:
            self._is_leaving = True
            transport.write_eof()
            self._hall.clock.call_later(GOODBYE_S, self.abort)

    def _is_stuck(self) -> bool:
        """Whether answers have waited for long, and hardly any left meanwhile."""
        http2, clock = self.http2, self._hall.clock
        is_waiting = http2.is_stopped or http2.is_waiting
        if not is_waiting or not self._stuck_since or http2.sent_bytes - self._sent_then >= LEAST_SENT_BYTES:
            self._stuck_since = clock.monotonic() if is_waiting else 0.0
            self._sent_then = http2.sent_bytes
            return False
        return clock.age(self._stuck_since) > self._hall.limits.unread_s

    def _end_slow_calls(self) -> Steps[None]:
        limit_s, age = self._hall.limits.partial_s, self._hall.clock.age
        for stream in self.http2.unfinished():
            if age(stream.changed_at) > limit_s:
                text = f"the rest of the request did not come within {limit_s:g} s"
                self.http2.fail(stream, Status.DEADLINE_EXCEEDED, text)
                if stream.is_closed:
                    self._handle(stream)
                self._flush_soon()
            yield
