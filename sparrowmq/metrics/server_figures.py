"""The figures of any server: its port and certificates, the time of requests, access control, and disks.

Bytes count as the protocol has them: of encrypted connections, before encryption.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core import logs
from sparrowmq.metrics.figures import Figures, Histograms, Rows
from sparrowmq.remoting.latencies import Latencies, name_of, response_name
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.tls.contexts import ClientContext, ServerTls

if TYPE_CHECKING:  # a server without access control loads nothing of it
    from sparrowmq.auth.audit_log import Audit

LABELS: Final = ("protocol_type", "request_code", "response_code", "is_long_polling")
# In microseconds: 5.x's bounds of 1, 3, 5, 7, 10, 100 ms and 1, 2, 3 s, and some between and below.
_BOUNDS: Final = (
    *(100, 300, 1000, 3000, 5000, 7000, 10_000, 30_000),
    *(100_000, 300_000, 1_000_000, 2_000_000, 3_000_000, 10_000_000),
)


@dataclass(frozen=True)
class Port:
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
    figures.read_counter(
        "sparrowmq_network_received_bytes_total", "bytes from clients and brokers", lambda: server.received_bytes()
    )
    figures.read_counter(
        "sparrowmq_network_sent_bytes_total", "bytes to clients and brokers", lambda: server.sent_bytes()
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


def declare_denials(figures: Figures, audit: Audit | None) -> None:
    """Add the figures of an audit log. Without access control there is none, and no figures."""
    if audit is None:
        return
    figures.counters(
        "sparrowmq_denials_total",
        "requests that access control denied",
        ("reason",),
        lambda: [((reason,), count) for reason, count in audit.denials.items()],
    )
    figures.read_counter(
        "sparrowmq_audit_lines_lost_total", "lines that the audit log could not take", lambda: audit.lost_lines
    )


class DiskUse(NamedTuple):
    used: float  # the share that is used, from 0 to 1
    free_bytes: int
    size_bytes: int


def disk_use(folder: str | Path) -> DiskUse:
    """Raises: OSError."""
    disk = os.statvfs(folder)
    used, free = disk.f_blocks - disk.f_bfree, disk.f_bavail
    share = used / (used + free) if used else 0.0
    return DiskUse(share, free * disk.f_frsize, disk.f_blocks * disk.f_frsize)


def declare_disks(figures: Figures, folders: Mapping[str, str | Path]) -> None:
    """Declare the use of the disks of folders, given by the files in them. A folder that does not exist has no series.
    Each folder has series of its own, because an operator may mount a disk at any of them. As in df and Java, blocks
    that are reserved for root do not count as free."""

    def by_folder(figure: Callable[[DiskUse], float]) -> Callable[[], Rows]:
        def rows() -> Rows:
            for files, folder in with_logs(folders).items():
                with suppress(OSError):
                    yield (files, str(folder)), figure(disk_use(folder))

        return rows

    labels = ("files", "folder")
    figures.gauges(
        "sparrowmq_disk_used_ratio", "used share of the folder's disk", labels, by_folder(lambda disk: disk.used)
    )
    figures.gauges(
        "sparrowmq_disk_free_bytes", "free bytes of that disk", labels, by_folder(lambda disk: disk.free_bytes)
    )
    figures.gauges("sparrowmq_disk_size_bytes", "size of that disk", labels, by_folder(lambda disk: disk.size_bytes))


def with_logs(folders: Mapping[str, str | Path]) -> dict[str, str | Path]:
    """Return these folders, and that of the server's log if it has a file."""
    files = logs.files()
    return {**folders, "log": files[0].parent} if files else dict(folders)


def declare_latencies(figures: Figures, latencies: Latencies) -> None:
    """Declare the histogram in milliseconds, by request and response code. Unlike 5.x's, the time begins when a request
    was read and ends when its answer is made. There are also buckets below a millisecond, as most requests are that
    fast. Source: RemotingMetricsConstant and RemotingMetricsManager, Java 5.3."""

    def read() -> Histograms:
        for code, response_code, was_held, histogram in latencies.kinds():
            was_held_text = "true" if was_held else "false"
            yield ("remoting", name_of(code).lower(), response_name(response_code), was_held_text), histogram

    figures.histograms(
        "rocketmq_rpc_latency_milliseconds",
        "time from the arrival of a request to its answer",
        LABELS,
        read,
        _BOUNDS,
        1e-3,
    )
    figures.counters(
        "sparrowmq_long_steps_total",
        "times that a request's handler kept all other requests waiting for more than 5 ms",
        ("request_code",),
        lambda: [((name_of(code).lower(),), times) for code, times in sorted(latencies.long_steps.items())],
    )
