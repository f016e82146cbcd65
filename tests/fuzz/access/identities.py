"""Who sends requests."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.fuzz.access.judge import ALLOWED
from tests.fuzz.access.victim import ADMIN, OWNER, WHITE
from tests.fuzz.access.wire import Credentials

FORBIDDEN: Final = b"from an attacker"


class Identity(NamedTuple):
    """A sender of requests.

    Attributes:
        may: whether it may do everything that the generator asks for, so that nothing is judged.
        replays: it sends captured frames of the owner, with other codes.
        may_hear, may_send: whether it may consume the victim's topics, or send to `orders`.
    """

    name: str
    credentials: Credentials | None
    source: str = "127.0.0.1"
    may: bool = False
    replays: bool = False
    may_hear: bool = False
    may_send: bool = False

    @property
    def body(self) -> bytes:
        """The body of the messages that it sends."""
        return ALLOWED if self.may_send else FORBIDDEN

    @property
    def has_a_right(self) -> bool:
        """Whether it has a right on a topic of the victim, and so passes the first check."""
        return self.may_hear or self.may_send


IDENTITIES: Final = {
    identity.name: identity
    for identity in (
        Identity("nobody", None),
        Identity("unknown", Credentials("unknown-account", "unknown-secret")),
        Identity("forger", Credentials(OWNER.access_key, "not-the-secret")),
        Identity("denied", Credentials("denied-account", "denied-secret")),
        Identity("other", Credentials("other-account", "other-secret")),
        Identity("reader", Credentials("reader-account", "reader-secret")),
        Identity("subscriber", Credentials("subscriber-account", "subscriber-secret"), may_hear=True),
        Identity("publisher", Credentials("publisher-account", "publisher-secret"), may_send=True),
        Identity("replayer", None, replays=True),
        Identity("owner", OWNER, may=True),
        Identity("admin", ADMIN, may=True),
        Identity("white", None, WHITE, may=True),
    )
}
