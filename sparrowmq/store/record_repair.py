"""Replace damaged records by those of a copy of the log: a slave has the same bytes at the same offsets.

    here      ■■■■■■■■|░░░░░░░░░░░░░░|■■■■■■■■     damaged, from the first bad record to the next sound one
    the copy  ■■■■■■■■|■■■■|■■■|■■■■■|■■■■■■■■     requested record by record: which one is at this offset?
              └ same? ┘              └ same? ┘     the neighbours in both logs must be the same, or it is no copy

A record is taken only if it is sound, contains this offset, and fits. If the copy ends beside the damage, or this log
does, the record before the damage may be the last one that both logs have in common. Then records are taken only up to
the last one whose head or checksum is still here. If nothing but zeros is left at the log's end, the copy counts.

The damaged bytes are copied to `set-aside` first. The repair also replaces damage that a start with
`corruptPolicy=quarantine` has fenced off: the names in `set-aside` say where it was. Such a record has a gap for an
entry in its queue. So the repair deletes that file of the queue, which is built again from the log: at once if the
store is in use, otherwise at the next start, with the index.

A crash in between needs no cleanup: a second repair finds the same damage, or less.

    store repair --from     the whole log of a store that is not open
    replace_damaged         of a member that starts: the log from the file with the first damage on
    replace_found           while the store is in use: the damage that reads and the scrubber have found, and what
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
class Replaced:
    """The result of a repair.

    Attributes:
        count: the number of replaced records.
        blanks: the number of ends of files that were written again, as no record has room there.
        left: damaged parts of the log that the copy does not have either.
    """

    count: int = 0
    blanks: int = 0
    left: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log without a sound record."""

    begin: int
    end: int
    before: int | None  # the offset of the last sound record before the damage; None if there is none
    is_last: bool = False  # whether no sound record comes after the damage
    was_fenced: bool = False  # whether a start has replaced the damage by a filler that every reader skips


def replace_damaged(
    settings: StoreSettings, vfs: Vfs, copy: Copy, begin: int = 0, is_partial: bool = False
) -> Replaced:
    """Replace the damaged records in the log of a store. The caller holds the store's lock.

    Args:
        begin: an offset in the first file of the log to search for damage; none is searched after the log's end.
            Fenced damage is replaced anywhere.
        is_partial: replace what the copy has, even if it does not have all. A copy may end before our log ends.
    Raises:
        LogsDiffer: the other log is no copy of this one.
        BadStore, DiskFull, NetworkError, RemoteError.
    """
    layout = settings.layout
    known = checkpoint.load(vfs, layout.checkpoint)
    commit_log = CommitLog(vfs, layout.commit_log, settings.commit_log_file_size)
    try:
        if known.positions is not None:
            commit_log.crc_from = known.positions.crc_from
        repair = _RecordRepair(settings, vfs, copy, commit_log)
        synced = flush.load_mark(vfs, layout.abort)
        flushed = max(synced, known.positions.flushed if known.positions is not None else 0)
        file = commit_log.row.find(begin)
        first = file.begin if file is not None else min(max(begin, commit_log.begin), commit_log.row.end)
        for damage in [*fenced(vfs, settings, commit_log), *_damages(commit_log, first, flushed)]:
            try:
                repair.repair(damage)
            except LogsDiffer:
                if not is_partial:
                    raise
                repair.done.left.append((damage.begin, damage.end))
        if repair.has_unfenced and known.positions is not None:
            unknown = replace(known.positions, index_file=UNKNOWN_INDEX)
            checkpoint.save(vfs, layout.checkpoint, replace(known, positions=unknown))
        return repair.done
    finally:
        commit_log.close()


