"""An operator's side of the cluster that options name: what pipelines make there, and ask of it."""

from __future__ import annotations

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.spark.options import ClusterOptions
from sparrowmq.spark.worker_network import tls_of


def admin_of(options: ClusterOptions) -> Admin:
    """It signs and encrypts as the source and the sink do. Raises: ConfigError, a file of TLS cannot be used."""
    credentials = None
    if options.access_key and options.secret_key:
        credentials = Credentials(options.access_key, options.secret_key, options.security_token)
    return Admin(list(options.name_servers), credentials=credentials, tls=tls_of(options) or False)
