"""Whoever asks, as handlers see it.

A `Session` is one; so is whatever else stands for a client, such as a test that asks a handler without a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)


class Principal(Protocol):
    """An account, as handlers see it."""

    is_admin: bool


class Peer(Protocol):
    """The other end of a conversation; two are equal only if they are the same.

    Attributes:
        address: `host:port`, to log and to show.
        host: the same as `hosts.pack` gives it.
        version: of its protocol, by its first request; 0 if that did not say.
        language: as Java names it, by its first request.
        principal: the account that signed the request at hand; a handler may ask, until it waits for something.
    """

    address: str
    host: bytes
    version: int
    language: str
    principal: Principal | None

    def call(
        self, request: Request[R], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> asyncio.Future[Response[R]]:
        """Ask it, and await the answer."""

    def tell(self, request: Request[Any], body: bytes = b"") -> None:
        """Send it a request that wants no answer."""

    def on_end(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(peer)` once when it has gone."""

    def close(self) -> None:
        """Part with it."""
