"""A client, as handlers see it.

A `Session` is a peer. So is any other object that represents a client, such as a test that calls a handler without a
socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Any, Protocol, TypeVar

from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)


class Principal(Protocol):
    """An account, as handlers see it (auth/accounts.py). `ownership.py` says what it may do with things of others."""

    @property
    def access_key(self) -> str:
        """The name of the account."""

    @property
    def is_admin(self) -> bool:
        """Whether it may administrate."""

    @property
    def colleagues(self) -> Container[str]:
        """The access keys of all accounts, which include its own."""

    @property
    def may_publish(self) -> bool:
        """Whether it may send to any topic at all."""

    def may_from(self, host: bytes, resource: str, needed: int) -> bool:
        """Whether a peer with this `host` has a permission on a topic or retry topic in its name."""


class Peer(Protocol):
    """The other end of a connection. Two peers are equal only if they are the same object.

    Attributes:
        address: `host:port`, for logs and displays.
        host: the same as `hosts.pack` encodes it.
        version: of its protocol, from its first request; 0 if that request had none.
        language: Java's name of it, from its first request.
        certificate: the common name in its verified certificate; None without one.
        principal: the account that signed the current request; valid in a handler until the handler waits.
        is_linked: whether it is in this process (linked_session.py).
        closed: whether the connection has ended.
    """

    address: str
    host: bytes
    version: int
    language: str
    certificate: str | None
    principal: Principal | None
    is_linked: bool
    closed: bool

    def call(self, request: Request[R], body: bytes = b"", *, timeout_s: float = 3.0) -> asyncio.Future[Response[R]]:
        """Send a request, and await the answer."""

    def tell(self, request: Request[Any], body: bytes = b"") -> None:
        """Send a request that wants no answer."""

    def on_end(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(peer)` once when the connection has ended."""

    def close(self) -> None:
        """End the connection."""
