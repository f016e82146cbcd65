"""Replace damaged records by those of a copy of the log: a slave has the same bytes at the same offsets.

    here      ■■■■■■■■|░░░░░░░░░░░░░░|■■■■■■■■     damaged, from the first bad record to the next sound one
    the copy  ■■■■■■■■|■■■■|■■■|■■■■■|■■■■■■■■     requested record by record: which one is at this offset?
              └ same? ┘              └ same? ┘     the neighbours in both logs must be the same, or it is no copy

A record is taken only if it is sound, contains this offset, and fits. If the damage is at the end of either log,
records are taken only up to the last one whose head or checksum is still here. If nothing but zeros is left at the
log's end, the copy counts.

The damaged bytes are copied to `set-aside` first. Damage that a start with `corruptPolicy=quarantine` has fenced off is
replaced too. Such a record has a gap for an entry in its queue, so the repair deletes that queue file. It is built
again from the log: at once if the store is in use, otherwise at the next start, with the index.

    replace_damaged         of a store that is not open: the log from a file on. `store repair --from` takes the whole
                            log, a member that starts the file with the first damage and those after it
    replace_known_damage    while the store is in use: the damage that reads and the scrubber have found, and what
                            its start has fenced off

Both are generators: each yields the offset of a record that it needs from the copy, and is sent that record. So who
asks may block, or wait on an event loop. All records of one damaged part are there before any of it is written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias, TypeVar

from sparrowmq.errors import LogsDiffer
from sparrowmq.kernel import record_layout as layout
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MIN_SIZE_BYTES
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.store import checkpoint
from sparrowmq.store.checkpoint import UNKNOWN_INDEX
from sparrowmq.store.layout import BLANK, BLANK_SIZE, ENTRY_SIZE, offset_name
from sparrowmq.store.log import flush
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.log.scrub import Scrubber, check_records
from sparrowmq.store.log.set_aside import set_aside, set_aside_ranges
from sparrowmq.store.log.shipping import record_before
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.recovery import LOST_TOPIC
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import StoreLock, Vfs

log = logging.getLogger(__name__)

T = TypeVar("T")
# Yields the offsets of records of the copy, and is sent each record, unchecked; None if there is none.
Requests: TypeAlias = Generator[int, bytes | None, T]

_HEAD_BYTES: Final = 76  # of a record, with the time at which it was stored, also after an IPv6 host


class Copy(Protocol):
    """Another broker's log that should be the same as the one here."""

    def record_at(self, offset: int) -> bytes | None:
        """The copy's record at an offset, unchecked; None if there is none. Raises: NetworkError, RemoteError."""


