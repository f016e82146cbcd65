"""Hooks of connections: the part of `client/hooks.py` that sees servers come and go, and the calls of it.

    connected ── disconnected ── reconnected ── disconnected ── ...        for each name server and broker

The client connects when it needs a server, and reconnects by itself. A server that hangs is connected until the
connection ends. Leaving the client is no loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Server:
    """The other end of a connection. `address` is as the client was given it, or as a name server names a broker.
    `name` is that of a broker; empty for a name server, and while no route names the broker.
    """

    address: str
    role: Literal["name server", "broker"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.role} {self.name or self.address}"


class ConnectionHooks:
    """Does nothing; override what you want."""

    def connected(self, server: Server) -> None:
        """The first connection to the server is open."""

    def disconnected(self, server: Server) -> None:
        """The connection to the server has ended, and not because the client was left."""

    def reconnected(self, server: Server) -> None:
        """Another connection to the server is open."""


class ConnectionHookCalls:
    """Calls the hooks of a client. `server_at` finds the server of an address."""

    def __init__(self, hooks: Sequence[ConnectionHooks], server_at: Callable[[str], Server]) -> None:
        self._hooks = hooks
        self._server_at = server_at
        self._connected_before: set[str] = set()

    def on_change(self, address: str, *, is_open: bool) -> None:
        """A connection has begun or ended."""
        server = self._server_at(address)
        is_known = address in self._connected_before
        self._connected_before.add(address)
        for hook in self._hooks:
            if not is_open:
                call = hook.disconnected
            else:
                call = hook.reconnected if is_known else hook.connected
            try:
                call(server)
            except Exception:
                log.exception("%r failed for %s", hook, server)
