"""Keep bytes that leave the log in the folder `set-aside`, for an operator to inspect.

set-aside/00000000000000004972-00000000000000005100.damaged      bytes 4972 to 5100, and the reason

damaged   fenced off, or replaced by the bytes of a copy       cut      a torn tail, or forked without a message
forked    bytes that a new master does not have                  lost     a damaged tail that had been on disk

Damaged index files are moved there too, as their name and `.index`. All that they contained is in the log.

A piece is deleted, with a line in the log, when it is `setAsideDays` old, or earlier:

                over `setAsideLimit` in all, or      otherwise
                the disk is 85 % full
    index, cut  at once, the oldest first            after setAsideDays
    damaged     likewise, once the log is past it    likewise: `store repair --from` knows by its name what was fenced
    forked,     no                                   after setAsideDays, and not before fileReservedTime: it may be the
    lost                                             only copy of acknowledged messages
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparrowmq.store.layout import Layout, parse_offset_name
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

FORKED: Final = "forked"
LOST: Final = "lost"
DAMAGED: Final = "damaged"
_REASONS: Final = ("cut", DAMAGED, FORKED, LOST, "index")
_CHUNK_BYTES: Final = 1 << 20
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


def set_aside(vfs: Vfs, layout: Layout, commit_log: LogReader, begin: int, end: int, reason: str) -> None:
    """Copy `[begin, end)` of the log to the folder. A copy that exists was saved before a crash. Raises: DiskFull."""
    if begin >= end:
        return
    vfs.make_folder(layout.set_aside)
    path = os.path.join(layout.set_aside, f"{begin:020d}-{end:020d}.{reason}")
    if not vfs.exists(path):
        file = vfs.create(path, end - begin, allocate=True)
        for part in commit_log.row.between(begin, end):
            low, high = max(begin, part.begin), min(end, part.end)
            for at in range(low, high, _CHUNK_BYTES):
                vfs.write(file, at - begin, part.read(at - part.begin, min(_CHUNK_BYTES, high - at)))
        vfs.sync(file)
        vfs.close(file)
        vfs.sync_folder(layout.set_aside)
        vfs.sync_folder(layout.root)
    log.warning("the log is %s at offset %d; bytes up to %d are kept in %s", reason, begin, end, path)


def set_aside_ranges(vfs: Vfs, layout: Layout, reason: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of the log that were set aside for a reason, rising."""
    for name in vfs.list_folder(layout.set_aside):
        place, _, found_reason = name.rpartition(".")
        begin, _, end = place.partition("-")
        low, high = parse_offset_name(begin), parse_offset_name(end)
        if found_reason == reason and low is not None and high is not None:
            yield low, high


@dataclass(frozen=True, slots=True)
class Piece:
    name: str
    reason: str  # its reason, the end of its name
    end: int  # the offset in the log where it ends; 0 for an index
    size: int
    kept_since_ms: int  # when it was put there; 0 if that is not known


def list_pieces(vfs: Vfs, layout: Layout) -> list[Piece]:
    all_pieces = []
    for name in vfs.list_folder(layout.set_aside):
        place, _, reason = name.rpartition(".")
        end = place.partition("-")[2]
        if reason in _REASONS:
            with suppress(FileNotFoundError):
                stamp = vfs.stamp(os.path.join(layout.set_aside, name))
                ends_at = parse_offset_name(end) or 0
                all_pieces.append(Piece(name, reason, ends_at, stamp.size, stamp.changed_ns // 1_000_000))
    return sorted(all_pieces, key=lambda piece: piece.kept_since_ms)


def expired_pieces(
    candidates: Sequence[Piece], settings: StoreSettings, now_ms: int, log_begin: int, *, is_short: bool
) -> list[Piece]:
    """Return the pieces to delete. `is_short` says that the disk is so full that young messages are deleted."""
    if not settings.set_aside_days:
        return []
    longest_ms = settings.set_aside_days * _DAY_MS
    forked_ms = max(longest_ms, settings.retention_hours * _HOUR_MS)
    due, size = [], sum(piece.size for piece in candidates)
    for piece in candidates:
        age_ms = now_ms - piece.kept_since_ms if piece.kept_since_ms else 0
        if piece.reason in (FORKED, LOST):
            is_due = age_ms >= forked_ms
        elif piece.reason == DAMAGED and piece.end > log_begin:
            is_due = False
        else:
            is_due = age_ms >= longest_ms or is_short or size > settings.set_aside_limit
        if is_due:
            due.append(piece)
            size -= piece.size
    return due


def delete_expired(vfs: Vfs, settings: StoreSettings, now_ms: int, log_begin: int, *, is_short: bool) -> None:
    """Delete the expired pieces, and log each."""
    folder = settings.layout.set_aside
    try:
        for piece in expired_pieces(list_pieces(vfs, settings.layout), settings, now_ms, log_begin, is_short=is_short):
            vfs.unlink(os.path.join(folder, piece.name))
            log.warning(
                "%s is deleted after %d days (%d bytes), by setAsideDays or setAsideLimit",
                *(os.path.join(folder, piece.name), (now_ms - piece.kept_since_ms) // _DAY_MS, piece.size),
            )
    except OSError as error:
        log.warning("the old files in %s cannot be deleted: %s", folder, error)
