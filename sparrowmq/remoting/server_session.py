"""A server's half of a connection: lanes, turns that are shared with other connections, and back-pressure.

All requests of a chunk are handled at once, as far as the connection's share of the turn allows (budget.py). Reading
stops while the peer does not read our answers, or while too many of its requests wait. Back-pressure is here and in no
other module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel.lanes import Sender
from sparrowmq.kernel.pulls import Pull
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.wire.command import REPLY_FLAG, Command
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.frame import LARGE_FRAME_BYTES
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.protocol.wire.reply import Buffer, add_reply, take_first
from sparrowmq.remoting.budget import (
    COUNTED_BYTES,
    LEAST_TURN_BYTES,
    NOTED_BYTES,
    SHORT_ANSWERS,
    Budget,
    SessionLimits,
)
from sparrowmq.remoting.request_in_flight import RequestInFlight
from sparrowmq.remoting.session import Dispatch, Session

log = logging.getLogger(__name__)

_SEND_CODE: Final = 310  # SEND_MESSAGE_V2: the clock is read after four of these

# Reasons to stop reading. Those with a name are bits, as several may hold at once.
#
#          begins                                       ends                                    counts while we wait
#                                                                                               for answers ourselves
#          the peer leaves too many answers unread      its socket takes answers again          no
#          (`is_backed_up`)
#  UNDONE  requests wait until the answers before       all that was received is handled        no
#          them are with the socket
#  ROOM    a large frame has no room in the budget      the budget has room, or the frame ends  yes
#  HELD    too many of its requests wait for something  fewer wait                              yes
#
# A side that waits for answers must go on reading. Two sides that each wait for the other to read first, a client with
# a large message and a broker with pulled ones, would wait forever. But it reads no flood of requests
# (_MAX_WHOLE_FRAMES_BYTES).
_UNDONE: Final = 1
_ROOM: Final = 2
HELD: Final = 4
_MAX_WHOLE_FRAMES_BYTES: Final = 1 << 20  # bytes of whole frames that are not decoded yet


class ShortWay(Protocol):
    """Answers requests that lanes of the kernel take (remoting/short_way.py)."""

    def prepare(self) -> bool:
        """Get ready for the bytes of a chunk. Returns whether any lane is open."""

    def answer_pulls(
        self, session: ServerSession, pulls: list[Pull], are_late: bool
    ) -> tuple[list[Pull], list[Command]]:
        """Answer the pulls that lanes took, in this call or in an earlier turn. Returns those that have to wait until
        the answers before them are sent, or else those that take the long way.
        """

    def park(self, session: ServerSession) -> None:
        """Answer the requests that lanes took, once their messages are safe."""


class ServerSession(Session):
    """A connection that a server accepted. `on_begin(session)` is called once it is connected."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        limits: SessionLimits | None = None,
        *,
        sign: Sign | None = None,
        turn: Turn | None = None,
        on_begin: Callable[[ServerSession], object] = lambda _: None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(dispatch, clock, limits, sign=sign, turn=turn)
        # What lets plain requests take lanes, and what the lanes took. The dispatcher has `PlainSends.admit` set both
        # after the first allowed request.
        self.short_way: ShortWay | None = None
        self.sender: Sender | None = None
        self.partial_since = self.last_read  # the time at which the unfinished frame began (`pending_bytes`)
        self._budget = budget or Budget(clock)
        self._share = self._budget.turn
        self._on_begin = on_begin
        self._out_bytes = 0  # the size of the bodies in `_out`
        # Commands, behind pulls of lanes: they wait until the answers before them are with the socket.
        self._undone: list[Any] = []
        self._is_partial = False
        self._waiting_count = 0
        self._held_bytes = 0
        self._stop_reasons = 0  # the current reasons
        self._is_paused = False

    def reply(
        self,
        request: Command,
        code: int = 0,
        header: Header | None = None,
        remark: str | None = None,
        body: Buffer | list[memoryview] = b"",
    ) -> None:
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
        return -1 if self._share.is_spent else self._share.bytes_of_one(self._limits.unsent_bytes) - self._out_bytes

    def postpone(self, request: Command) -> None:
        """Handle a request in one of the next turns, and those after it later."""
        self._undone.append(request)

    def hold(self, change: int, body_bytes: int = 0) -> None:
        """Count the peer's waiting requests, and the bytes of their bodies. Too many stop the reading."""
        self._waiting_count += change
        self._held_bytes += body_bytes
        max_bytes = self._limits.waiting_bytes if self._budget.hold(body_bytes) else 0
        is_too_much = self._waiting_count > self._limits.waiting_requests or self._held_bytes > max_bytes
        if is_too_much != (self._stop_reasons & HELD != 0):
            self._set_stop_reason(HELD, is_too_much)

    @property
    def is_full(self) -> bool:
        return self.is_backed_up or self._out_bytes > self._limits.unsent_bytes

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
        super().connection_made(transport)
        if transport.get_extra_info("peername") is not None:  # otherwise it has left already
            self._on_begin(self)

    def encrypted(self, transport: asyncio.Transport) -> None:
        """Use `transport`, which encrypts, from now on."""
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.unsent_bytes)

    def certified(self, name: str) -> None:
        self.certificate = name

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        self.received_bytes += len(data)
        received = self._receive(data)
        if self._wire.pending_bytes or self._is_partial:
            self._mark_partial(len(received) > 0)
        if self._undone:
            received, self._undone = self._undone + received, []
        if received or self._stop_reasons or self.is_backed_up or self._wire.has_more:
            self._handle(received, self.last_read)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self._undone = []
            self._budget.free_frame(self)
            self._budget.remove_unread(self)
            self._share.forget(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._note_unread()
        super().pause_writing()
        self._regulate()

    def resume_writing(self) -> None:
        self._budget.remove_unread(self)
        super().resume_writing()
        self._regulate()
        if self._undone or self._wire.has_more:
            self._share.wait(self)  # the last write may have been all there was, so no flush does this

    def _receive(self, data: bytes) -> list[Any]:
        """Let lanes take the plain requests that come first, unless earlier ones or answers wait; decode the others.
        Returns pulls to answer, each a `Pull`, and the commands behind them.
        """
        sender, short_way = self.sender, self.short_way
        is_busy = (
            self._undone
            or self._stop_reasons
            or self.is_backed_up
            or self._out_bytes > LEAST_TURN_BYTES
            or self._wire.has_more
        )
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
            self._budget.log_limit.log(
                log, logging.WARNING, "closing the connection of %s: %s", self.address, shown(error)
            )
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
                    self._settle(command)
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
                    max_bytes = turn.bytes_of_one(self._limits.unsent_bytes)  # seldom needed: most answers are small
                    if self._out_bytes > max_bytes:
                        self.postpone(command)
                        continue
                dispatch(self, command)
            if is_late or self._undone or not self._wire.has_more or self._is_ending:
                break
            received = self._receive(b"")
            self._mark_partial(True)
        if self._undone or self._wire.has_more:
            self._share.busy.add(self)
            self._set_stop_reason(_UNDONE, True)
            self._share.wait(self)
        elif self._stop_reasons & _UNDONE:
            self._share.busy.discard(self)
            self._set_stop_reason(_UNDONE, False)

    def go_on(self) -> None:
        """Handle the received requests that had to wait, unless answers still wait for the socket."""
        if self._is_ending or self.is_backed_up or self._out_bytes:
            return
        began_s = self._clock.monotonic()
        received, self._undone = self._undone, []
        self._handle(received, began_s)

    @property
    def _is_ending(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _mark_partial(self, is_new: bool) -> None:
        """Store the begin of an unfinished frame, and ask for room for a large one before more of it is read."""
        pending_bytes = self.pending_bytes
        if is_new or not self._is_partial:
            self.partial_since = self.last_read
        self._is_partial = pending_bytes > 0
        if pending_bytes > LARGE_FRAME_BYTES:
            self._set_stop_reason(_ROOM, not self._budget.room_for(self, self._wire.frame_bytes))
        else:
            self._budget.free_frame(self)
            self._set_stop_reason(_ROOM, False)

    def _write_out(self) -> None:
        if self._transport is None or self.closed or self.is_backed_up:
            return
        max_bytes = LEAST_TURN_BYTES
        if self._out_bytes > max_bytes:
            max_bytes = self._share.bytes_of_one(self._limits.unsent_bytes)
        if self._out_bytes <= max_bytes:
            super()._write_out()
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
        super()._send(piece)
        if self.unread_bytes > NOTED_BYTES:
            self._loop.call_soon(self._note_unread)  # uvloop writes only at the end of this turn

    def _note_unread(self) -> None:
        if self.unread_bytes > NOTED_BYTES:
            self._budget.add_unread(self)

    def _post(self, request: Request[Any], body: bytes, waiter: RequestInFlight | None, is_alone: bool = False) -> None:
        super()._post(request, body, waiter, is_alone)
        if self._is_paused:
            self._regulate()

    def _set_stop_reason(self, reason: int, is_set: bool) -> None:
        self._stop_reasons = self._stop_reasons | reason if is_set else self._stop_reasons & ~reason
        self._regulate()

    def _regulate(self) -> None:
        if self._transport is None or self._is_ending:
            return
        must_read = self._wire.in_flight and not (
            self._wire.has_more and self.unhandled_bytes > _MAX_WHOLE_FRAMES_BYTES
        )
        if must_read:
            is_paused = self._stop_reasons & (_ROOM | HELD) != 0
        else:
            is_paused = self._stop_reasons != 0 or self.is_backed_up
        if is_paused and not self._is_paused:
            self._transport.pause_reading()
        elif self._is_paused and not is_paused:
            self._transport.resume_reading()
        self._is_paused = is_paused
