"""With what a client shows who it is, and knows whom it talks to."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.wire.connection import Sign


@dataclass(frozen=True, slots=True)
class Credentials:
    """By which brokers with ACL know a user: each request is signed with the secret key, which never leaves here.

    Attributes:
        security_token: of a temporary account, if it is one.
    Raises:
        ConfigError: a key is empty.
    Source: SessionCredentials and AclClientRPCHook, Java 4.9.8.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"{name} of the credentials is empty or no text; give that of the broker's account"
                )

    def signer(self) -> Sign:
        """What signs the requests of a connection."""
        return signer(self.access_key, self.secret_key, self.security_token)


def tls_context(tls: bool | ssl.SSLContext) -> ssl.SSLContext | None:
    """How connections are encrypted; None when they are not.

    Args:
        tls: True trusts the certificates that this machine trusts, if they are for the address that is connected to.
    Raises:
        ConfigError: it is something else.
    """
    if tls is False:
        return None
    if tls is True:
        return ssl.create_default_context()
    if isinstance(tls, ssl.SSLContext):
        return tls
    raise ConfigError(
        f"tls={tls!r}: give True, or an ssl.SSLContext, which may trust certificates of your own"
    )
