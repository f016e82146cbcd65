"""Limits of open connections and files, so that a process never runs out of descriptors.

A process without free descriptors cannot write acknowledged messages to disk. So a server raises its limit when it
starts, and divides it:

    limit ── reserve ── the log's files and the index, snapshots, pools and pipes, connections to be refused
          ├─ queue files    of a broker: those that stay open between two uses
          ├─ small ports    for metrics, and for slaves of a broker: 48 and 80, and fewer below a limit of 1,024
          └─ connections    the rest, divided by the ports; a server closes further ones and logs it
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from sparrowmq.errors import ConfigError

MAX_CONNECTIONS: Final = 16_000
MAX_QUEUE_FILES: Final = 4096
MAX_BACKLOG: Final = 1024
MAX_METRICS_CONNECTIONS: Final = 32  # at the port for metrics
MAX_SLAVES: Final = 64  # connections at the port for slaves, from any hosts
SMALL_BACKLOG: Final = 16  # of each of these two ports
MIN_DESCRIPTORS: Final = 256
_UNLIMITED: Final = 1 << 20  # what a limit of "unlimited" is taken for
_RESERVED: Final = 64  # standard streams, the loop's, the lock, snapshots, connections to name servers and brokers


@dataclass(frozen=True, slots=True)
class Share:
    """The division of a limit of descriptors."""

    connections: int  # the most connections of peers at one port
    queue_files: int  # the most open queue files
    # The most connections that wait at one port to be accepted. All of them may be accepted before one is refused.
    backlog: int


def divide(limit: int, with_store: bool, ports: int = 1) -> Share:
    """Share out `limit` descriptors among the `ports` for clients and, with a store, its files. Raises: ConfigError,
    they are too few.
    """
    if limit < MIN_DESCRIPTORS:
        raise ConfigError(
            f"this process may open {limit} files and connections together, which is too few; "
            f"start it with `ulimit -n {MIN_DESCRIPTORS}` or more (LimitNOFILE= of systemd)"
        )
    backlog = min(MAX_BACKLOG, limit // 16 // ports)
    remaining = limit - _RESERVED - backlog * ports - small_port_limit(MAX_METRICS_CONNECTIONS + SMALL_BACKLOG, limit)
    queue_files = 0
    if with_store:
        # A broker's first port has a second door (broker/ports.py), with a backlog of its own.
        remaining -= limit // 8 + backlog + small_port_limit(MAX_SLAVES + SMALL_BACKLOG, limit)
        queue_files = min(MAX_QUEUE_FILES, remaining // 4)
    return Share(min(MAX_CONNECTIONS, (remaining - queue_files) // ports), queue_files, backlog)


def small_port_limit(max_connections: int, limit: int) -> int:
    """Return how many of `max_connections` connections a small port may have: fewer below a limit of 1,024."""
    return min(max_connections, max_connections * limit // 1024)


def limit() -> int:
    try:
        import resource
    except ImportError:  # There are no such limits on Windows.
        return _UNLIMITED
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the limit as far as the system lets this process, and return it."""
    try:
        import resource
    except ImportError:
        return _UNLIMITED
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # macOS calls its hard limit unlimited, and takes no more than its own constant.
    for new_limit in (_UNLIMITED if hard == resource.RLIM_INFINITY else hard, 10_240):
        if new_limit > limit():
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
    return limit()
