"""A client, as handlers see it.

A writer, a client id, a producer group, a lock or a transaction belongs to an account, its owner:

    owner_of(peer)              the access key of the account that signed the current request, or None
    may_act_for(peer, owner)    whether the peer may use something with this owner
    may_take_over(peer, owner)  the same, or the owner's account was deleted: for state that outlives a key

An owner is an access key as text, so it can be kept in files. It is None without access control, and for an address
that needs no signature; every client may use such things. A peer without a principal may act for every owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Any, Protocol, TypeVar

from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)


class Principal(Protocol):
    """An account, as handlers see it (auth/accounts.py)."""

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
    """The other end of a connection. Two peers are equal only if they are the same object."""

    address: str  # `host:port`, for logs and displays
    host: bytes  # the same as `hosts.pack` encodes it
    version: int  # of its protocol, from its first request; 0 if that request had none
    language: str  # Java's name of it, from its first request
    certificate: str | None  # the common name in its verified certificate; None without one
    # The account that signed the current request; valid in a handler until the handler waits.
    principal: Principal | None
    closed: bool  # whether the connection has ended

    def call(self, request: Request[R], body: bytes = b"", *, timeout_s: float = 3.0) -> asyncio.Future[Response[R]]:
        """Send a request, and await the answer."""

    def tell(self, request: Request[Any], body: bytes = b"") -> None:
        """Send a request that wants no answer."""

    def on_end(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(peer)` once when the connection has ended."""

    def close(self) -> None:
        """End the connection."""


class Signer(Protocol):
    """A peer, as owners see it."""

    @property
    def principal(self) -> Principal | None:
        """The account that signed the current request."""


def owner_of(peer: Signer) -> str | None:
    """The owner of things that the current request creates. Valid in a handler until the handler waits."""
    principal = peer.principal
    return None if principal is None else principal.access_key


def may_act_for(peer: Signer, owner: str | None) -> bool:
    """Whether the peer may use things of the owner. Valid in a handler until the handler waits."""
    if owner is None:
        return True
    principal = peer.principal
    return principal is None or principal.access_key == owner or principal.is_admin


def may_take_over(peer: Signer, owner: str | None) -> bool:
    """As `may_act_for`, but any account may replace an owner whose account is in no account file any more. So saved
    state survives a change of access keys. Ask only after the account's permissions were checked.
    """
    if may_act_for(peer, owner):
        return True
    principal = peer.principal
    return principal is not None and owner not in principal.colleagues