class _RecordRepair:
    """One run of a repair."""

    def __init__(self, settings: StoreSettings, vfs: Vfs, copy: Copy, commit_log: CommitLog) -> None:
        self.done = Replaced()
        self.has_unfenced = False
        self.forgotten: list[records.Outline] = []  # records that came back, and whose queue files were deleted
        self._blanks: list[tuple[int, bytes]] = []  # of one damaged part: ends of files, without a record
        self._settings = settings
        self._vfs = vfs
        self._copy = copy
        self._log = commit_log

    def repair(self, damage: Damage) -> None:
        """Replace the records of one damaged part that the copy has. Raises: LogsDiffer."""
        is_confirmed = self._compare(damage)
        self._blanks.clear()
        offset, found = damage.begin, list[tuple[int, bytes]]()
        while offset < damage.end:
            record = self._sound(offset, damage)
            if record is not None:
                found.append((offset, record))
            offset = offset + len(record) if record is not None else self._skip(offset, damage)
        if not is_confirmed:
            self._drop_unconfirmed(damage, found)
        if found or self._blanks:
            self._write(damage, found)

    def _compare(self, damage: Damage) -> bool:
        """Compare the records on both sides of the damage with the copy's. Raises: LogsDiffer.

        Returns: whether the one after the damage is the same, so that those in between are, too.
        """
        sides = [damage.before, None if damage.is_last else damage.end]
        neighbours = {side: self._log.sound_record(side) for side in sides if side is not None}
        ours = {side: bytes(record) for side, record in neighbours.items() if record is not None}
        theirs = {side: self._copy.record_at(side) for side in ours}
        alike = [found == ours[side] for side, found in theirs.items() if found is not None]
        if not any(alike) or not all(alike):  # a copy may end, or begin, beside the damage
            raise _no_copy(damage)
        return theirs.get(damage.end) is not None

    def _drop_unconfirmed(self, damage: Damage, records: list[tuple[int, bytes]]) -> None:
        """Drop the records after the last one of which something is left here. Raises: LogsDiffer, that is none."""
        if damage.is_last and self._log.last_used_byte(damage.begin) == damage.begin:
            return
        count = max((number for number, each in enumerate(records, 1) if self._was_here(*each)), default=0)
        if count == len(records):
            return
        if not count:
            raise _no_copy(damage)
        end = records[count][0]
        del records[count:]
        self._blanks = [each for each in self._blanks if each[0] < end]
        self.done.left.append((end, damage.end))

    def _was_here(self, offset: int, record: bytes) -> bool:
        """Whether the head or the checksum of a record is left here. Both contain when it was stored."""
        here, tail = self._log.chunk(offset, len(record)), record[-layout.PROPERTY_CRC_SIZE :]
        return here[:_HEAD_BYTES] == record[:_HEAD_BYTES] or (tail.startswith(layout.CRC_NAME) and here.endswith(tail))

    def _sound(self, offset: int, damage: Damage) -> bytes | None:
        """The copy's record at an offset; None if there is none, or if it is not sound or does not fit here."""
        record, file = self._copy.record_at(offset), self._log.row.find(offset)
        if not record or file is None or records.check(record, offset, offset >= self._log.crc_from):
            return None
        most = file.end - BLANK_SIZE if damage.is_last else min(damage.end, file.end - BLANK_SIZE)
        return record if offset + len(record) <= most else None

    def _skip(self, offset: int, damage: Damage) -> int:
        """Return the offset at which to continue after bytes that the copy does not have.

        Mostly these bytes are a blank, and the copy has more records in the next file. The next start writes a damaged
        blank again.
        """
        file = self._log.row.find(offset)
        following = min(damage.end, file.end if file is not None else damage.end)
        if not self._is_blank(offset):
            size = following - offset
            if file is not None and following == file.end and BLANK_SIZE <= size < MIN_SIZE_BYTES + BLANK_SIZE:
                self._blanks.append((offset, BLANK.pack(size, MAGIC_BLANK)))  # no record has room there
            elif size >= MIN_SIZE_BYTES + BLANK_SIZE:
                self.done.left.append((offset, following))
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
        for offset, record in [*records, *self._blanks]:
            file = self._log.row.find(offset)
            assert file is not None
            file.write(offset - file.begin, record)
        for file in self._log.row.between(damage.begin, damage.end):
            file.sync()
        self.done.count += len(records)
        self.done.blanks += len(self._blanks)
        log.warning("%d records of the log from offset %d on were restored", len(records), damage.begin)

    def _forget_entry(self, record: bytes) -> None:
        """Delete the queue file that has a gap in place of the record's entry. A start builds it again from the log."""
        found = records.outline(record)
        self.forgotten.append(found)
        folder = self._settings.layout.queue(found.topic, found.queue_id)
        entries = self._settings.consume_queue_file_entries
        path = os.path.join(folder, offset_name(found.queue_offset // entries * entries * ENTRY_SIZE))
        if self._vfs.exists(path):
            self._vfs.unlink(path)
            self._vfs.sync_folder(folder)


def _no_copy(damage: Damage) -> LogsDiffer:
    return LogsDiffer(
        f"the log is damaged from offset {damage.begin} to {damage.end}, and the other broker does not have the same "
        "records next to it: it is no slave or master of this one, or has deleted them; name another broker"
    )


def replace_found(
    settings: StoreSettings, vfs: Vfs, scrubber: Scrubber, queues: QueueTable, copy: Copy, max_bytes: int
) -> Replaced:
    """Replace the damage that an open store knows, and rebuild the queue files with a gap in its place.

    Raises: as `replace_damaged`, and OSError.
    """
    repair = _RecordRepair(settings, vfs, copy, scrubber.log)
    known, differs = repair.done.left, list[LogsDiffer]()
    for begin, end in [each for each in sorted(scrubber.damaged.items()) if each[1] - each[0] <= max_bytes]:
        is_last = scrubber.log.sound_record(end) is None
        try:
            repair.repair(Damage(begin, end, _before(scrubber, begin), is_last))
        except LogsDiffer as error:
            differs.append(error)
            continue
        if not any(begin <= at < end for at, _ in known):
            scrubber.damaged.pop(begin, None)
    for begin, end in sorted(scrubber.fenced.items()):
        try:
            repair.repair(Damage(begin, end, None, was_fenced=True))
        except LogsDiffer as error:
            differs.append(error)
            continue
        finally:
            _rebuild(queues, repair.forgotten)
        if not any(begin <= at < end for at, _ in known):
            scrubber.fenced.pop(begin)
    if differs:
        raise differs[0]
    return repair.done


def _rebuild(queues: QueueTable, forgotten: list[records.Outline]) -> None:
    while forgotten:
        found = forgotten.pop()
        queue = queues.get(found.topic, found.queue_id)
        if queue is not None and queue.begin <= found.queue_offset < queue.max_offset:
            queue.rebuild(found.queue_offset)


def _before(scrubber: Scrubber, offset: int) -> int | None:
    """The offset of the last sound record before an offset, in the same file; None if there is none."""
    at, sound = Shipping(scrubber).record_before(offset), (0, 0)
    while at < offset:
        following, problem = check_records(scrubber.log, at)
        if problem is None:
            sound = (at, min(following, offset))
        at = following if problem is None else scrubber.log.next_sound(at, offset) or offset
    return _last_of(scrubber.log, *sound)


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
            following = _behind(commit_log, offset)
        if following is not None:
            sound, offset = (begin, following), following
            continue
        survivor = commit_log.next_sound(offset, end)
        yield Damage(offset, survivor or end, _last_of(commit_log, *sound), is_last=survivor is None)
        offset = survivor or end


def _behind(commit_log: CommitLog, offset: int) -> int | None:
    """The end of the sound record or the blank at an offset; None if there is neither."""
    try:
        record, following = commit_log.parse(offset)
    except CorruptRecord:
        return None
    return following if record is None or commit_log.problem(record, offset) is None else None


def _last_of(commit_log: CommitLog, begin: int, end: int) -> int | None:
    """The offset of the last record in `[begin, end)`, which is all sound; None if there is only a blank."""
    last = None
    while begin < end:
        record, following = commit_log.parse(begin)
        last, begin = begin if record is not None else last, following
    return last


def fenced(vfs: Vfs, settings: StoreSettings, commit_log: CommitLog) -> Iterator[Damage]:
    """The damaged parts of a log that a start has fenced off."""
    for begin, end in set_aside_ranges(vfs, settings.layout, "damaged"):
        if commit_log.begin <= begin and _is_fence(commit_log, begin) and commit_log.sound_record(end) is not None:
            yield Damage(begin, end, None, was_fenced=True)


def _is_fence(commit_log: CommitLog, offset: int) -> bool:
    """Whether a record or blank at an offset can be the filler that a start writes in place of damage."""
    try:
        record, _ = commit_log.parse(offset)
    except CorruptRecord:
        return False
    if record is None:
        return True
    found = records.outline(record)
    return found.topic in (LOST_TOPIC, "") and bool(found.sys_flag & SysFlag.PREPARED)
