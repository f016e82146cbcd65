"""Administration of the cluster that options name."""

from __future__ import annotations

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.spark.options import ClusterOptions
from sparrowmq.spark.worker_network import tls_of


def admin_of(options: ClusterOptions) -> Admin:
    """An admin client with the account and the TLS of source and sink. Raises: ConfigError, a TLS file is unusable."""
    credentials = None
    if options.access_key and options.secret_key:
        credentials = Credentials(options.access_key, options.secret_key, options.security_token)
    return Admin(list(options.name_servers), credentials=credentials, tls=tls_of(options) or False)
