"""Owners: the account that a writer, a client id, a producer group, a lock or a transaction belongs to.

    owner_of(peer)              the access key of the account that signed the current request, or None
    may_act_for(peer, owner)    whether the peer may use something with this owner
    may_take_over(peer, owner)  the same, or the owner's account was deleted: for state that outlives a key

An owner is an access key as text, so it can be kept in files. An owner is None without access control, and for an
address that needs no signature. Every client may use things without an owner. A peer without a principal may act for
every owner: access control is off, or the peer's address needs no permissions.
"""

from __future__ import annotations

from typing import Protocol

from sparrowmq.remoting.peer import Principal


class Signer(Protocol):
    """A peer, as owners see it (remoting/peer.py)."""

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
    """As `may_act_for`, but any account may replace an owner whose account is in no account file any more.

    So saved state survives a change of access keys. Ask only after the account's permissions were checked.
    """
    if may_act_for(peer, owner):
        return True
    principal = peer.principal
    return principal is not None and owner not in principal.colleagues
