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

    store repair --from     the whole log of a store that is not open
    replace_damaged         of a member that starts: the log from the file with the first damage on
    replace_known_damage    while the store is in use: the damage that reads and the scrubber have found, and what
                            its start has fenced off
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from sparrowmq.errors import CorruptRecord, LogsDiffer
from sparrowmq.kernel import record_layout as layout
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MIN_SIZE_BYTES
from sparrowmq.kernel.records import Passed
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.store import checkpoint
from sparrowmq.store.checkpoint import UNKNOWN_INDEX
from sparrowmq.store.layout import BLANK, BLANK_SIZE, ENTRY_SIZE, offset_name
from sparrowmq.store.log import flush
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.scrub import Scrubber, check_records
from sparrowmq.store.log.set_aside import set_aside, set_aside_ranges
from sparrowmq.store.log.shipping import Shipping
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.recovery import LOST_TOPIC
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

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
    sound_offset_before: int | None  # the offset of the last sound record before the damage; None if there is none
    is_last: bool = False  # whether no sound record comes after the damage
    was_fenced: bool = False  # whether a start has replaced the damage by a filler that every reader skips


def replace_damaged(
    settings: StoreSettings, vfs: Vfs, copy: Copy, begin: int = 0, is_partial: bool = False
) -> RepairResult:
    """Replace the damaged records in the log of a store. The caller holds the store's lock. `begin`: an offset in the
    first file of the log to search for damage; none is searched after the log's end. Fenced damage is replaced
    anywhere. `is_partial`: replace what the copy has, even if it does not have all. A copy may end before our log ends.
    Raises: LogsDiffer, the other log is no copy of this one. BadStore, DiskFull, NetworkError, RemoteError.
    """
    layout = settings.layout
    saved = checkpoint.load(vfs, layout.checkpoint)
    commit_log = CommitLog(vfs, layout.commit_log, settings.commit_log_file_size)
    try:
        if saved.positions is not None:
            commit_log.crc_from = saved.positions.crc_from
        repair = _RecordRepair(settings, vfs, copy, commit_log)
        synced = flush.load_mark(vfs, layout.abort)
        flushed = max(synced, saved.positions.flushed if saved.positions is not None else 0)
        file = commit_log.row.find(begin)
        first = file.begin if file is not None else min(max(begin, commit_log.begin), commit_log.row.end)
        for damage in [*find_fenced(vfs, settings, commit_log), *_damages(commit_log, first, flushed)]:
            try:
                repair.repair(damage)
            except LogsDiffer:
                if not is_partial:
                    raise
                repair.result.remaining_damage.append((damage.begin, damage.end))
        if repair.has_unfenced and saved.positions is not None:
            unknown = replace(saved.positions, index_file=UNKNOWN_INDEX)
            checkpoint.save(vfs, layout.checkpoint, replace(saved, positions=unknown))
        return repair.result
    finally:
        commit_log.close()


