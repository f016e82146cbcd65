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

All sockets that are readable at once belong to one turn of the loop. If four thousand clients pull 240 KB each in the
same moment, the turn would take seconds and most of a gigabyte. So it is limited too (`TurnShare`):

    time      A connection handles the requests that arrived together for at most BURST_S, and for less if others wait.
              After TURN_S each connection handles one request more. The rest waits for one of the next turns.
    answers   Once the answers of a turn have `turn_bytes` together, further requests wait too. Those with short
              answers, such as sends, do not wait.
    writes    If many connections have more answers than fit into one turn, each hands fewer bytes to its socket.

Connections that wait have their turns in the order in which they began to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final, Protocol

from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.wire.frame import FrameLimits
from sparrowmq.remoting.log_limit import LogLimit

log = logging.getLogger(__name__)

FAIR_RATE: Final = 256 * 1024  # bytes/s of a frame while others wait for room
NOTED_BYTES: Final = 16 * 1024  # answers that wait in front of a socket
READ_BYTES: Final = 64 * 1024  # that a peer must take while its answers wait, to count as one that reads
GRACE_S: Final = 1.0  # before that rate is checked, and between two checks
TURN_BYTES: Final = 4 * 1024 * 1024  # the answers of one turn to all connections
LEAST_TURN_BYTES: Final = 64 * 1024  # the answers of one turn to one connection
COUNTED_BYTES: Final = 2048  # shorter answers do not count
# With what the end of a turn adds, no step takes more than 5 ms.
BURST_S: Final = 0.002
TURN_S: Final = 0.004
LEAST_BURST_S: Final = 0.0002
# Every client sends these often, and waits for their short answers.
SHORT_ANSWERS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.HEART_BEAT,
    }
)


@dataclass(frozen=True)
class SessionLimits:
    """The memory that one peer may occupy."""

    frame: FrameLimits = field(default_factory=FrameLimits)  # sizes of frames
    # Its requests that may wait for their answer (long polls, syncs) before reading stops.
    waiting_requests: int = 10_000
    waiting_bytes: int = 4 * 1024 * 1024  # of the bodies of these requests
    # Answers that it may leave unread before reading stops. One turn of the loop also makes at most so many bytes of
    # answers for it, and hands them to the socket, to leave time for other connections.
    unsent_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class BudgetLimits:
    """The limits of one server."""

    # For large unfinished frames with room; and as much again for the received bytes of those that wait for room.
    frame_bytes: int = 64 * 1024 * 1024
    waiting_bytes: int = 64 * 1024 * 1024  # for the bodies of requests that wait
    unread_bytes: int = 128 * 1024 * 1024  # for answers to peers that do not read, and for requests after them
    turn_bytes: int = TURN_BYTES  # for the answers of one turn of the loop


class BudgetedConnection(Protocol):
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

    def on_room(self) -> None:
        """Continue reading."""


@dataclass(slots=True)
class _Frame:
    size: int
    since_s: float
    held_bytes: int


@dataclass(slots=True)
class _Unread:
    size: int
    taken_bytes: int  # what the peer had read when it was noted


