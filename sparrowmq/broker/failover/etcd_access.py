"""How an etcd is asked: in the clear or by TLS, and who asks.

Etcd has users once `etcdctl auth enable` was called. Who asks gets a token for name and password, which ends after a
while, or with etcd's memory; then another one is asked for. With TLS etcd has to show a certificate for the name in
etcdEndpoints. The files are read when the broker starts.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.remoting.tls.tls_contexts import trusting_context

_UNAUTHENTICATED: Final = 16  # gRPC's
_OLD_RIGHTS: Final = (
    "revision of auth store is old"  # users were changed since; gRPC's code is that of wrong arguments
)


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """By which TLS, and as whom; None for neither."""

    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def by(cls, settings: FailoverSettings) -> EtcdAccess:
        """As the settings say. Raises: ConfigError, a file cannot be used."""
        tls = None
        if settings.etcd_tls:
            tls = trusting_context(
                "etcd.tls", settings.etcd_trust, settings.etcd_certificate, settings.etcd_key
            )
        return cls(tls, settings.etcd_user, settings.etcd_password)


def wants_new_token(answer: dict[str, Any]) -> bool:
    """Whether etcd refused because a token that was good is so no more."""
    return answer.get("code") == _UNAUTHENTICATED or _OLD_RIGHTS in str(answer.get("error", ""))