class _RecordRepair:
    def __init__(self, settings: StoreSettings, vfs: Vfs, copy: Copy, commit_log: CommitLog) -> None:
        self.result = RepairResult()
        self.has_unfenced = False
        self.forgotten_records: list[records.Outline] = []  # records that came back, and whose queue files were deleted
        self._new_blanks: list[tuple[int, bytes]] = []  # of one damaged part: ends of files, without a record
        self._settings = settings
        self._vfs = vfs
        self._copy = copy
        self._log = commit_log

    def repair(self, damage: Damage) -> None:
        """Replace the records of one damaged part that the copy has. Raises: LogsDiffer."""
        is_confirmed = self._compare(damage)
        self._new_blanks.clear()
        offset, sound_records = damage.begin, list[tuple[int, bytes]]()
        while offset < damage.end:
            record = self._sound_copy(offset, damage)
            if record is not None:
                sound_records.append((offset, record))
            offset = offset + len(record) if record is not None else self._skip_missing(offset, damage)
        if not is_confirmed:
            self._drop_unconfirmed(damage, sound_records)
        if sound_records or self._new_blanks:
            self._write(damage, sound_records)

    def _compare(self, damage: Damage) -> bool:
        """Compare the records on both sides of the damage with the copy's. Raises: LogsDiffer. Returns: whether the one
        after the damage is the same, so that those in between are, too.
        """
        offsets = [damage.sound_offset_before, None if damage.is_last else damage.end]
        neighbours = {offset: self._log.sound_record(offset) for offset in offsets if offset is not None}
        our_records = {offset: bytes(record) for offset, record in neighbours.items() if record is not None}
        their_records = {offset: self._copy.record_at(offset) for offset in our_records}
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

    def _sound_copy(self, offset: int, damage: Damage) -> bytes | None:
        """The copy's record at an offset; None if there is none, or if it is not sound or does not fit here."""
        record, file = self._copy.record_at(offset), self._log.row.find(offset)
        if not record or file is None or records.check(record, offset, offset >= self._log.crc_from):
            return None
        max_end = file.end - BLANK_SIZE if damage.is_last else min(damage.end, file.end - BLANK_SIZE)
        return record if offset + len(record) <= max_end else None

    def _skip_missing(self, offset: int, damage: Damage) -> int:
        """Return the offset at which to continue after bytes that the copy does not have: mostly a blank, behind which
        it has more records. The next start writes a damaged blank again.
        """
        file = self._log.row.find(offset)
        following = min(damage.end, file.end if file is not None else damage.end)
        if not self._is_blank(offset):
            size = following - offset
            if file is not None and following == file.end and BLANK_SIZE <= size < MIN_SIZE_BYTES + BLANK_SIZE:
                self._new_blanks.append((offset, BLANK.pack(size, MAGIC_BLANK)))  # no record has room there
            elif size >= MIN_SIZE_BYTES + BLANK_SIZE:
                self.result.remaining_damage.append((offset, following))
        return following

    def _is_blank(self, offset: int) -> bool:
        try:
            return self._log.parse(offset)[0] is None
        except CorruptRecord:
            return False

    def _write(self, damage: Damage, records: list[tuple[int, bytes]]) -> None:
        if damage.was_fenced:
            self.has_unfenced = True
            for _, record in records:
                self._forget_entry(record)
        else:
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

    def _forget_entry(self, record: bytes) -> None:
        """Delete the queue file that has a gap in place of the record's entry. A start builds it again from the log."""
        fields = records.outline(record)
        self.forgotten_records.append(fields)
        folder = self._settings.layout.queue(fields.topic, fields.queue_id)
        entries = self._settings.consume_queue_file_entries
        path = os.path.join(folder, offset_name(fields.queue_offset // entries * entries * ENTRY_SIZE))
        if self._vfs.exists(path):
            self._vfs.unlink(path)
            self._vfs.sync_folder(folder)


def _not_a_copy(damage: Damage) -> LogsDiffer:
    return LogsDiffer(
        f"the log is damaged from offset {damage.begin} to {damage.end}, and the other broker does not have the same "
        "records next to it: it is no slave or master of this one, or has deleted them; name another broker"
    )


def replace_known_damage(
    settings: StoreSettings, vfs: Vfs, scrubber: Scrubber, queues: QueueTable, copy: Copy, max_bytes: int
) -> RepairResult:
    """Replace the damage that an open store knows, and rebuild the queue files with a gap in its place. Raises: as
    `replace_damaged`, and OSError.
    """
    repair = _RecordRepair(settings, vfs, copy, scrubber.log)
    remaining, differences = repair.result.remaining_damage, list[LogsDiffer]()
    for begin, end in [place for place in sorted(scrubber.damaged.items()) if place[1] - place[0] <= max_bytes]:
        is_last = scrubber.log.sound_record(end) is None
        try:
            repair.repair(Damage(begin, end, _sound_record_before(scrubber, begin), is_last))
        except LogsDiffer as error:
            differences.append(error)
            continue
        if not any(begin <= at < end for at, _ in remaining):
            scrubber.damaged.pop(begin, None)
    for begin, end in sorted(scrubber.fenced.items()):
        try:
            repair.repair(Damage(begin, end, None, was_fenced=True))
        except LogsDiffer as error:
            differences.append(error)
            continue
        finally:
            _rebuild(queues, repair.forgotten_records)
        if not any(begin <= at < end for at, _ in remaining):
            scrubber.fenced.pop(begin)
    if differences:
        raise differences[0]
    return repair.result


def _rebuild(queues: QueueTable, forgotten: list[records.Outline]) -> None:
    while forgotten:
        record = forgotten.pop()
        queue = queues.get(record.topic, record.queue_id)
        if queue is not None and queue.begin <= record.queue_offset < queue.max_offset:
            queue.rebuild(record.queue_offset)


def _sound_record_before(scrubber: Scrubber, offset: int) -> int | None:
    """The offset of the last sound record before an offset, in the same file; None if there is none."""
    at, sound = Shipping(scrubber).record_before(offset), (0, 0)
    while at < offset:
        following, problem = check_records(scrubber.log, at)
        if problem is None:
            sound = (at, min(following, offset))
        at = following if problem is None else scrubber.log.next_sound(at, offset) or offset
    return _last_record_in(scrubber.log, *sound)


def _damages(commit_log: CommitLog, first: int, flushed: int) -> Iterator[Damage]:
    """The damaged parts of a log, from an offset to the end of the bytes that were on disk."""
    end = max(commit_log.last_used_byte(first), min(flushed, commit_log.row.end))
    offset, sound = first, (0, 0)
    while offset < end:
        following: int | None = commit_log.pass_sound(offset, Passed())
        begin = offset
        if following == offset:
            # A blank extends the range of sound records before it: the last of them is the damage's neighbour.
            begin = sound[0] if sound[1] == offset else offset
            following = _end_of_sound(commit_log, offset)
        if following is not None:
            sound, offset = (begin, following), following
            continue
        survivor = commit_log.next_sound(offset, end)
        yield Damage(offset, survivor or end, _last_record_in(commit_log, *sound), is_last=survivor is None)
        offset = survivor or end


def _end_of_sound(commit_log: CommitLog, offset: int) -> int | None:
    """The end of the sound record or the blank at an offset; None if there is neither."""
    try:
        record, following = commit_log.parse(offset)
    except CorruptRecord:
        return None
    return following if record is None or commit_log.problem(record, offset) is None else None


def _last_record_in(commit_log: CommitLog, begin: int, end: int) -> int | None:
    """The offset of the last record in `[begin, end)`, which is all sound; None if there is only a blank."""
    last = None
    while begin < end:
        record, following = commit_log.parse(begin)
        last, begin = begin if record is not None else last, following
    return last


def find_fenced(vfs: Vfs, settings: StoreSettings, commit_log: CommitLog) -> Iterator[Damage]:
    for begin, end in set_aside_ranges(vfs, settings.layout, "damaged"):
        if commit_log.begin <= begin and _is_fence(commit_log, begin) and commit_log.sound_record(end) is not None:
            yield Damage(begin, end, None, was_fenced=True)


def _is_fence(commit_log: CommitLog, offset: int) -> bool:
    try:
        record, _ = commit_log.parse(offset)
    except CorruptRecord:
        return False
    if record is None:
        return True
    fields = records.outline(record)
    return fields.topic in (LOST_TOPIC, "") and bool(fields.sys_flag & SysFlag.PREPARED)
