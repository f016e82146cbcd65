"""The memory that all peers of a server may occupy together: unfinished frames, waiting requests, and unread answers.

Each connection has its own limits (`SessionLimits`), which a thousand connections multiply. So they share:

    frames     A frame above LARGE_FRAME_BYTES asks for room for its whole size before more of it is read. With room,
               a connection can finish its frame without waiting for others. Without room the server does not read
               from it, and keeps only the one chunk that arrived. While other frames wait, a frame that comes
               more slowly than FAIR_RATE loses its room and its connection.
    bodies     A request that waits keeps its body. When all of them together have more than `waiting_bytes`, no more is
               read from a connection until its own requests are handled.
    answers    A connection whose peer does not read occupies some hundred kilobytes. When all of them together
               occupy more than `unread_bytes`, the one that has not read for longest is ended. Connections with
               more than NOTED_BYTES count, also those that may get more answers.

    a turn     The answers of one turn of the loop are limited too (turn_share.py).

Ordinary messages do not need any of this: they arrive whole, and their answers are small and read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.wire.frame import FrameLimits
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.turn_share import TURN_BYTES, TurnShare

log = logging.getLogger(__name__)

FAIR_RATE: Final = 256 * 1024  # bytes/s of a frame while others wait for room
NOTED_BYTES: Final = 16 * 1024  # of answers in front of a socket
READ_BYTES: Final = 64 * 1024  # that a peer must take while its answers wait, to count as one that reads
GRACE_S: Final = 1.0  # before that rate is checked, and between two checks


@dataclass(frozen=True)
class SessionLimits:
    """The memory that one peer may occupy.

    Attributes:
        frame: sizes of frames.
        waiting_requests: its requests that may wait for their answer (long polls, syncs) before reading stops.
        waiting_bytes: of the bodies of these requests.
        unsent_bytes: answers that it may leave unread before reading stops. One turn of the loop also makes at most so
            many bytes of answers for it, and hands them to the socket, to leave time for other connections.
    """

    frame: FrameLimits = field(default_factory=FrameLimits)
    waiting_requests: int = 10_000
    waiting_bytes: int = 4 * 1024 * 1024
    unsent_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class BudgetLimits:
    """The limits of one server.

    Attributes:
        frame_bytes: for large unfinished frames with room; and as much again for the received bytes of those that wait
            for room.
        waiting_bytes: for the bodies of requests that wait.
        unread_bytes: for answers to peers that do not read, and for requests after them.
        turn_bytes: for the answers of one turn of the loop.
    """

    frame_bytes: int = 64 * 1024 * 1024
    waiting_bytes: int = 64 * 1024 * 1024
    unread_bytes: int = 128 * 1024 * 1024
    turn_bytes: int = TURN_BYTES


class Holder(Protocol):
    """A connection, as the budget sees it."""

    address: str
    sent_bytes: int

    @property
    def unread_bytes(self) -> int:
        """The bytes of `sent_bytes` that wait for the peer to read."""

    @property
    def unhandled_bytes(self) -> int:
        """The received bytes that are not handled yet."""

    @property
    def pending_bytes(self) -> int:
        """The received bytes of its unfinished frame."""

    def abort(self) -> None:
        """End the connection at once."""

    def room_made(self) -> None:
        """Continue reading."""


@dataclass(slots=True)
class _Frame:
    size: int
    since: float
    held_bytes: int


@dataclass(slots=True)
class _Unread:
    size: int
    taken_bytes: int  # by the peer, when it was noted


class Budget:
    """The room of one server.

    Attributes:
        turn: the answers of this turn of the loop.
        lines: the log lines that peers cause.
    """

    def __init__(self, clock: Clock, limits: BudgetLimits | None = None) -> None:
        self.lines = LogLimit(clock)
        self._clock = clock
        self._limits = limits or BudgetLimits()
        self.turn = TurnShare(self._limits.turn_bytes)
        self._frames: dict[Holder, _Frame] = {}
        self._frame_bytes = 0
        self._waiting: dict[Holder, _Frame] = {}
        self._waiting_bytes = 0
        self._body_bytes = 0
        self._check_due = False
        self._unread: dict[Holder, _Unread] = {}  # the connection that has not read for longest comes first
        self._unread_bytes = 0

    def room_for(self, holder: Holder, frame_bytes: int) -> bool:
        """Ask for room for the unfinished frame of a connection. Without room the caller reads no more of it.

        A later `room_made` reports room. Each connection has one unfinished frame: another size means another frame,
        after the previous one is whole.
        """
        known = self._frames.get(holder)
        if known is not None and known.size == frame_bytes:
            return True
        self.frame_ended(holder)
        frame = _Frame(frame_bytes, self._clock.monotonic(), holder.pending_bytes)
        if not self._waiting and self._fits(frame):
            self._grant(holder, frame)
            return True
        if self._waiting_bytes + frame.held_bytes > self._limits.frame_bytes:
            text = "ending %s: too much waits for room for unfinished frames"
            self.lines.log(log, logging.WARNING, text, holder.address)
            holder.abort()
            return False
        self._waiting[holder] = frame
        self._waiting_bytes += frame.held_bytes
        self._grant_waiting()
        self._check_soon()
        return holder in self._frames

    def frame_ended(self, holder: Holder) -> None:
        """Free the room of a frame that is whole, or whose connection has ended."""
        frame = self._frames.pop(holder, None)
        if frame is not None:
            self._frame_bytes -= frame.size
            self._grant_waiting()
            return
        frame = self._waiting.pop(holder, None)
        if frame is not None:
            self._waiting_bytes -= frame.held_bytes

    def _fits(self, frame: _Frame) -> bool:
        return not self._frames or self._frame_bytes + frame.size <= self._limits.frame_bytes

    def _grant(self, holder: Holder, frame: _Frame) -> None:
        frame.since = self._clock.monotonic()
        self._frames[holder] = frame
        self._frame_bytes += frame.size

    def _grant_waiting(self) -> None:
        """Give room to all frames that fit, in their order: a small frame need not wait for a large one."""
        for holder, frame in list(self._waiting.items()):
            if self._fits(frame):
                del self._waiting[holder]
                self._waiting_bytes -= frame.held_bytes
                self._grant(holder, frame)
                holder.room_made()

    def _check_soon(self) -> None:
        if not self._check_due:
            self._check_due = True
            self._clock.age(0)  # notice pauses from now on
            self._clock.call_later(GRACE_S, self._check)

    def _check(self) -> None:
        self._check_due = False
        if not self._waiting:
            return
        for holder, frame in list(self._frames.items()):
            age_s = self._clock.age(frame.since)
            got_bytes = holder.pending_bytes - frame.held_bytes
            if age_s >= GRACE_S and got_bytes < age_s * FAIR_RATE:
                self.lines.log(
                    log,
                    logging.WARNING,
                    "ending %s: %d bytes in %.0f s of a frame of %d, and others wait for room",
                    holder.address,
                    got_bytes,
                    age_s,
                    frame.size,
                )
                holder.abort()
        self._check_soon()

    def hold(self, body_bytes: int) -> bool:
        """Count bodies of requests that wait; fewer, if negative. Returns whether there is room for more of them."""
        self._body_bytes += body_bytes
        return self.has_room

    @property
    def has_room(self) -> bool:
        """Whether there is room for more bodies of requests that wait."""
        return self._body_bytes <= self._limits.waiting_bytes

    def unread(self, holder: Holder) -> None:
        """Note the answers that wait for a peer to read. A peer that is noted already keeps its place."""
        self._note(holder)
        while self._unread_bytes > self._limits.unread_bytes and len(self._unread) > 1:
            self._look_at(next(iter(self._unread)))

    def _note(self, holder: Holder) -> None:
        noted = self._unread.get(holder)
        if noted is None:
            noted = self._unread[holder] = _Unread(0, holder.sent_bytes - holder.unread_bytes)
        change = holder.unread_bytes + holder.unhandled_bytes - noted.size
        noted.size += change
        self._unread_bytes += change

    def _look_at(self, holder: Holder) -> None:
        """Note a peer again if it has read meanwhile, or else end its connection."""
        noted, count = self._unread[holder], len(self._unread)
        self.read(holder)
        if holder.sent_bytes - holder.unread_bytes >= noted.taken_bytes + READ_BYTES:
            if holder.unread_bytes > NOTED_BYTES:
                self._note(holder)
            return
        text = "ending %s: %d peers do not read their answers, this one for longest"
        self.lines.log(log, logging.WARNING, text, holder.address, count)
        holder.abort()

    def read(self, holder: Holder) -> None:
        """Note that a peer has read, or its connection has ended."""
        noted = self._unread.pop(holder, None)
        if noted is not None:
            self._unread_bytes -= noted.size