class Budget:
    """The room of one server."""

    def __init__(self, clock: Clock, limits: BudgetLimits | None = None) -> None:
        self.log_limit = LogLimit(clock)  # the log lines that peers cause
        self._clock = clock
        self._limits = limits or BudgetLimits()
        self.turn = TurnShare(self._limits.turn_bytes)  # the answers of this turn of the loop
        self._frames: dict[BudgetedConnection, _Frame] = {}
        self._frame_bytes = 0
        self._waiting_frames: dict[BudgetedConnection, _Frame] = {}
        self._waiting_bytes = 0
        self._body_bytes = 0
        self._check_due = False
        self._unread: dict[BudgetedConnection, _Unread] = {}  # the connection that has not read for longest comes first
        self._unread_bytes = 0

    def room_for(self, connection: BudgetedConnection, frame_bytes: int) -> bool:
        """Ask for room for the unfinished frame of a connection. Without room the caller reads no more of it until
        `on_room`. Another size means another frame, after the previous one is whole.
        """
        granted = self._frames.get(connection)
        if granted is not None and granted.size == frame_bytes:
            return True
        self.free_frame(connection)
        frame = _Frame(frame_bytes, self._clock.monotonic(), connection.pending_bytes)
        if not self._waiting_frames and self._fits(frame):
            self._grant(connection, frame)
            return True
        if self._waiting_bytes + frame.held_bytes > self._limits.frame_bytes:
            text = "ending %s: too much waits for room for unfinished frames"
            self.log_limit.log(log, logging.WARNING, text, connection.address)
            connection.abort()
            return False
        self._waiting_frames[connection] = frame
        self._waiting_bytes += frame.held_bytes
        self._grant_waiting()
        self._check_soon()
        return connection in self._frames

    def free_frame(self, connection: BudgetedConnection) -> None:
        """Free the room of a frame that is whole, or whose connection has ended."""
        frame = self._frames.pop(connection, None)
        if frame is not None:
            self._frame_bytes -= frame.size
            self._grant_waiting()
            return
        frame = self._waiting_frames.pop(connection, None)
        if frame is not None:
            self._waiting_bytes -= frame.held_bytes

    def _fits(self, frame: _Frame) -> bool:
        return not self._frames or self._frame_bytes + frame.size <= self._limits.frame_bytes

    def _grant(self, connection: BudgetedConnection, frame: _Frame) -> None:
        frame.since_s = self._clock.monotonic()
        self._frames[connection] = frame
        self._frame_bytes += frame.size

    def _grant_waiting(self) -> None:
        """Give room to all frames that fit, in their order: a small frame need not wait for a large one."""
        for connection, frame in list(self._waiting_frames.items()):
            if self._fits(frame):
                del self._waiting_frames[connection]
                self._waiting_bytes -= frame.held_bytes
                self._grant(connection, frame)
                connection.on_room()

    def _check_soon(self) -> None:
        if not self._check_due:
            self._check_due = True
            self._clock.age(0)  # notice pauses from now on
            self._clock.call_later(GRACE_S, self._check)

    def _check(self) -> None:
        self._check_due = False
        if not self._waiting_frames:
            return
        for connection, frame in list(self._frames.items()):
            age_s = self._clock.age(frame.since_s)
            got_bytes = connection.pending_bytes - frame.held_bytes
            if age_s >= GRACE_S and got_bytes < age_s * FAIR_RATE:
                self.log_limit.log(
                    log,
                    logging.WARNING,
                    "ending %s: %d bytes in %.0f s of a frame of %d, and others wait for room",
                    connection.address,
                    got_bytes,
                    age_s,
                    frame.size,
                )
                connection.abort()
        self._check_soon()

    def hold(self, body_bytes: int) -> bool:
        """Count bodies of requests that wait; fewer, if negative. Returns whether there is room for more."""
        self._body_bytes += body_bytes
        return self.has_room

    @property
    def has_room(self) -> bool:
        return self._body_bytes <= self._limits.waiting_bytes

    def add_unread(self, connection: BudgetedConnection) -> None:
        """Note the answers that wait for a peer to read. A peer that is noted already keeps its place."""
        self._update_unread(connection)
        while self._unread_bytes > self._limits.unread_bytes and len(self._unread) > 1:
            self._check_reading(next(iter(self._unread)))

    def _update_unread(self, connection: BudgetedConnection) -> None:
        unread = self._unread.get(connection)
        if unread is None:
            unread = self._unread[connection] = _Unread(0, connection.sent_bytes - connection.unread_bytes)
        change = connection.unread_bytes + connection.unhandled_bytes - unread.size
        unread.size += change
        self._unread_bytes += change

    def _check_reading(self, connection: BudgetedConnection) -> None:
        """Note a peer again if it has read meanwhile, or else end its connection."""
        unread, count = self._unread[connection], len(self._unread)
        self.remove_unread(connection)
        if connection.sent_bytes - connection.unread_bytes >= unread.taken_bytes + READ_BYTES:
            if connection.unread_bytes > NOTED_BYTES:
                self._update_unread(connection)
            return
        text = "ending %s: %d peers do not read their answers, this one for longest"
        self.log_limit.log(log, logging.WARNING, text, connection.address, count)
        connection.abort()

    def remove_unread(self, connection: BudgetedConnection) -> None:
        unread = self._unread.pop(connection, None)
        if unread is not None:
            self._unread_bytes -= unread.size


class TurnWaiter(Protocol):
    """A connection with requests that wait for a turn."""

    def go_on(self) -> None:
        """Handle them, or wait again."""


class TurnShare:
    """The share of a turn that one connection gets."""

    def __init__(self, turn_bytes: int = TURN_BYTES) -> None:
        self.busy: set[TurnWaiter] = set()  # connections with requests that wait, or are not decoded yet
        self.is_spent = False  # whether this turn has made as many bytes of answers as it may
        self._turn_bytes = turn_bytes
        self._made_bytes = 0
        self._until = 0.0
        self._is_due = False
        self._waiters: dict[TurnWaiter, Callable[[], None]] = {}

    def bytes_of_one(self, max_bytes: int) -> int:
        """Return the bytes of answers that one connection makes, and hands to its socket, in one turn of the loop."""
        return min(max_bytes, max(LEAST_TURN_BYTES, self._turn_bytes // max(1, len(self.busy))))

    def share_end_s(self, began: float) -> float:
        """Return when a connection that began to read at `began` stops to handle requests."""
        if self._until == 0.0:
            self._until = began + TURN_S
            self._begin_next_soon()
        share = max(LEAST_BURST_S, min(BURST_S, TURN_S / (1 + len(self._waiters))))
        return min(began + share, self._until)

    def count_answer(self, answer_bytes: int) -> None:
        self._made_bytes += answer_bytes
        self.is_spent = self._made_bytes >= self._turn_bytes
        self._begin_next_soon()

    def wait(self, connection: TurnWaiter) -> None:
        """Call `connection.go_on()` in one of the next turns. A connection that waits already keeps its place."""
        self._waiters.setdefault(connection, connection.go_on)
        self._begin_next_soon()

    def forget(self, connection: TurnWaiter) -> None:
        self.busy.discard(connection)
        self._waiters.pop(connection, None)

    def _begin_next_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        """Call those who wait, as far as their time and answers fit into this turn."""
        self._is_due = self.is_spent = False
        self._made_bytes = 0
        self._until = 0.0
        end = perf_counter() + TURN_S
        for _ in range(len(self._waiters)):
            connection = next(iter(self._waiters), None)
            if connection is None or self.is_spent or perf_counter() > end:
                break
            self._waiters.pop(connection)()
        if self._waiters:
            self._begin_next_soon()
