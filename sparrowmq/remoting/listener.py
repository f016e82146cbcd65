"""A listening socket, and the connections that it accepts. A server has one, or several that share its sessions.

A server that does not check accounts starts on a public address only when its operator says so (`check_not_public`).
Unlike Java, whose servers listen on every address.

The number of connections is limited (`LimitedSessions`). Above the limit a new one takes the place of the oldest
stranger: one that has not asked for anything yet.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from sparrowmq.core.stats import RecentEvents
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock

# The event loop accepts, begins a task that creates the transport, and calls `connection_made`: a turn for each.
_TURNS_TO_BEGIN: Final = 4
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)

EVERYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"
S = TypeVar("S")


class Closable(Protocol):
    """A connection that a door accepted."""

    def close(self) -> None:
        """End the connection."""


class Listener:
    """One listen address. `setting` is to be changed if it cannot be used."""

    def __init__(self, host: str, port: int, setting: str = "listenPort") -> None:
        self.host = host
        self.port = port  # the real port once it is bound
        self._setting = setting
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def bind(self) -> None:
        """Bind the port without listening yet; port 0 takes a free one. Raises: ConfigError, the address cannot be
        used.
        """
        if self._socket is not None:
            return
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host.strip("[]"), self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
        except OSError as error:
            self.release()
            advice = f"stop the program that uses the port, or choose another {self._setting} or address"
            if error.errno in _NO_DESCRIPTOR:
                advice = "raise `ulimit -n` (LimitNOFILE= of systemd)"
            raise self._listen_error(error, f"; {advice}") from error
        self.port = self._socket.getsockname()[1]

    async def open(self, make_protocol: Callable[[], Any], backlog: int) -> None:
        """Listen, after `bind` if it was not called. Raises: ConfigError, as `bind`."""
        self.bind()
        assert self._socket is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                make_protocol, sock=self._socket, backlog=backlog
            )
        except OSError as error:
            self.release()
            raise self._listen_error(error) from error

    async def serve(
        self,
        make_protocol: Callable[[], Any],
        backlog: int,
        connections: Collection[Closable],
        on_open: Callable[[], object] = lambda: None,
    ) -> None:
        """Listen until cancelled, and then close the `connections`. `on_open` is called once it listens. Raises:
        ConfigError.
        """
        await self.open(make_protocol, backlog)
        try:
            on_open()
            await asyncio.get_running_loop().create_future()
        finally:
            await self.begin_accepted()
            self.close()
            for connection in list(connections):
                connection.close()
            await self.wait_until_closed()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        else:
            self.release()

    async def begin_accepted(self) -> None:
        """Accept no more connections, and let those begin that were accepted: otherwise one of them would begin after
        all others were ended, and stay connected to a server that is gone.
        """
        if self._server is None or self._socket is None or self._socket.fileno() < 0:
            return
        with suppress(NotImplementedError):  # a loop that accepts in another way
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        for _ in range(_TURNS_TO_BEGIN):
            await asyncio.sleep(0)

    async def wait_until_closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()
        self._server = None
        self._socket = None

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _listen_error(self, error: OSError, advice: str = "") -> ConfigError:
        return ConfigError(f"cannot listen on {self.host}:{self.port} ({error.strerror or error}){advice}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. All names except localhost count as public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_not_public(host: str, insecure: bool) -> None:
    """Refuse a public address, unless `insecure` is set: the operator allows it, or the server checks its peers.
    Raises: ConfigError, other machines would reach the server, and it would not check who they are.
    """
    if not is_loopback(host) and not insecure:
        raise ConfigError(
            f"listening on {host} would let everybody who reaches it read, write and delete. Give the server accounts "
            "(aclEnable=true; docs/operate/security.md), start with --insecure (or insecure=true) "
            "if the network is trusted, or listen on 127.0.0.1"
        )


class LimitedSessions(Generic[S]):
    """The connections of one port. Those that are not known asked for nothing yet. With `host_of`, `problem` says from
    where most of them come.
    """

    def __init__(
        self,
        max_sessions: int,
        clock: Clock,
        is_known: Callable[[S], bool],
        kind: str = "connections",
        host_of: Callable[[S], str] | None = None,
    ) -> None:
        # The live connections, the oldest first: the order of their ends does not depend on memory addresses.
        self.sessions: dict[S, None] = {}
        self._max_sessions = max_sessions
        self._is_known = is_known
        self._host_of = host_of
        self._kind = kind
        # Those that had asked for nothing when they were last looked at; the oldest first.
        self._strangers: dict[S, None] = {}
        self._limit_events = RecentEvents(clock)

    @property
    def problem(self) -> str:
        """Why connections are closed, or were within the last seconds; "" if there is room for more."""
        if len(self.sessions) < self._max_sessions:
            return self._limit_events.last
        text = f"{self._max_sessions} {self._kind} are open, which is the limit: others are closed"
        if self._host_of is None or not self.sessions:
            return text
        [(host, count)] = Counter(map(self._host_of, self.sessions)).most_common(1)
        return f"{text}; {count} of them come from {host}"

    def add(self, session: S) -> S | None:
        """Add a new connection. Return the one to end, if there are too many."""
        self.sessions[session] = None
        self._strangers[session] = None
        if len(self.sessions) <= self._max_sessions:
            return None
        self._limit_events.note(f"{self._kind} above {self._max_sessions} were closed a moment ago")
        return self._oldest_stranger()

    def discard(self, session: S) -> None:
        self.sessions.pop(session, None)
        self._strangers.pop(session, None)

    def _oldest_stranger(self) -> S:
        """Return the connection to end. The new one is the last of the strangers, so there is always one."""
        while True:
            session = next(iter(self._strangers))
            del self._strangers[session]
            if not self._is_known(session):
                return session
