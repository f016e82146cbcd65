"""The process's own way to the brokers of a query.

Spark runs Python sources in synchronous code, one task after the other in a process that lives on. So networks are kept
for the life of the process, by name servers and credentials: the next task finds its connections open.
"""

from __future__ import annotations

from sparrowmq.client.cluster.blocking import BlockingNetwork, Patience
from sparrowmq.protocol.signature import signer
from sparrowmq.spark.options import ClusterOptions


def network_of(options: ClusterOptions) -> BlockingNetwork:
    """The process's network for these name servers and credentials."""
    key = (
        options.name_servers,
        options.access_key,
        options.secret_key,
        options.security_token,
        options.retries,
        options.retry_interval_ms,
    )
    found = _networks.get(key)
    if found is None:
        found = _networks[key] = connect(options)
    return found


_networks: dict[tuple[object, ...], BlockingNetwork] = {}


def connect(options: ClusterOptions) -> BlockingNetwork:
    """A network of its own; leave it when done."""
    sign = None
    if options.access_key and options.secret_key:
        sign = signer(options.access_key, options.secret_key, options.security_token)
    patience = Patience(options.retries, options.retry_interval_ms / 1000)
    return BlockingNetwork(options.name_servers, sign=sign, patience=patience)