@dataclass(slots=True)
class RepairResult:
    """The result of a repair."""

    count: int = 0  # the number of replaced records
    blank_count: int = 0  # the number of ends of files that were written again, as no record has room there
    # Damaged parts of the log that the copy does not have either.
    remaining_damage: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log without a sound record."""

    begin: int
    end: int
    limit: int  # the offset up to which records may be written: beyond `end` if the log's end is not known
    is_last: bool = False  # whether no sound record comes after the damage
    was_fenced: bool = False  # whether a start has replaced the damage by a filler that every reader skips


def advance(requests: Requests[RepairResult], record: bytes | None = None) -> int | RepairResult:
    """Send a repair the record that it asked for, at first None. Returns the next offset to ask for, or the result."""
    try:
        return requests.send(record)
    except StopIteration as done:
        result: RepairResult = done.value
        return result


def take_from(copy: Copy, requests: Requests[RepairResult]) -> RepairResult:
    with closing(requests):
        step = advance(requests)
        while isinstance(step, int):
            step = advance(requests, copy.record_at(step))
        return step


def replace_damaged(
    settings: StoreSettings, vfs: Vfs, begin: int = 0, *, is_partial: bool = False
) -> Requests[RepairResult]:
    """Replace the damaged records in the log of a store that no broker has open. `begin`: an offset in the first file
    of the log to search for damage; none is searched after the log's end. Fenced damage is replaced anywhere.
    `is_partial`: replace what the copy has, even if it does not have all. A copy may end before our log ends.
    Raises: LogsDiffer, the other log is no copy of this one. StoreLocked, BadStore, DiskFull.
    """
    layout, lock = settings.layout, StoreLock(vfs, settings.layout)
    try:
        saved = checkpoint.load(vfs, layout.checkpoint)
        with closing(CommitLog(vfs, layout.commit_log, settings.commit_log_file_size)) as commit_log:
            if saved.positions is not None:
                commit_log.crc_from = saved.positions.crc_from
            repair = _RecordRepair(settings, vfs, commit_log)
            synced = flush.load_mark(vfs, layout.abort)
            flushed = max(synced, saved.positions.flushed if saved.positions is not None else 0)
            file = commit_log.row.find(begin)
            first = file.begin if file is not None else min(max(begin, commit_log.begin), commit_log.row.end)
            damages = [*find_fenced(vfs, settings, commit_log), *_damages(commit_log, first, flushed)]
            yield from repair.replace(damages, is_partial)
            if repair.has_unfenced and saved.positions is not None:
                unknown = replace(saved.positions, index_file=UNKNOWN_INDEX)
                checkpoint.save(vfs, layout.checkpoint, replace(saved, positions=unknown))
            return repair.result
    finally:
        lock.close()


def replace_known_damage(
    settings: StoreSettings, vfs: Vfs, scrubber: Scrubber, queues: QueueTable, max_bytes: int
) -> Requests[RepairResult]:
    """Replace the damage that an open store knows, parts of at most `max_bytes`, and rebuild the queue files with a gap
    in its place. Raises: as `replace_damaged`, and OSError.
    """

    def rebuild_entry(record: records.Outline) -> None:
        queue = queues.get(record.topic, record.queue_id)
        if queue is not None and queue.begin <= record.queue_offset < queue.max_offset:
            queue.rebuild(record.queue_offset)

    def known_damages() -> Iterator[Damage]:
        for places, was_fenced in ((scrubber.damaged, False), (scrubber.fenced, True)):
            for begin, end in sorted(places.items()):
                if was_fenced or end - begin <= max_bytes:
                    is_last = not was_fenced and scrubber.log.sound_record(end) is None
                    yield Damage(begin, end, end, is_last, was_fenced)
                    if not any(begin <= at < end for at, _ in repair.result.remaining_damage):
                        places.pop(begin, None)

    repair = _RecordRepair(settings, vfs, scrubber.log, rebuild_entry)
    yield from repair.replace(known_damages())
    return repair.result


class _RecordRepair:
    def __init__(
        self,
        settings: StoreSettings,
        vfs: Vfs,
        commit_log: LogReader,
        rebuild_entry: Callable[[records.Outline], object] = lambda _: None,  # otherwise the next start does it
    ) -> None:
        self.result = RepairResult()
        self.has_unfenced = False
        self._new_blanks: list[tuple[int, bytes]] = []  # of one damaged part: ends of files, without a record
        self._settings = settings
        self._vfs = vfs
        self._log = commit_log
        self._rebuild_entry = rebuild_entry

    def replace(self, damages: Iterable[Damage], is_partial: bool = False) -> Requests[None]:
        """Replace the records that the copy has, of one damaged part after the other. Raises: LogsDiffer, after the
        last part, unless `is_partial`.
        """
        differences = []
        for damage in damages:
            try:
                yield from self._replace(damage)
            except LogsDiffer as error:
                differences.append(error)
                self.result.remaining_damage.append((damage.begin, damage.end))
        if differences and not is_partial:
            raise differences[0]

    def _replace(self, damage: Damage) -> Requests[None]:
        is_confirmed = yield from self._compare(damage)
        self._new_blanks.clear()
        offset, sound_records = damage.begin, list[tuple[int, bytes]]()
        while offset < damage.end:
            record = self._fitting((yield offset), offset, damage)
            if record is not None:
                sound_records.append((offset, record))
            offset = offset + len(record) if record is not None else self._skip_missing(offset, damage)
        if not is_confirmed:
            self._drop_unconfirmed(damage, sound_records)
        if (sound_records or self._new_blanks) and damage.begin >= self._log.begin:  # it may have been deleted since
            self._write(damage, sound_records)

    def _compare(self, damage: Damage) -> Requests[bool]:
        """Compare the records on both sides of the damage with the copy's. Raises: LogsDiffer. Returns: whether the one
        after the damage is the same, so that those in between are, too.
        """
        before = None if damage.was_fenced else _sound_record_before(self._log, damage.begin)
        offsets = [before, None if damage.is_last else damage.end]
        neighbours = {offset: self._log.sound_record(offset) for offset in offsets if offset is not None}
        our_records = {offset: bytes(record) for offset, record in neighbours.items() if record is not None}
        their_records = {}
        for offset in our_records:
            their_records[offset] = yield offset
        are_same = [theirs == our_records[offset] for offset, theirs in their_records.items() if theirs is not None]
        if not any(are_same) or not all(are_same):  # a copy may end, or begin, beside the damage
            raise _not_a_copy(damage)
        return their_records.get(damage.end) is not None

    def _drop_unconfirmed(self, damage: Damage, records: list[tuple[int, bytes]]) -> None:
        """Drop the records after the last one of which something is left here. Raises: LogsDiffer, that is none."""
        if damage.is_last and self._log.last_used_byte(damage.begin) == damage.begin:
            return
        count = max((number for number, record in enumerate(records, 1) if self._was_here(*record)), default=0)
        if count == len(records):
            return
        if not count:
            raise _not_a_copy(damage)
        end = records[count][0]
        del records[count:]
        self._new_blanks = [record for record in self._new_blanks if record[0] < end]
        self.result.remaining_damage.append((end, damage.end))

    def _was_here(self, offset: int, record: bytes) -> bool:
        """Whether the head or the checksum of a record is left ours. Both tell when it was stored."""
        ours, tail = self._log.chunk(offset, len(record)), record[-layout.PROPERTY_CRC_SIZE :]
        return ours[:_HEAD_BYTES] == record[:_HEAD_BYTES] or (tail.startswith(layout.CRC_NAME) and ours.endswith(tail))

    def _fitting(self, record: bytes | None, offset: int, damage: Damage) -> bytes | None:
        """Return the copy's record for an offset; None if there is none, or it is not sound or does not fit here."""
        file = self._log.row.find(offset)
        if not record or file is None or records.check(record, offset, offset >= self._log.crc_from):
            return None
        return record if offset + len(record) <= min(damage.limit, file.end - BLANK_SIZE) else None

    def _skip_missing(self, offset: int, damage: Damage) -> int:
        """Return the offset at which to continue after bytes that the copy does not have: mostly a blank, behind which
        it has more records. The next start writes a damaged blank again.
        """
        file = self._log.row.find(offset)
        following = min(damage.end, file.end if file is not None else damage.end)
        if not self._log.is_blank(offset):
            size = following - offset
            if file is not None and following == file.end and BLANK_SIZE <= size < MIN_SIZE_BYTES + BLANK_SIZE:
                self._new_blanks.append((offset, BLANK.pack(size, MAGIC_BLANK)))  # no record has room there
            elif size >= MIN_SIZE_BYTES + BLANK_SIZE:
                self.result.remaining_damage.append((offset, following))
        return following

    def _write(self, damage: Damage, records: list[tuple[int, bytes]]) -> None:
        if not damage.was_fenced:
            set_aside(self._vfs, self._settings.layout, self._log, damage.begin, damage.end, "damaged")
        for offset, record in [*records, *self._new_blanks]:
            file = self._log.row.find(offset)
            assert file is not None
            file.write(offset - file.begin, record)
        for file in self._log.row.between(damage.begin, damage.end):
            file.sync()
        self.result.count += len(records)
        self.result.blank_count += len(self._new_blanks)
        log.warning("%d records of the log from offset %d on were restored", len(records), damage.begin)
        if damage.was_fenced:
            self.has_unfenced = True
            self._replace_queue_files(record for _, record in records)

    def _replace_queue_files(self, unfenced: Iterable[bytes]) -> None:
        """Delete the queue files that have gaps in place of the entries of these records, and build them again."""
        by_path = {}
        for fields in map(records.outline, unfenced):
            entries = self._settings.consume_queue_file_entries
            name = offset_name(fields.queue_offset // entries * entries * ENTRY_SIZE)
            by_path[os.path.join(self._settings.layout.queue(fields.topic, fields.queue_id), name)] = fields
        for path in filter(self._vfs.exists, by_path):
            self._vfs.unlink(path)
            self._vfs.sync_folder(os.path.dirname(path))
        for fields in by_path.values():
            self._rebuild_entry(fields)


def _not_a_copy(damage: Damage) -> LogsDiffer:
    return LogsDiffer(
        f"the log is damaged from offset {damage.begin} to {damage.end}, and the other broker does not have the same "
        "records next to it: it is no slave or master of this one, or has deleted them; name another broker"
    )


def _sound_record_before(commit_log: LogReader, offset: int) -> int | None:
    """The offset of the last sound record before an offset; None if there is none in the same file."""
    if offset <= commit_log.begin:
        return None
    at, last = at_once(record_before(commit_log, offset - 1)), None
    while at < offset:
        record = commit_log.sound_record(at)
        if record is not None:
            last, at = at, at + len(record)
        else:  # a blank, or more damage
            at = commit_log.next_sound(at, offset) or offset
    return last


def _damages(commit_log: LogReader, first: int, flushed: int) -> Iterator[Damage]:
    """The damaged parts of a log, from an offset to the end of the bytes that were on disk."""
    end = max(commit_log.last_used_byte(first), min(flushed, commit_log.row.end))
    offset = first
    while offset < end:
        offset, problem = check_records(commit_log, offset)
        if problem is not None:
            survivor = commit_log.next_sound(offset, end)
            following = survivor or end
            yield Damage(offset, following, survivor or commit_log.row.end, is_last=survivor is None)
            offset = following


def find_fenced(vfs: Vfs, settings: StoreSettings, commit_log: LogReader) -> Iterator[Damage]:
    for begin, end in set_aside_ranges(vfs, settings.layout, "damaged"):
        if commit_log.begin <= begin and _is_fence(commit_log, begin) and commit_log.sound_record(end) is not None:
            yield Damage(begin, end, end, was_fenced=True)


def _is_fence(commit_log: LogReader, offset: int) -> bool:
    record, _, problem = commit_log.examine(offset)
    if record is None or problem is not None:
        return problem is None
    fields = records.outline(record)
    return fields.topic in (LOST_TOPIC, "") and bool(fields.sys_flag & SysFlag.PREPARED)
