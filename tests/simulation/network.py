"""The simulated network: TCP connections between hosts, as transports of asyncio.

latency     each piece arrives a little later, and in order
cut         in one direction: pieces wait, as TCP sends them again, and arrive some time after the cut ends
kill        the system of the host ends the connections of the process: the peers see it
power       the host is silent; what arrives after its next start is answered with a reset. What a slow link or a
            cut still delays of its own pieces is lost, as no system sends it again
reset       a connection ends at both sides, and what was under way is lost
vanish      nothing of a connection arrives any more, and no side hears of it, as when a firewall forgets it

A side that gets no acknowledgement ends the connection after a quarter of an hour, or after its TCP_USER_TIMEOUT.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.simulation.schedule import ProcessLoop, Scheduler

Address = tuple[str, int]
_WINDOW: Final = 256 << 10  # bytes that a system takes for a reader that does not read
_READ: Final = 256 << 10
_FIRST_PORT: Final = 20_000
_LAST_PORT: Final = 65_535
_GIVES_UP_S: Final = 924.6  # Linux, with 15 retries
_HANDSHAKE_TRIES: Final = 6  # a second, then two, four, ... apart
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class Piece(NamedTuple):
    """A part of what one end sends: its kind is "data", "fin" or "rst".

    Attributes:
        power_cuts: those of the sender's host before.
        is_late: whether a slow link delays it.
    """

    kind: str
    content: bytes
    power_cuts: int
    is_late: bool


class Network:
    """All hosts' connections.

    Attributes:
        cut: the directions (from, to) in which nothing arrives.
        slow_s: by direction, what is added to each latency.
        is_up: whether a host has power.
        power_cuts: how often each host has lost its power.
    """

    def __init__(self, scheduler: Scheduler, is_up: Callable[[str], bool]) -> None:
        self.scheduler = scheduler
        self.cut: dict[tuple[str, str], bool] = {}
        self.slow_s: dict[tuple[str, str], float] = {}
        self.is_up = is_up
        self.listening: dict[Address, Socket] = {}
        self.power_cuts = Counter[str]()
        self._bound: dict[Address, Socket] = {}
        self._ends: dict[ProcessLoop, dict[Transport, None]] = {}
        self._ports = _FIRST_PORT
        self._serial = 0

    def socket_of(self, owner: Any) -> Socket:
        """A socket of a process."""
        return Socket(self, owner)

    def latency(self, source: str, target: str) -> float:
        """How long a piece takes now."""
        if source == target:
            return 20e-6
        usual = 150e-6 * (1 + self.scheduler.rng.random())
        return usual + self.slow_s.get((source, target), 0.0) * (0.5 + self.scheduler.rng.random())

    def free_port(self) -> int:
        """A port that no socket has had lately."""
        self._ports = self._ports + 1 if self._ports < _LAST_PORT else _FIRST_PORT
        return self._ports

    def next_serial(self) -> int:
        """The number of a new connection's end."""
        self._serial += 1
        return self._serial

    def bind(self, socket: Socket, address: Address) -> None:
        """Raises: OSError, the port is taken."""
        if address in self._bound:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._bound[address] = socket

    def release(self, socket: Socket) -> None:
        """Free a socket's port."""
        for table in (self._bound, self.listening):
            for address in [address for address, each in table.items() if each is socket]:
                del table[address]

    def note_end(self, end: Transport) -> None:
        """Know an end of a connection, by its process."""
        self._ends.setdefault(end.loop, {})[end] = None

    def forget_end(self, end: Transport) -> None:
        """Forget an end that has ended."""
        self._ends.get(end.loop, {}).pop(end, None)

    def ends(self) -> list[Transport]:
        """All ends of connections that live."""
        return [end for ends in self._ends.values() for end in ends]

    def killed(self, loop: ProcessLoop, *, power: bool) -> None:
        """End the connections and free the ports of a process that died."""
        for bound in [bound for bound in self._bound.values() if bound.owner is loop.owner]:
            self.release(bound)
        for end in list(self._ends.pop(loop, {})):
            end.is_lost = True
            if not power:
                end.say("rst" if end.inbox or self.scheduler.rng.random() < 0.3 else "fin", b"")

    def booted(self, host: str) -> None:
        """Answer with resets what arrives for connections from before the host's start."""
        for end in self.ends():
            if end.remote[0] == host and end.peer.is_lost and end.is_owed:
                end.is_owed = False
                self.scheduler.after(self.scheduler.rng.random(), end.reset)

    def heal(self, source: str, target: str) -> None:
        """End a cut: what waited arrives within some seconds, in order."""
        if self.cut.pop((source, target), None) is None:
            return
        ends = self.ends()
        for end in [*ends, *(end.peer for end in ends if end.peer.is_lost)]:
            if end.held and (end.remote[0], end.local[0]) == (source, target):
                self.scheduler.after(self.scheduler.rng.random() * 2.0, end.take_held)

    async def connected(self, loop: ProcessLoop, host: str, port: int) -> Transport:
        """The client's end of a new connection. Raises: OSError."""
        source = loop.owner.host.ip
        target = source if host in ("127.0.0.1", "localhost") else host
        future: asyncio.Future[Transport] = loop.create_future()
        self._knock(loop, future, (source, self.free_port()), (target, port), 0)
        return await future

    def _knock(
        self,
        loop: ProcessLoop,
        future: asyncio.Future[Transport],
        local: Address,
        remote: Address,
        tries: int,
    ) -> None:
        arrival = self.latency(local[0], remote[0])
        self.scheduler.after(arrival, lambda: self._arrive(loop, future, local, remote, tries))

    def _arrive(
        self,
        loop: ProcessLoop,
        future: asyncio.Future[Transport],
        local: Address,
        remote: Address,
        tries: int,
    ) -> None:
        there, back = (local[0], remote[0]), (remote[0], local[0])
        if loop.is_dead or future.done():
            return
        if there in self.cut or back in self.cut or not self.is_up(remote[0]):
            if tries < _HANDSHAKE_TRIES:
                self.scheduler.after(2.0**tries, lambda: self._knock(loop, future, local, remote, tries + 1))
            else:
                loop.call_soon(_fail, future, OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            return
        listener = self.listening.get(remote) or self.listening.get((remote[0], 0))
        after = self.latency(*back)
        if listener is None:
            error = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            self.scheduler.after(after, lambda: loop.call_soon(_fail, future, error))
            return
        ours = Transport(self, loop, local, remote)
        theirs = Transport(self, listener.owner.loop, remote, local)
        ours.peer, theirs.peer = theirs, ours
        theirs.last_arrival = self.scheduler.now + after
        theirs.loop.call_soon(_accept, theirs, listener.factory)
        self.scheduler.after(after, lambda: loop.call_soon(_succeed, future, ours))


def _fail(future: asyncio.Future[Transport], error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


def _succeed(future: asyncio.Future[Transport], end: Transport) -> None:
    if future.done():
        end.abort()
    else:
        future.set_result(end)


def _accept(end: Transport, factory: Any) -> None:
    if not end.is_lost:
        end.begin(factory())


class Socket:
    """A listening socket, and the server that asyncio makes of it."""

    def __init__(self, network: Network, owner: Any) -> None:
        self.owner = owner
        self.factory: Any = None
        self._network = network
        self._address: Address = (owner.host.ip, 0)

    def setsockopt(self, *_: Any) -> None:
        pass

    def bind(self, address: Any) -> None:
        port = address[1] or self._network.free_port()
        self._address = (self.owner.host.ip, port)
        self._network.bind(self, self._address)

    def fileno(self) -> int:
        return -1 if self.factory is None else _FIRST_PORT

    def getsockname(self) -> Address:
        return self._address

    def listen(self, factory: Any) -> Socket:
        self.factory = factory
        self._network.listening[self._address] = self
        return self

    def close(self) -> None:
        self._network.release(self)

    async def wait_closed(self) -> None:
        pass


class SocketModule:
    """The part of the module `socket` that a door uses; sockets are of the process that runs."""

    SOCK_STREAM, AI_PASSIVE, SOL_SOCKET, SO_REUSEADDR = 1, 1, 1, 2

    def __init__(self, network: Network) -> None:
        self._network = network

    def getaddrinfo(self, host: str, port: int, **_: Any) -> list[tuple[int, int, int, str, Address]]:
        return [(2, 1, 6, "", (host, port))]

    def socket(self, *_: Any) -> Socket:
        loop = self._network.scheduler.current
        assert loop is not None, "a socket is made by a process"
        return self._network.socket_of(loop.owner)


class Options:
    """The socket of a connection, as far as its options matter."""

    def __init__(self, end: Transport) -> None:
        self._end = end

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT):
            self._end.gives_up_s = value / 1000


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, loop: ProcessLoop, local: Address, remote: Address) -> None:
        super().__init__({"peername": remote, "sockname": local, "socket": Options(self)})
        self.loop = loop
        self.local = local
        self.remote = remote
        self.peer: Transport = self
        self.inbox = bytearray()
        self.held: deque[Piece] = deque()
        self._has_gap = False  # a piece was lost, so no later one can be read
        self.is_lost = False
        self.is_owed = False  # the peer's host lost its power, and something was sent to it since
        self.has_vanished = False
        self.gives_up_s = _GIVES_UP_S
        self._unacknowledged: float | None = None  # since when
        self.last_arrival = 0.0
        self._network = network
        self._serial = network.next_serial()
        self._protocol: Any = None
        self._is_closing = False
        self._is_reading = True
        self._read_due = False
        self._at_eof = False
        self._told_eof = False
        self._unread = 0  # bytes that the peer has not read
        self._high, self._low = 64 << 10, 16 << 10
        self._is_full = False
        network.note_end(self)

    def __hash__(self) -> int:
        return self._serial

    def begin(self, protocol: Any) -> None:
        """Hand the connection to its protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._read_soon()

    # asyncio's side ---------------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._read_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread - _WINDOW)

    def write(self, data: Any) -> None:
        if self.is_lost or self._is_closing or not data or self.loop.is_dead:
            return
        content = bytes(data)
        self._unread += len(content)
        self.say("data", content)
        if not self._is_full and self.get_write_buffer_size() > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if self._is_closing or self.is_lost:
            return
        self._is_closing = True
        self._is_reading = False
        self.say("fin", b"")
        self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if self.is_lost or self.loop.is_dead:
            return
        self._is_closing = True
        self._is_reading = False
        self.say("rst", b"")
        self.loop.call_soon(self._lose, None)

    # The network's side -----------------------------------------------------------------------------------------------

    def say(self, kind: str, content: bytes) -> None:
        """Send a piece."""
        network, scheduler = self._network, self._network.scheduler
        arrival = scheduler.now + network.latency(self.local[0], self.remote[0]) + len(content) / 100e6
        self.last_arrival = max(self.last_arrival, arrival)
        peer, is_late = self.peer, (self.local[0], self.remote[0]) in network.slow_s
        piece = Piece(kind, content, network.power_cuts[self.local[0]], is_late)
        scheduler.at(self.last_arrival, lambda: peer.arrived(piece))

    def arrived(self, piece: Piece) -> None:
        """Take a piece, unless the network is cut."""
        network = self._network
        if self.has_vanished:
            self.peer.lacks_answer()
        elif self.held or (self.remote[0], self.local[0]) in network.cut:
            self.held.append(piece)
            self.peer.lacks_answer()
        else:
            self._take_in_order(piece, piece.is_late)

    def _take_in_order(self, piece: Piece, was_delayed: bool) -> None:
        """Take a piece, unless it was still under way when its sender lost its power.

        After a gap only a reset counts, with which a system answers for a connection that it does not know.
        """
        if was_delayed and piece.power_cuts != self._network.power_cuts[self.remote[0]]:
            self._has_gap = True
        elif not self._has_gap or piece.kind == "rst":
            self._take(piece.kind, piece.content)

    def take_held(self) -> None:
        """Take what waited for the end of a cut."""
        while self.held and (self.remote[0], self.local[0]) not in self._network.cut:
            self._take_in_order(self.held.popleft(), was_delayed=True)

    def vanish(self) -> None:
        """Let nothing arrive any more, at either side."""
        self.has_vanished = self.peer.has_vanished = True

    def lacks_answer(self) -> None:
        """Note that the peer's system does not acknowledge what was sent."""
        if self._unacknowledged is None:
            self._unacknowledged = now = self._network.scheduler.now
            self._network.scheduler.after(self.gives_up_s, lambda: self._give_up(now))

    def _give_up(self, since: float) -> None:
        if self._unacknowledged == since:
            error = TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self.loop.call_soon(self._lose, error)

    def reset(self) -> None:
        """End at once, with an error."""
        self._take("rst", b"")

    def _take(self, kind: str, content: bytes) -> None:
        if not self._network.is_up(self.local[0]):
            self.peer.is_owed = True
            self.peer.lacks_answer()
            return
        self.peer._unacknowledged = None
        if self.is_lost:
            if kind != "rst" and not self.peer.is_lost:
                self.say("rst", b"")
            return
        if kind == "data":
            text = f"{self.remote[0]}:{self.remote[1]}>{self.local[0]}:{self.local[1]} {len(content)}"
            self._network.scheduler.note(text, is_small=True)
            self.inbox += content
            self._read_soon()
        elif kind == "fin":
            self._at_eof = True
            self._read_soon()
        else:
            self.inbox.clear()
            error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self.loop.call_soon(self._lose, error)

    def _read_soon(self) -> None:
        if self._read_due or self._protocol is None or not self._is_reading or self.is_lost:
            return
        if self.inbox or (self._at_eof and not self._told_eof):
            self._read_due = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_due = False
        if self.is_lost or not self._is_reading or self._protocol is None:
            return
        if self.inbox:
            content = bytes(self.inbox[:_READ])
            del self.inbox[: len(content)]
            self.peer.was_read(len(content))
            try:
                self._protocol.data_received(content)
            except Exception as error:  # as asyncio's transports do
                self.loop.call_exception_handler({"message": "data_received failed", "exception": error})
                self.say("rst", b"")
                self._lose(error)
        elif self._at_eof:
            self._told_eof = True
            if not self._protocol.eof_received():
                self.close()
        self._read_soon()

    def was_read(self, size: int) -> None:
        """Note that the peer has read something."""
        self._unread -= size
        if self._is_full and self.get_write_buffer_size() <= self._low and not self.is_lost:
            self._is_full = False
            self.loop.call_soon(self._protocol.resume_writing)

    def _lose(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._is_closing = True
        self._network.forget_end(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
