"""Access to etcd: plain text or TLS, and the user.

Etcd has users after a call of `etcdctl auth enable`. A client then exchanges its name and password for a token. The
token expires after a while, or when etcd restarts; then the client asks for another one. With TLS, etcd must show a
certificate for the name in etcdEndpoints. Each new connection gets the files of TLS as they are then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.remoting.tls.client_tls import ClientContext
from sparrowmq.remoting.tls.tls_contexts import trusting_context

_UNAUTHENTICATED: Final = 16  # a status code of gRPC
# Etcd's text after a change of its users; the gRPC code is that of an invalid argument.
_OLD_RIGHTS: Final = "revision of auth store is old"


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """The TLS settings and the user; None for neither."""

    tls: ClientContext | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def by(cls, settings: FailoverSettings) -> EtcdAccess:
        """Return the access that the settings describe. Raises: ConfigError, a file cannot be used."""
        tls = None
        if settings.etcd_tls:
            tls = trusting_context("etcd.tls", settings.etcd_trust, settings.etcd_certificate, settings.etcd_key)
        return cls(tls, settings.etcd_user, settings.etcd_password)


def wants_new_token(answer: dict[str, Any]) -> bool:
    """Whether etcd refused a request because its token, valid before, has expired."""
    return answer.get("code") == _UNAUTHENTICATED or _OLD_RIGHTS in str(answer.get("error", ""))
