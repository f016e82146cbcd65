"""The figures of a server's port: connections, bytes, refused requests, and the end of its certificates.

Bytes count as the protocol has them: of encrypted connections, before encryption.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.tls.contexts import ClientContext, ServerTls


@dataclass(frozen=True)
class Port:
    """The parts of a server that serve its clients."""

    server: Server
    dispatcher: Dispatcher
    tls: ServerTls
    client_tls: ClientContext | None = None  # of connections to other servers


def declare_port(figures: Figures, port: Port) -> None:
    server, tls, refused = port.server, port.tls, port.dispatcher.refused
    figures.gauge("sparrowmq_connections", "connected clients and brokers", lambda: len(server.sessions))
    figures.gauge("sparrowmq_connections_limit", "most connections", lambda: server.most_connections)
    figures.counters(
        "sparrowmq_connections_refused_total",
        "connections that were closed: `limit` too many, `quota` too many of an address, `tls` not as encrypted as "
        "demanded",
        ("reason",),
        lambda: [((reason,), count) for reason, count in (server.refused | {"tls": tls.refused}).items()],
    )
    figures.counted(
        "sparrowmq_network_received_bytes_total",
        "bytes from clients and brokers",
        lambda: server.received_bytes(),
    )
    figures.counted(
        "sparrowmq_network_sent_bytes_total",
        "bytes to clients and brokers",
        lambda: server.sent_bytes(),
    )
    figures.counters(
        "sparrowmq_requests_refused_total",
        "requests that got an error: `access_denied`, `disk_full`, `internal_error` and others, or the name of the "
        "response code",
        ("reason",),
        lambda: [((reason,), count) for reason, count in refused.items()],
    )
    _declare_certificates(figures, port)


def _declare_certificates(figures: Figures, port: Port) -> None:
    def rows() -> Rows:
        client = port.client_tls.ends_at if port.client_tls is not None else None
        for use, end in (("server", port.tls.ends_at), ("client", client)):
            if end is not None:
                yield (use,), end.timestamp()

    figures.gauges(
        "sparrowmq_certificate_end_timestamp_seconds",
        "time at which a certificate ends: `server` is shown to clients, `client` to other servers",
        ("use",),
        rows,
    )
