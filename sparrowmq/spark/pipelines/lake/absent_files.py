"""Finds files that the log of a table names and that are gone, or cut: readers fail, and an append does not notice.

A fault of the disk may take a file or the end of it, or change a byte of its name in the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.pipelines.lake.address import Address

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.lake import Lake


def absent_files(path: Path | Address, lake: Lake) -> str:
    """Look at each file of a table in a folder; return a warning with the remedy, or "" if all are whole."""
    if isinstance(path, Address):
        return ""
    damaged = [(file, there) for file, size in sorted(lake.sizes().items()) if (there := _size(file)) != size]
    if not damaged:
        return ""
    (first, there), more = damaged[0], f" and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
    fault = "is gone" if there is None else f"has {there:,} bytes, and not those that the log says"
    return (
        f"readers of {path} fail, as {first}{more}, which its log names, {fault}; restore it from a backup, or the "
        "table and its state, and start this again"
    )


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
