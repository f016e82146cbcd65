"""One TCP connection: it receives bytes, passes commands to the dispatcher, and returns replies to their callers.

Either end may send a request at any time, and replies come in any order. All requests of a chunk are handled at once,
and their replies leave in one write, at the end of the turn (turn.py). Reading stops while the peer does not read our
answers, or while too many of its requests wait. Back-pressure is here and in no other module.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol, TypeVar, cast

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConnectionClosed, RemoteProtocolError, RequestTimeout
from sparrowmq.kernel.lanes import Sender
from sparrowmq.kernel.pulls import Pull
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import free_soon
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.protocol.wire.codec import encode_reply
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, REPLY_FLAG, Command, language_name
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.frame import LARGE_FRAME_BYTES, Serializer
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.protocol.wire.reply import Buffer, add_reply, take_first
from sparrowmq.remoting.budget import (
    COUNTED_BYTES,
    LEAST_TURN_BYTES,
    NOTED_BYTES,
    SHORT_ANSWERS,
    Budget,
    SessionLimits,
    TurnShare,
)
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

_SEND_CODE: Final = 310  # SEND_MESSAGE_V2: the clock is read after four of these

# Reasons to stop reading. They are bits, as several may hold at once.
#
#          begins                                       ends                                    counts while we wait
#                                                                                               for answers ourselves
#  UNREAD  the peer leaves too many answers unread      its socket takes answers again          no
#  UNDONE  requests wait until the answers before       all that was received is handled        no
#          them are with the socket
#  ROOM    a large frame has no room in the budget      the budget has room, or the frame ends  yes
#  HELD    too many of its requests wait for something  fewer wait                              yes
#
# A side that waits for answers must go on reading. Two sides that each wait for the other to read first, a client with
# a large message and a broker with pulled ones, would wait forever. But it reads no flood of requests (_MOST_WHOLE).
_UNREAD: Final = 1
_UNDONE: Final = 2
_ROOM: Final = 4
HELD: Final = 8
_MAX_WHOLE_FRAMES_BYTES: Final = 1 << 20  # bytes of whole frames that are not decoded yet


class ShortWay(Protocol):
    """Answers requests that lanes of the kernel take (remoting/short_way.py)."""

    def prepare(self) -> bool:
        """Get ready for the bytes of a chunk. Returns whether any lane is open."""

    def answer_pulls(self, session: Session, pulls: list[Pull], are_late: bool) -> tuple[list[Pull], list[Command]]:
        """Answer the pulls that lanes took, in this call or in an earlier turn. Returns those that have to wait until
        the answers before them are sent, or else those that take the long way.
        """

    def park(self, session: Session) -> None:
        """Answer the requests that lanes took, once their messages are safe."""


class Session:
    """A live connection, which `Server` and `Pool` create. `on_begin(session)` is called once it is connected."""

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
        budget: Budget | None = None,
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
        self.closed = False
        self.turn = turn or Turn()
        self.short_way: ShortWay | None = None  # of plain requests, from the first other one on
        self.sender: Sender | None = None
        self.received_bytes = 0
        self.sent_bytes = 0
        self.last_read = clock.monotonic()
        self.partial_since = self.last_read  # the time at which the unfinished frame began (`pending_bytes`)
        self.on_mute: Callable[[], object] | None = None  # called some times a second while the peer `is_mute`
        self.dispatch = dispatch
        self.monotonic = clock.monotonic
        self._clock = clock
        self._limits = limits or SessionLimits()
        self._wire: Connection[RequestInFlight] = Connection(self._limits.frame, serializer, sign)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[Buffer] = []
        self._out_bytes = 0  # the size of the bodies in `_out`
        self._undone: list[
            Any
        ] = []  # commands, behind pulls of lanes: they wait until the answers before them are with the socket
        self._budget = budget
        self._share = TurnShare() if budget is None else budget.turn
        self._is_partial = False
        self._asked_for_room = False
        self._flush_due = False
        self._on_begin = on_begin
        self._waiting_count = 0
        self._held_bytes = 0
        self._stop_reasons = 0  # the current reasons
        self._is_paused = False
        self._end_callbacks: list[Callable[[Session], object]] = []
        self._expiry_due = False
        self._expiry_at = 0.0
        self._skipped_expiry = False

    def __repr__(self) -> str:
        return f"<session {self.local_address} - {self.address}>"

    def call(
        self, request: Request[R], body: bytes = b"", *, timeout_s: float = 3.0, accept: Collection[int] = ()
    ) -> asyncio.Future[Response[R]]:
        """Send a request, and await the answer. `accept` has codes besides 0 that are answers rather than errors.

        Raises: RemoteError, another code; RequestTimeout, ConnectionClosed: the peer may have carried out the request
        or not.
        """
        future: asyncio.Future[Response[Any]] = self._loop.create_future()
        if self.closed:
            future.set_exception(ConnectionClosed(self._address_of(request)))
        else:
            self._send_request(request, body, timeout_s, accept, future)
        return future

    def ask(
        self,
        request: Request[R],
        body: bytes,
        answered: Callable[[Response[R] | None, Exception | None], object],
        *,
        timeout_s: float,
        accept: Collection[int] = (),
        is_alone: bool = False,
    ) -> None:
        """Send a request as `call`, for frequent callers: `answered(answer, error)` is called later, one of them None.
        A request that `is_alone` in its turn is written now.
        """
        if self.closed:
            self._loop.call_soon(answered, None, ConnectionClosed(self._address_of(request)))
        else:
            self._send_request(request, body, timeout_s, accept, answered, is_alone)

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
            body_bytes = add_reply(self._out, request, code, header, remark, body)
            self._out_bytes += body_bytes
            if body_bytes > COUNTED_BYTES:
                self._share.count_answer(body_bytes)
            self._flush_soon()

    def write_answers(self, answers: bytes) -> None:
        """Send whole answers with bodies, which count in what this turn may send."""
        if not self.closed:
            self._out.append(answers)
            self._out_bytes += len(answers)
            self._share.count_answer(len(answers))
            self._flush_soon()

    @property
    def answer_room(self) -> int:
        """The bytes of answers that this turn may still make; -1 if it made enough."""
        return -1 if self._share.is_spent else self._turn_bytes() - self._out_bytes

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

    def postpone(self, request: Command) -> None:
        """Handle a request in one of the next turns, and those after it later."""
        self._undone.append(request)

    def hold_reply(self, pending_reply: Any) -> None:
        """Count a request whose answer comes later (`PendingReply`)."""
        self.hold(1)

    def hold(self, change: int, body_bytes: int = 0) -> None:
        """Count the peer's waiting requests, and the bytes of their bodies. Too many stop the reading."""
        self._waiting_count += change
        self._held_bytes += body_bytes
        has_room = self._budget is None or self._budget.hold(body_bytes)
        max_bytes = self._limits.waiting_bytes if has_room else 0
        is_too_much = self._waiting_count > self._limits.waiting_requests or self._held_bytes > max_bytes
        if is_too_much != (self._stop_reasons & HELD != 0):
            self._set_stop_reason(HELD, is_too_much)

    def on_end(self, callback: Callable[[Session], object]) -> None:
        self._end_callbacks.append(callback)

    def close(self) -> None:
        if self._transport is not None and not self.closed:
            self._undone.clear()
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
    def is_backed_up(self) -> bool:
        """Whether the peer does not read our bytes: more would only fill our memory."""
        return self._stop_reasons & _UNREAD != 0

    @property
    def is_full(self) -> bool:
        """Whether so many answers are unsent that more should wait, if they can."""
        return self._stop_reasons & _UNREAD != 0 or self._out_bytes > self._limits.unsent_bytes

    @property
    def unread_bytes(self) -> int:
        return 0 if self._transport is None or self.closed else self._transport.get_write_buffer_size()

    @property
    def unhandled_bytes(self) -> int:
        return self._wire.pending_bytes

    @property
    def pending_bytes(self) -> int:
        """The received bytes of an unfinished frame."""
        return 0 if self._wire.has_more else self._wire.pending_bytes

    @property
    def frame_bytes(self) -> int:
        return self._wire.frame_bytes

    def on_room(self) -> None:
        self._set_stop_reason(_ROOM, False)

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
        if self._on_begin is not None:
            self._on_begin(self)

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        self.received_bytes += len(data)
        received = self._receive(data)
        if self._wire.pending_bytes or self._is_partial:
            self._mark_partial(len(received) > 0)
        if self._undone:
            received, self._undone = self._undone + received, []
        if received or self._stop_reasons or self._wire.has_more:
            self._handle(received, self.last_read)

    def eof_received(self) -> bool:
        return False

    def encrypted(self, transport: asyncio.Transport) -> None:
        """Use `transport`, which encrypts, from now on."""
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.unsent_bytes)

    def certified(self, name: str) -> None:
        self.certificate = name

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        free_soon(self._out)
        self._out, self._undone = [], []
        if self._budget is not None:
            self._budget.free_frame(self)
            self._budget.remove_unread(self)
        self._share.forget(self)
        self._count_busy(False)
        reason = why_closed(exc) if isinstance(exc, ssl.SSLError) else exc
        for waiting in self._wire.abandon():
            waiting.end(None, ConnectionClosed(self._address_of(waiting.request), reason))
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback(self)

    def pause_writing(self) -> None:
        self._note_unread()
        self._set_stop_reason(_UNREAD, True)

    def resume_writing(self) -> None:
        if self._budget is not None:
            self._budget.remove_unread(self)
        self._set_stop_reason(_UNREAD, False)
        self._flush_soon()
        if self._undone or self._wire.has_more:
            self._share.wait(self)  # the last write may have been all there was, so no flush does this

    def _receive(self, data: bytes) -> list[Any]:
        """Let lanes take the plain requests that come first, unless earlier ones or answers wait; decode the others.
        Returns pulls to answer, each a `Pull`, and the commands behind them.
        """
        sender, short_way = self.sender, self.short_way
        is_busy = self._undone or self._stop_reasons or self._out_bytes > LEAST_TURN_BYTES or self._wire.has_more
        try:
            if sender is None or short_way is None or is_busy or self._is_ending or not short_way.prepare():
                return self._wire.receive(data)
            parked_count = sender.parked.count
            try:
                received = self._wire.receive(data, sender)
            finally:
                if parked_count == 0 < sender.parked.count:
                    short_way.park(self)
            if sender.pulls.taken_pulls:
                pulls, sender.pulls.taken_pulls = sender.pulls.taken_pulls, []
                return pulls + received
            return received
        except RemoteProtocolError as error:
            if self._budget is not None:
                self._budget.log_limit.log(
                    log, logging.WARNING, "closing the connection of %s: %s", self.address, shown(error)
                )
            else:
                log.warning("closing the connection of %s: %s", self.address, shown(error))
            self.close()
            return []

    def _answer_pulls(self, received: list[Any]) -> list[Command]:
        """Answer the pulls of lanes that come first. Returns the commands to handle now; others are `_undone`."""
        count = next((count for count, request in enumerate(received) if type(request) is not Pull), len(received))
        assert self.short_way is not None
        are_late = self._stop_reasons & _UNDONE != 0
        waiting, commands = self.short_way.answer_pulls(self, received[:count], are_late)
        if waiting:
            self._undone = waiting + received[count:]
            return []
        return commands + received[count:]

    def _handle(self, received: list[Any], began_s: float) -> None:
        """Handle requests until their time in this turn is over; the rest waits in `_undone`, or is not decoded yet."""
        if received and type(received[0]) is Pull:
            received = self._answer_pulls(received)
        dispatch, max_bytes = self.dispatch, LEAST_TURN_BYTES
        turn = self._share
        count = 0
        end_s = 0.0
        is_late = False
        while True:
            for command in received:
                if command.flag & REPLY_FLAG:
                    waiting = self._wire.claim(command)
                    if waiting is not None and not waiting.is_abandoned:  # otherwise it came after its time limit
                        self.version = command.version or 0
                        waiting.settle(command)
                    continue
                count += 1
                if (count & 3 == 0 or command.code != _SEND_CODE) and not is_late:
                    now = self._clock.monotonic()
                    if end_s == 0.0:
                        end_s = turn.share_end_s(began_s)
                    is_late = now > end_s and count > 1
                is_spent = turn.is_spent and command.code not in SHORT_ANSWERS
                if is_late or is_spent or self._undone:
                    self.postpone(command)
                    continue
                if self._out_bytes > max_bytes:
                    max_bytes = self._turn_bytes()  # seldom needed, as most answers are small
                    if self._out_bytes > max_bytes:
                        self.postpone(command)
                        continue
                dispatch(self, command)
            if is_late or self._undone or not self._wire.has_more or self._is_ending:
                break
            received = self._receive_more()
        if self._undone or self._wire.has_more:
            self._count_busy(True)
            self._set_stop_reason(_UNDONE, True)
            self._share.wait(self)
        elif self._stop_reasons & _UNDONE:
            self._count_busy(False)
            self._set_stop_reason(_UNDONE, False)

    def go_on(self) -> None:
        """Handle the received requests that had to wait, unless answers still wait for the socket."""
        if self._is_ending or self.is_backed_up or self._out_bytes:
            return
        began_s = self._clock.monotonic()
        received, self._undone = self._undone, []
        if not received and self._wire.has_more:
            received = self._receive_more()
        self._handle(received, began_s)

    def _receive_more(self) -> list[Any]:
        received = self._receive(b"")
        self._mark_partial(True)
        return received

    @property
    def _is_ending(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _turn_bytes(self) -> int:
        return min(self._limits.unsent_bytes, self._share.bytes_of_one())

    def _count_busy(self, is_busy: bool) -> None:
        if is_busy != (self._stop_reasons & _UNDONE != 0):
            self._share.busy_count += 1 if is_busy else -1

    def _mark_partial(self, is_new: bool) -> None:
        """Store the begin of an unfinished frame, and ask for room for a large one before more of it is read."""
        pending_bytes = self.pending_bytes
        if is_new or not self._is_partial:
            self.partial_since = self.last_read
        self._is_partial = pending_bytes > 0
        if self._budget is None:
            return
        if pending_bytes > LARGE_FRAME_BYTES:
            self._asked_for_room = True
            self._set_stop_reason(_ROOM, not self._budget.room_for(self, self._wire.frame_bytes))
        elif self._asked_for_room:
            self._asked_for_room = False
            self._budget.free_frame(self)
            self._set_stop_reason(_ROOM, False)

    def _write(self, head: bytes, body: bytes, is_alone: bool = False) -> None:
        self._out.append(head)
        if body:
            self._out.append(body)
        if is_alone or len(self._out) >= REQUEST_PIECES or len(body) >= LARGE_REQUEST_BYTES:
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
        if self._transport is None or self.closed or self._stop_reasons & _UNREAD:
            return
        max_bytes = self._turn_bytes() if self._out_bytes > LEAST_TURN_BYTES else LEAST_TURN_BYTES
        if self._out_bytes <= max_bytes:
            self._send(b"".join(self._out))
            self._out.clear()
            self._out_bytes = 0
        else:
            piece = take_first(self._out, max_bytes)
            # Heads count in the piece, but not in `_out_bytes`. So the count may reach zero early, when only few bytes
            # remain.
            self._out_bytes = max(0, self._out_bytes - len(piece))
            self._send(piece)
            self._loop.call_soon(self._flush_soon)  # in another turn, so that other connections have theirs
        if self._undone or self._wire.has_more:
            self._share.wait(self)

    def _send(self, piece: bytes) -> None:
        self.sent_bytes += len(piece)
        transport = self._transport
        if transport is not None:
            transport.write(piece)
            if self._budget is not None and transport.get_write_buffer_size() > NOTED_BYTES:
                self._loop.call_soon(self._note_unread)  # uvloop writes only at the end of this turn

    def _note_unread(self) -> None:
        if self._budget is not None and self.unread_bytes > NOTED_BYTES:
            self._budget.add_unread(self)

    def _send_request(
        self,
        request: Request[Any],
        body: bytes,
        timeout_s: float,
        accept: Collection[int],
        waiter: asyncio.Future[Response[Any]] | AnswerCallback,
        is_alone: bool = False,
    ) -> None:
        deadline = self._clock.monotonic() + timeout_s
        self._post(request, body, RequestInFlight(request, accept, waiter, deadline, timeout_s), is_alone)
        if self._is_paused:
            self._regulate()
        self._watch_expiry()

    def _post(self, request: Request[Any], body: bytes, waiter: RequestInFlight | None, is_alone: bool = False) -> None:
        if waiter is None:
            head = self._wire.oneway(request, body)
        else:
            _, head = self._wire.request(request, body, waiter)
        self._write(head, body, is_alone)

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

    def _set_stop_reason(self, reason: int, is_set: bool) -> None:
        self._stop_reasons = self._stop_reasons | reason if is_set else self._stop_reasons & ~reason
        self._regulate()

    def _regulate(self) -> None:
        if self._transport is None or self._is_ending:
            return
        must_read = self._wire.in_flight and not (
            self._wire.has_more and self.unhandled_bytes > _MAX_WHOLE_FRAMES_BYTES
        )
        counted = _ROOM | HELD if must_read else _UNREAD | _UNDONE | _ROOM | HELD
        is_paused = self._stop_reasons & counted != 0
        if is_paused and not self._is_paused:
            self._transport.pause_reading()
        elif self._is_paused and not is_paused:
            self._transport.resume_reading()
        self._is_paused = is_paused


def protocol_of(make: Callable[[], Session]) -> Callable[[], Any]:
    """Return a factory of sessions, typed for event loops, which need only the methods of a `Protocol`."""
    return make
