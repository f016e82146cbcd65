"""A listening socket. A server has one, or several that share its sessions and limits."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol

from sparrowmq.errors import ConfigError

# The event loop accepts, begins a task that creates the transport, and calls `connection_made`: a turn for each.
_TURNS_TO_BEGIN: Final = 4
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


class Guest(Protocol):
    """A connection that a door accepted."""

    def close(self) -> None:
        """End the connection."""


class Door:
    """One listen address.

    Args:
        setting: the setting to change when the address cannot be used.
    Attributes:
        port: the real port once it is bound.
    """

    def __init__(self, host: str, port: int, setting: str = "listenPort") -> None:
        self.host = host
        self.port = port
        self._setting = setting
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def bind(self) -> None:
        """Bind the port without listening yet; port 0 takes a free one. Does nothing if the port is bound already.

        Raises: ConfigError, the address cannot be used.
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
            raise self._refused(error, f"; {advice}") from error
        self.port = self._socket.getsockname()[1]

    async def open(self, make: Callable[[], Any], backlog: int) -> None:
        """Listen, after `bind` if it was not called; `make` creates the protocol of a connection.

        Raises: ConfigError, as `bind`.
        """
        self.bind()
        assert self._socket is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(make, sock=self._socket, backlog=backlog)
        except OSError as error:
            self.release()
            raise self._refused(error) from error

    async def serve(
        self,
        make: Callable[[], Any],
        backlog: int,
        guests: Collection[Guest],
        opened: Callable[[], object] = lambda: None,
    ) -> None:
        """Listen until cancelled, and then close the connections in `guests`. `opened` is called once it listens.

        Raises: ConfigError, as `bind`.
        """
        await self.open(make, backlog)
        try:
            opened()
            await asyncio.get_running_loop().create_future()
        finally:
            await self.all_begun()
            self.close()
            for guest in list(guests):
                guest.close()
            await self.closed()

    def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
        else:
            self.release()

    async def all_begun(self) -> None:
        """Accept no more connections, and let those begin that were accepted.

        Otherwise one of them begins after all others were ended, and the peer stays connected to a server that is gone.
        """
        if self._server is None or self._socket is None or self._socket.fileno() < 0:
            return
        with suppress(NotImplementedError):  # a loop that accepts in another way
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        for _ in range(_TURNS_TO_BEGIN):
            await asyncio.sleep(0)

    async def closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()
        self._server = None
        self._socket = None

    def release(self) -> None:
        """Release a port that is bound but not listening."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _refused(self, error: OSError, rest: str = "") -> ConfigError:
        return ConfigError(f"cannot listen on {self.host}:{self.port} ({error.strerror or error}){rest}")
