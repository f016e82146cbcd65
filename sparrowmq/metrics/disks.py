"""The disks of a server: how full they are, and how much room they have, by the folders with files of the server.

Each folder has series of its own, because an operator may mount a disk at any of them. As in df and Java, blocks that
are reserved for root do not count as free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparrowmq.core import logs
from sparrowmq.metrics.figures import Figures, Rows


class DiskUse(NamedTuple):
    """The state of one disk."""

    used: float  # the share that is used, from 0 to 1
    free_bytes: int
    size_bytes: int


def disk_use(folder: str | Path) -> DiskUse:
    """Return the use of the disk of a folder. Raises: OSError."""
    disk = os.statvfs(folder)
    used, free = disk.f_blocks - disk.f_bfree, disk.f_bavail
    share = used / (used + free) if used else 0.0
    return DiskUse(share, free * disk.f_frsize, disk.f_blocks * disk.f_frsize)


def declare_disks(figures: Figures, folders: Mapping[str, str | Path]) -> None:
    """Declare the figures.

    Args:
        folders: by the files in them. A folder that does not exist has no series.
    """

    def by_folder(figure: Callable[[DiskUse], float]) -> Callable[[], Rows]:
        def rows() -> Rows:
            for files, folder in with_logs(folders).items():
                with suppress(OSError):
                    yield (files, str(folder)), figure(disk_use(folder))

        return rows

    labels = ("files", "folder")
    figures.gauges(
        "sparrowmq_disk_used_ratio",
        "used share of the folder's disk",
        labels,
        by_folder(lambda disk: disk.used),
    )
    figures.gauges(
        "sparrowmq_disk_free_bytes",
        "free bytes of that disk",
        labels,
        by_folder(lambda disk: disk.free_bytes),
    )
    figures.gauges("sparrowmq_disk_size_bytes", "size of that disk", labels, by_folder(lambda disk: disk.size_bytes))


def with_logs(folders: Mapping[str, str | Path]) -> dict[str, str | Path]:
    """Return these folders, and that of the server's log if it has a file."""
    files = logs.files()
    return {**folders, "log": files[0].parent} if files else dict(folders)
