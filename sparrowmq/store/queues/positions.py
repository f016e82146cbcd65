"""Positions up to which the store is on disk, as log offsets. The checkpoint and the file of queue ends have them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparrowmq.store.layout import NO_CRC


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions up to which log, queues and index are on disk. Invariant: scan_from <= dispatched <= flushed.

    Attributes:
        scan_from: a record begins there; a start checks the log from there on.
        flushed: the log is on disk up to there.
        dispatched: queues and index are on disk for all records before it.
        index_file: the growing index file, its name as a number; 0 for none, -1 if the index is off or damaged.
        index_next: its next entry.
        crc_from: SparrowMQ wrote each record from there on, and each has a CRC property.
    """

    scan_from: int
    flushed: int
    dispatched: int
    index_file: int = 0
    index_next: int = 0
    crc_from: int = NO_CRC


def agreed(one: Positions | None, other: Positions | None) -> Positions | None:
    """Return the positions on which two copies agree. A crash may have left one copy outdated, or missing.

    Queues and index are trusted up to the lower position. The log is on disk up to the higher one: both copies are
    right about the past.
    """
    if one is None or other is None:
        return one or other
    lower = one if one.dispatched <= other.dispatched else other
    return replace(lower, flushed=max(one.flushed, other.flushed))
