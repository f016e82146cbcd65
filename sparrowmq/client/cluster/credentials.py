"""The credentials of a client, and the TLS settings of its connections."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from sparrowmq.client.arguments import check_text
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.wire.connection import Sign

Tls: TypeAlias = bool | ssl.SSLContext | Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's credentials at brokers with ACL. The secret key signs each request, and is never sent. A temporary
    account has a security token. Source: SessionCredentials and AclClientRPCHook, Java 4.9.8.
    Raises: ConfigError, a key is empty.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{name} of the credentials is empty or no text; give that of the broker's account")
        check_text("security_token", self.security_token, or_none=True)

    def _signer(self) -> Sign:
        return signer(self.access_key, self.secret_key, self.security_token)


def tls_context(tls: Tls) -> ssl.SSLContext | None:
    """Return the TLS context of connections; None if they are not encrypted.

    True trusts the certificates that this machine trusts, if they are for the address that is connected to. A path is
    that of a tls.properties file, whose settings `tls.client.*` count.
    Raises: ConfigError, it is something else, or a file cannot be used.
    """
    if tls is False:
        return None
    if tls is True:
        return ssl.create_default_context()
    if isinstance(tls, ssl.SSLContext):
        return tls
    if isinstance(tls, Path):
        # Imported here, because only programs with such a file need the reader of settings.
        from sparrowmq.remoting.tls.contexts import client_context
        from sparrowmq.remoting.tls.tls_settings import read_client_tls

        return client_context(read_client_tls(tls))
    raise ConfigError(
        f"tls={tls!r}: give True, or an ssl.SSLContext, which may trust certificates of your own, or the pathlib.Path "
        "of a tls.properties file"
    )
