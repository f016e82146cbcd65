"""Finds files that the log of a table names and that are gone: readers fail, and an append does not notice.

A fault of the disk may take a file, or change a byte of its name in the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.pipelines.lake.address import Address

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.lake import Lake


def absent_files(path: Path | Address, lake: Lake) -> str:
    """Look at each file of a table in a folder; return a warning with the remedy, or "" if all are there."""
    gone = [] if isinstance(path, Address) else [file for file in lake.paths() if not file.exists()]
    if not gone:
        return ""
    more = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
    return (
        f"readers of {path} fail, as {gone[0]}{more}, which its log names, is gone; restore it from a backup, or the "
        "table and its state, and start this again"
    )
