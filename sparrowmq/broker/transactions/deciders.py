"""The accounts that may end a transaction, and that may be asked about it.

    the half message's owner                  with PUB of its topic
    another account of the producer group     no, unless it is an administrator, or the owner's account was deleted;
                                              then with PUB of the topic
    no account                                yes: access control is off, or the address needs no permissions

A half message without an owner is of a time without access control, or of such an address. Each account with PUB of its
topic may end it. An administrator may end the transactions of others, but is not asked about them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sparrowmq.errors import AccessDenied
from sparrowmq.remoting.ownership import may_act_for
from sparrowmq.remoting.peer import Peer

# Whether an account, by its access key, may send to a topic; None if there is no such account.
MaySend: TypeAlias = Callable[[str, str], bool | None]


class Deciders:
    """Decides by the accounts of the broker."""

    def __init__(self, may_send: MaySend) -> None:
        self._may_send = may_send

    def may_be_asked(self, account: str | None, owner: str | None, topic: str) -> bool:
        """Whether a producer of an account may be asked about a message to a topic. The question contains it."""
        if account is None:
            return True
        return bool(self._may_send(account, topic)) and (account == owner or self._is_free(owner, topic))

    def check(self, peer: Peer, owner: str | None, topic: str) -> None:
        """Check that the account of the current request may end a transaction. Raises: AccessDenied."""
        principal = peer.principal
        if principal is None:
            return
        if not self._may_send(principal.access_key, topic):
            raise AccessDenied(f"No default permission for topic:{topic}: a transaction that sends to it needs PUB")
        if not (may_act_for(peer, owner) or self._is_free(owner, topic)):
            raise AccessDenied(
                f"the transaction was begun by another account than accessKey={principal.access_key}; end it with the "
                "account that sent its half message"
            )

    def _is_free(self, owner: str | None, topic: str) -> bool:
        return owner is None or self._may_send(owner, topic) is None
