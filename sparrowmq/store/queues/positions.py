"""Up to where everything is on disk, in offsets of the log: told by the checkpoint, and by the file of queue ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparrowmq.store.layout import NO_CRC


@dataclass(frozen=True, slots=True)
class Positions:
    """How far log, queues and index are on disk. Invariant: scan_from <= dispatched <= flushed.

    Attributes:
        scan_from: a record begins there; a start checks the log from it on.
        flushed: the log is on disk up to there.
        dispatched: queues and index are on disk for all records before it.
        index_file: the index file that grew, its name as a number; 0 for none, -1 if the index is off or damaged.
        index_next: its next entry.
        crc_from: each record from there on was written by us, and has a property CRC.
    """

    scan_from: int
    flushed: int
    dispatched: int
    index_file: int = 0
    index_next: int = 0
    crc_from: int = NO_CRC


def agreed(one: Positions | None, other: Positions | None) -> Positions | None:
    """What two copies, of which a crash may have left one behind, both say; one that is missing says nothing.

    Queues and index are believed up to the lower place; what had been on disk had been, whoever says so.
    """
    if one is None or other is None:
        return one or other
    lower = one if one.dispatched <= other.dispatched else other
    return replace(lower, flushed=max(one.flushed, other.flushed))
