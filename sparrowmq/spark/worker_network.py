"""The process's own way to the brokers of a query.

Spark runs Python sources in synchronous code, one task after the other in a process that lives on. So networks are kept
for the life of the process, by name servers and credentials: the next task finds its connections open.
"""

from __future__ import annotations

from pathlib import Path
from ssl import SSLContext

from sparrowmq.client.cluster.blocking_network import BlockingNetwork, RetryPolicy
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.tls.tls_contexts import client_context
from sparrowmq.remoting.tls.tls_settings import ClientTlsSettings
from sparrowmq.spark.options import ClusterOptions
from sparrowmq.spark.worker_logs import show


def network_of(options: ClusterOptions, *, waits: bool = False) -> BlockingNetwork:
    """The process's network for these name servers and credentials; one that `waits` sits outages out."""
    key = (
        waits and options.outage_ms,
        options.name_servers,
        options.access_key,
        options.secret_key,
        options.security_token,
        options.retries,
        options.retry_interval_ms,
        options.tls,
        options.tls_trust,
        options.tls_certificate,
        options.tls_key,
        options.tls_key_password,
        options.tls_checks_server,
        options.tls_checks_name,
    )
    found = _networks.get(key)
    if found is None:
        show()
        found = _networks[key] = connect(options, waits=waits)
    return found


_networks: dict[tuple[object, ...], BlockingNetwork] = {}


def connect(options: ClusterOptions, *, waits: bool = False) -> BlockingNetwork:
    """A network of its own; leave it when done."""
    sign = None
    if options.access_key and options.secret_key:
        sign = signer(options.access_key, options.secret_key, options.security_token)
    outage_s = options.outage_ms / 1000 if waits else 0.0
    patience = RetryPolicy(options.retries, options.retry_interval_ms / 1000, outage_s)
    return BlockingNetwork(options.name_servers, sign=sign, tls=tls_of(options), patience=patience)


def tls_of(options: ClusterOptions) -> SSLContext | None:
    """The settings of TLS; the files are read by tasks, so each executor needs them.

    Raises: ConfigError, one cannot be used.
    """
    if not options.tls:
        return None
    settings = ClientTlsSettings(
        client_trust=_path(options.tls_trust),
        client_certificate=_path(options.tls_certificate),
        client_key=_path(options.tls_key),
        client_key_password=options.tls_key_password,
        checks_server=options.tls_checks_server,
        checks_server_name=options.tls_checks_name,
    )
    return client_context(settings)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
