"""Recovery: turn the files that a crash has left into a store that can accept messages.

A crash can lose any of the log's last sectors that no sync covered, in any combination. So:

1. Find where to begin: at the offset of our checkpoint; after Java, at the file that Java would begin at.
2. Check record after record: its shape, its CRCs, its place. Stop at the first bad one.
3. Decide whether this is a torn tail or damage. It is damage if the bytes had been on disk, as shown by our
   checkpoint, the mark of the last sync (log/flush.py), or a later good record older than Java's checkpoint. It is
   damage too if no sector of the record can be missing: a crash loses sectors, but flips no bits in them. Damage is
   reported (`corrupt_policy=fail`) or fenced off (`quarantine`). A tail is cut; its bytes are kept in set-aside.
4. Write zeros over the tail. Otherwise an old record becomes valid again when a new record ends where it begins.
5. Cut queues and index back to the entries that were on disk, and replay the log from there.
6. Write the last kept bytes again, and sync them: they may not be on disk. A killed process leaves pages and names
   only in memory, and after a failed sync Linux marks pages as written although they are not.

No message is appended before all of this is on disk. A crash during recovery is like any other crash: each step can be
repeated.
Unlike Java, which deletes all later files at the first bad record, and leaves stale records after the cut.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Final

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.kernel import record_layout as layout
from sparrowmq.kernel import records as kernel
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MIN_SIZE_BYTES
from sparrowmq.kernel.records import Passed
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.checkpoint import UNKNOWN_INDEX, Checkpoint, save
from sparrowmq.store.index import Index
from sparrowmq.store.layout import BLANK, NO_CRC, SECTOR, Layout, missing_file
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.log_file import PAGE
from sparrowmq.store.log.set_aside import LOST, set_aside
from sparrowmq.store.queue_builder import Hole, QueueBuilder
from sparrowmq.store.queue_rebuild import QueueRebuild
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_ends import ALL_TOPICS, Positions, SavedEnds, merge_positions
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

LOST_TOPIC: Final = "SPARROWMQ_LOST"
_CHUNK_BYTES: Final = 1 << 20


@dataclass(slots=True)
class RecoveryResult:
    """The result of a recovery."""

    end: int
    record_offsets: list[int]  # offsets at which records begin, rising, from the first checked one on
    passed: Passed = field(default_factory=Passed)
    cut_bytes: int = 0  # the bytes that were cut off the log's end
    fenced_bytes: int = 0  # the damaged bytes that readers skip from now on
    was_restarted: bool = False  # whether the machine was restarted while the store was open

    @property
    def doubt(self) -> str:
        """The reasons why the log may lack messages that it had; "" without a reason."""
        facts = []
        if self.fenced_bytes:
            facts.append(f"{self.fenced_bytes} damaged bytes of the log were fenced off")
        if self.cut_bytes:
            facts.append(f"{self.cut_bytes} bytes after offset {self.end} were cut off the log")
        if self.was_restarted:
            facts.append("the machine was restarted while the store was open")
        return ", and ".join(facts)


@dataclass(slots=True)
class Recovery:
    """One recovery of one store; `recover` does it."""

    vfs: Vfs
    layout: Layout
    log: CommitLog
    queues: QueueTable
    index: Index | None
    queue_builder: QueueBuilder
    checkpoint: Checkpoint
    policy: CorruptPolicy
    is_clean: bool
    after_java: bool  # whether a Java broker has opened the store since us
    ends: SavedEnds
    queue_rebuild: QueueRebuild
    synced: int = 0  # the end of the bytes that had been on disk, by the mark of the last sync
    checks_all: bool = False  # check all records of the log

    def recover(self) -> RecoveryResult:
        """Make log, queues and index agree, on disk. Raises: CorruptRecord, bytes that had been on disk are damaged."""
        try:
            return self._run()
        except BadStore as bad:
            if isinstance(bad.__cause__, CorruptRecord):  # a queue file cannot be rebuilt before the log is repaired
                raise bad.__cause__ from bad
            raise

    def _run(self) -> RecoveryResult:
        self._merge_positions()
        if self.checkpoint.positions is not None:
            self.log.crc_from = self.checkpoint.positions.crc_from
        scan_from = self._scan_from()
        result = self._scan(scan_from)
        if self.checkpoint.positions is None or not self.is_clean or result.cut_bytes:
            self.cut(result.end)
            self._write_again(scan_from, result.end)
            for file in self.log.row.between(scan_from, result.end + 1):
                file.sync()
            self.vfs.sync_folder(self.layout.commit_log)
        self.log.start_at(result.end)
        DerivedFiles(self).update(scan_from, result.end)
        return result

    def _merge_positions(self) -> None:
        """Take the lower positions of our two copies. After Java, ignore the copy beside the queue ends."""
        positions, copy = self.checkpoint.positions, self.ends.positions
        deleted = self.ends.deleted
        if copy is not None and not self.after_java:
            self._check_begin(deleted.get(ALL_TOPICS, 0))
        for topic in [topic for topic, offset in deleted.items() if offset <= self.log.begin]:
            del deleted[topic]  # the log has no record of it any more
        if copy is not None and (self.after_java or copy.dispatched < self.log.begin):
            self.ends = SavedEnds()
        elif copy is not None:
            if positions is None:
                log.warning("the checkpoint is damaged or missing; using its second copy")
                self.checkpoint = replace(self.checkpoint, log_ms=self.ends.log_ms)
            self.checkpoint = replace(self.checkpoint, positions=merge_positions(positions, copy))

    def _check_begin(self, begin: int) -> None:
        """Check that the log still begins where the last deletion of old files ended. Raises: BadStore."""
        if self.log.begin <= begin:
            return
        if self.policy is CorruptPolicy.QUARANTINE:
            log.error("the log should begin at %d; its files before %d are missing", begin, self.log.begin)
            return
        remedy = "restore it from a slave or a backup, or set corruptPolicy=quarantine to go on without its messages"
        raise missing_file(self.layout.commit_log, begin, remedy)

    def _scan_from(self) -> int:
        """Return the offset at which the checks begin: that of a record, a blank or the log's end."""
        files, positions = self.log.row.files, self.checkpoint.positions
        if self.checks_all:
            return self.log.begin
        if positions is not None:
            return max(positions.scan_from, self.log.begin)
        for file in reversed(files):
            first = self.log.sound_record(file.begin)
            if first is None and file is not files[0]:
                continue
            if self.is_clean or first is None or records.store_timestamp_ms(first) <= self.checkpoint.safe_ms:
                return file.begin
        return self.log.begin

    def _scan(self, offset: int) -> RecoveryResult:
        """Check the records from `offset` on, up to the end of the sound ones."""
        # Only our checkpoint is known to be whole. The records that Java's covers are in the last file, always read.
        result, end = RecoveryResult(offset, [offset]), offset
        result.passed.last_ms = self.checkpoint.log_ms if self.checkpoint.positions else 0
        while True:
            end += self.log.count_sound(self.log.chunk(end), end, result.passed)
            if end > result.record_offsets[-1]:
                result.record_offsets.append(end)
            positions = self.checkpoint.positions
            if self.is_clean and positions is not None and end > positions.flushed:
                log.warning("another broker appended to the log at offset %d, after we closed it", positions.flushed)
                self.is_clean = False
            record, following, problem = self.log.examine(end)
            if problem and not (record and (self._accept_from_java(end) or self._seal_forwarded(end))):
                if self._ends_before(end, problem, result):
                    return replace(result, end=end)
                continue
            if record is not None:
                _count_record(record, result.passed)
            end = following

    def _accept_from_java(self, offset: int) -> bool:
        """Accept a record without the property CRC if Java wrote it. Returns whether it was accepted.

        Java may leave our checkpoint unchanged. So a record counts as Java's if Java finds it sound and it is after all
        bytes that we had on disk. A torn record of ours cannot be mistaken for one: its own CRC, at least, is zeros.
        """
        positions = self.checkpoint.positions
        if positions is None or offset < max(positions.flushed, self.log.crc_from):
            return False
        crc_from, self.log.crc_from = self.log.crc_from, NO_CRC
        record = self.log.sound_record(offset)
        if record is None or not _has_whole_text(record):
            self.log.crc_from = crc_from
            return False
        log.warning("another broker wrote to the log from offset %d on; its records are kept", offset)
        return True

    def _seal_forwarded(self, offset: int) -> bool:
        """Correct the CRC of Java's copy of one of our records. Returns whether the record is such a copy.

        Java copies messages that are delayed, retried, or forwarded, with the first record's CRC in the properties. If
        that property comes last, it looks like the copy's own.
        """
        positions = self.checkpoint.positions
        if not self.after_java or (positions is not None and offset < positions.flushed):
            return False
        record, _ = self.log.parse(offset)
        if record is None or records.physical_offset(record) != offset:
            return False
        sealed = kernel.seal_copy(bytes(record))
        if sealed is None or not _has_whole_text(record):
            return False
        file = self.log.row.find(offset)
        assert file is not None
        file.write(offset - file.begin, sealed)
        self.is_clean = False  # so the file is synced
        log.warning("the record at offset %d is a copy with the CRC of its original; the CRC was corrected", offset)
        return True

    def _ends_before(self, offset: int, problem: str, result: RecoveryResult) -> bool:
        """Decide about the first bad record: whether the log ends before it. If not, the damage is fenced off. Raises:
        CorruptRecord, it is damaged, and the policy is to fail.
        """
        positions = self.checkpoint.positions
        if self.is_clean and positions is not None and offset == positions.flushed and self._is_blank(offset):
            return True
        used_end = self.log.last_used_byte(offset)
        survivor = self.log.next_sound(offset, used_end)
        if not self._is_damage(offset, survivor, used_end):
            result.cut_bytes = used_end - offset
            self.set_aside(offset, used_end, "cut")
            return True
        if self.policy is CorruptPolicy.FAIL:
            raise CorruptRecord(
                self.log.row.path_at(offset),
                offset,
                f"{problem}; these bytes had been on disk, so this is no torn tail. Restore the file from a slave or a "
                "backup, or set corruptPolicy=quarantine to go on without these messages",
            )
        end = survivor or max(used_end, min(self.synced, self.log.row.end))  # a lost tail may be zeros
        self.set_aside(offset, end, LOST if survivor is None else "damaged")
        self._lower_checkpoint(offset)
        if survivor is None:
            result.cut_bytes = end - offset
            return True
        self._fence(offset, survivor)
        result.fenced_bytes += survivor - offset
        return False

    def _is_damage(self, offset: int, survivor: int | None, used_end: int) -> bool:
        """Whether a crash alone cannot explain the bad record at `offset`. `survivor` is the next sound record."""
        return (
            self._was_on_disk(offset, survivor)
            or self.log.is_unreadable(offset, used_end + PAGE)
            or (not self.is_clean and self._has_all_sectors(offset, survivor, used_end))
        )

    def _has_all_sectors(self, offset: int, survivor: int | None, used_end: int) -> bool:
        """Whether all sectors of the bad record at `offset` were written, so that its bytes rotted later.

        The space of the log is zeros at first, and each write begins where the last one ended. So an older version of
        a sector ends with a zero. A complete sector may end with a zero too; then this returns False.
        """
        end = self._end_of_bad(offset, used_end) or survivor
        if end is None:
            return False
        for file in self.log.row.between(offset, end):
            low, high = max(offset - file.begin, 0) // SECTOR * SECTOR, min(end - file.begin, file.size)
            chunks = range(low, high // SECTOR * SECTOR, _CHUNK_BYTES)
            is_incomplete = any(0 in file.read(at, min(_CHUNK_BYTES, high - at))[SECTOR - 1 :: SECTOR] for at in chunks)
            # What follows may begin in the last sector with zeros only, which it has in any case.
            if is_incomplete or (high % SECTOR and not any(file.read(high - 1, SECTOR - (high - 1) % SECTOR))):
                return False
        return True

    def _end_of_bad(self, offset: int, used_end: int) -> int | None:
        """Return the end of the bad record at `offset` by its size field; None if nothing confirms the size."""
        try:
            record, end = self.log.parse(offset)
            if record is None or end == used_end:
                return end
            following, _ = self.log.parse(end)
        except CorruptRecord:
            return None
        return end if following is None or self.log.sound_record(end) is not None else None

    def _was_on_disk(self, offset: int, survivor: int | None) -> bool:
        """Whether the bytes at `offset` had been synced, by the mark of the last sync or by the checkpoint."""
        positions = self.checkpoint.positions
        if offset < self.synced:
            return True
        if positions is not None:
            return offset < positions.flushed
        if survivor is None:
            return False
        record = self.log.sound_record(survivor)
        return record is not None and (self.is_clean or records.store_timestamp_ms(record) <= self.checkpoint.log_ms)

    def _is_blank(self, offset: int) -> bool:
        """Whether no record was ever written at `offset`: a record begins with its size, which is not zero."""
        file = self.log.row.find(offset)
        return file is None or not any(file.read(offset - file.begin, SECTOR))

    def set_aside(self, begin: int, end: int, reason: str) -> None:
        set_aside(self.vfs, self.layout, self.log, begin, end, reason)

    def _lower_checkpoint(self, offset: int) -> None:
        """Save, before any change, that queues and index are right only before the damage."""
        positions = self.checkpoint.positions
        self.lower(positions and replace(positions, dispatched=min(positions.dispatched, offset)))
        if positions is None and self.index is not None:
            self.index.drop_all()

    def lower(self, positions: Positions | None) -> None:
        """Save, before the log is changed, that the store was not closed in order, and lower positions if there are."""
        if not self.vfs.exists(self.layout.abort):
            self.vfs.close(self.vfs.create(self.layout.abort, 0, allocate=False))
            self.vfs.sync_folder(self.layout.root)
        self.is_clean = False
        if positions is not None:
            self.checkpoint = replace(self.checkpoint, positions=positions)
            save(self.vfs, self.layout.checkpoint, self.checkpoint)

    def _fence(self, begin: int, end: int) -> None:
        """Replace the damaged bytes `[begin, end)` by a filler that every reader of the log skips."""
        survivor = self.log.sound_record(end)
        stored_ms = records.store_timestamp_ms(survivor) if survivor is not None else 0
        for file in self.log.row.between(begin, end):
            low, high = max(begin, file.begin), min(end, file.end)
            if high == file.end:
                file.write(low - file.begin, BLANK.pack(high - low, MAGIC_BLANK))
            else:
                file.write(low - file.begin, _filler(low, high - low, stored_ms))
            file.sync()

    def cut(self, end: int) -> None:
        """Delete the files after `end`, the last one first, and write zeros to the rest of the file of `end`. `run`
        syncs that file before any message is appended.
        """
        row = self.log.row
        while row.files and row.files[-1].begin > end:
            row.drop_last()
        file = row.find(end)
        if file is None:
            return
        for low, high in file.used_parts(end - file.begin):
            for begin in range(low, high, _CHUNK_BYTES):
                size = min(_CHUNK_BYTES, high - begin)
                if any(file.read(begin, size).strip(b"\0")):
                    file.write(begin, bytes(size))

    def _write_again(self, scan_from: int, end: int) -> None:
        """Write all pages again that no sync is known to have covered; `_run` syncs them.

        A failed sync drops the write, and marks the pages in memory as if they were on disk:

            sync fails ─ the broker ends ─ a start reads the records, syncs: no error ─ the power fails: they are lost
        """
        positions = self.checkpoint.positions
        begin = scan_from if positions is None else max(positions.flushed, self.log.begin)
        for file in self.log.row.between(begin, end):
            low, high = max(begin, file.begin) - file.begin, min(end, file.end) - file.begin
            while low < high:
                until = min(low - low % _CHUNK_BYTES + _CHUNK_BYTES, high)  # no page has parts of two chunks
                file.rewrite_pages(low, file.read(low, until - low))
                low = until


def _has_whole_text(record: memoryview) -> bool:
    """Whether topic and properties contain no zero byte. A sector that was not written is zeros."""
    fields = records.outline(record)
    return "\0" not in fields.topic and "\0" not in fields.properties.render()


def _count_record(record: memoryview, passed: Passed) -> None:
    passed.count += 1
    passed.last_ms = records.store_timestamp_ms(record)
    if (half := records.settled_half(record)) is not None:
        passed.finished_halves.add(half)


def _filler(offset: int, size: int, stored_ms: int) -> bytes:
    """Return a record of exactly `size` bytes. No queue takes it: its flag is that of a prepared transaction."""
    crc = size >= MIN_SIZE_BYTES + layout.PROPERTY_CRC_SIZE  # a record that needs a CRC is at least so large
    free = size - MIN_SIZE_BYTES - crc * layout.PROPERTY_CRC_SIZE
    topic = LOST_TOPIC if free >= len(LOST_TOPIC) else ""
    host = bytes(8)
    entry = Entry(topic, 0, bytes(max(free - len(topic), 0)), Properties(), 0, host, sys_flag=SysFlag.PREPARED)
    return records.encode(entry, Placed(offset, 0, stored_ms, host), crc)


_REPLAY_BATCH: Final = 10_000


class DerivedFiles:
    """Queues and index of one store, during its recovery: they agree with the log again.

        known to be right        up to the checkpoint's position, if the ends of queues are known; else nothing
        behind it                entries are removed, and made again from the log's records
        an entry without place   the hole of a lost record: the whole queue is made again

    A queue that ends too early is filled with gaps, so no new message gets the queue offset of a lost one.
    """

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    def update(self, scan_from: int, end: int) -> None:
        """Update queues and index to the log's end, from the offset up to which they are known to be right. The log's
        records were checked from `scan_from` on.
        """
        known_until = self._load_queues(scan_from, end)
        for queue in self._recovery.queues:
            self._cut_queue(queue, known_until)
        self._recovery.queue_builder.deleted = self._recovery.ends.deleted
        indexed = self._cut_index(known_until)
        last_offsets: dict[ConsumeQueue, int] = {}
        start = min(known_until, scan_from if indexed >= scan_from else self._recovery.log.begin)
        for count, record in enumerate(self._recovery.log.sound_records(start, min(scan_from, end)), 1):
            self._recovery.queue_builder.replay(bytes(record), last_offsets, known_until, indexed, fills_gaps=True)
            if count % _REPLAY_BATCH == 0:
                self._recovery.queue_builder.drain(known_until)
                self._recovery.queue_builder.index_keys()
        if known_until == self._recovery.log.begin:  # no entry is taken from files
            self._recovery.queue_rebuild.check_sound(start, scan_from)
        start = max(start, scan_from)
        while start < end:
            try:
                start = self._replay(start, end, last_offsets, known_until, indexed)
            except Hole as hole:
                log.warning("%s; the queue is built again from the log", hole)
                self._rebuild_queue(hole.queue, last_offsets, end)
                start += hole.following
            self._recovery.queue_builder.drain(known_until)
            self._recovery.queue_builder.index_keys()
        self._recovery.queue_builder.drain(end)
        self._fill_up()
        self._recovery.queue_builder.index_keys()

    def _replay(
        self, begin: int, end: int, last_offsets: dict[ConsumeQueue, int], dispatched: int, indexed: int
    ) -> int:
        """Replay some records of `[begin, end)`, and return the offset of the next one. Raises: Hole."""
        chunk = self._recovery.log.chunk(begin)[: end - begin]
        replayed_bytes = self._recovery.queue_builder.replay(chunk, last_offsets, dispatched, indexed)
        if replayed_bytes:
            return begin + replayed_bytes
        record, following = self._recovery.log.parse(begin)  # a blank, or a record larger than a chunk
        if record is not None:
            self._recovery.queue_builder.replay(bytes(record), last_offsets, dispatched, indexed)
        return following

    def _fill_up(self) -> None:
        """Write gaps for lost records at the ends of queues: no new message may get their queue offsets."""
        for (topic, queue_id), saved in self._recovery.ends.ends.items():
            queue = self._recovery.queues.get(topic, queue_id)
            if queue is not None and queue.next_offset < saved.end:
                lost_count = saved.end - queue.next_offset
                log.error("queue %s/%d: the last %d messages are lost", topic, queue_id, lost_count)
                queue.write_gap(saved.end)

    def _load_queues(self, scan_from: int, end: int) -> int:
        """Find the queues on disk, and return the log offset before which they are right."""
        positions = self._recovery.checkpoint.positions
        known_until = (
            min(max(positions.dispatched, self._recovery.log.begin), end) if positions is not None else scan_from
        )
        if positions is not None and self._recovery.ends.positions is not None:
            self._restore_queues(known_until)
            return known_until
        if positions is not None and self._recovery.ends.is_lost and not self._recovery.after_java:
            log.warning("the ends of queues are lost; all queues are built again from the log")
            self._recovery.queues.load(None if self._recovery.is_clean else known_until)
            return self._recovery.log.begin
        self._recovery.queues.load(None if self._recovery.is_clean else known_until)
        behind_last = [
            offset + size for queue in self._recovery.queues for offset, size in [queue.last_entry()] if size
        ]
        if not behind_last:
            return self._recovery.log.begin
        return min(max(behind_last), end) if self._recovery.is_clean and positions is None else known_until

    def _restore_queues(self, dispatched: int) -> None:
        """Restore the queues up to their saved ends, and repair damaged files."""
        damaged = self._recovery.queues.restore(
            self._recovery.ends.ends, None if self._recovery.is_clean else dispatched
        )
        for topic in self._recovery.ends.deleted:
            of_topic = self._recovery.queues.of_topic(topic)
            new_queues = {queue for queue in of_topic if (topic, queue.queue_id) in self._recovery.ends.ends}
            if len(new_queues) < len(of_topic):
                self._recovery.queues.remove_topic(topic, new_queues)
        for queue, begins in damaged.items():
            names = ", ".join(map(str, begins))
            log.warning("queue %s/%d: the files of entries %s are damaged", queue.topic, queue.queue_id, names)
        self._recovery.queue_rebuild.rebuild(damaged)

    def _cut_queue(self, queue: ConsumeQueue, dispatched: int) -> None:
        """Remove the entries of records from `dispatched` on. After a crash, also remove all bytes after them."""
        keep = queue.find(dispatched) if queue.last_entry()[0] >= dispatched else queue.next_offset
        if not self._recovery.is_clean and keep == queue.begin:
            # Perhaps no entry had been on disk, and the queue may have had earlier files.
            queue.restart(0)
        elif not self._recovery.is_clean or keep < queue.next_offset:
            queue.truncate(keep)
        has_saved_end = (queue.topic, queue.queue_id) in self._recovery.ends.ends
        while not self._recovery.is_clean and not has_saved_end and not self._last_entry_fits(queue):
            queue.truncate(queue.next_offset - 1)
        queue.forget_before(self._recovery.log.begin, dispatched)

    def _last_entry_fits(self, queue: ConsumeQueue) -> bool:
        """Whether the last entry belongs to the record that it points to: half an entry can look like a whole one."""
        offset, size = queue.last_entry()
        if not size or offset < self._recovery.log.begin:
            return True
        record = self._recovery.log.sound_record(offset)
        if record is None:
            return False
        fields = records.outline(record)
        return (fields.size, fields.topic, fields.queue_id, fields.queue_offset) == (
            size,
            queue.topic,
            queue.queue_id,
            queue.next_offset - 1,
        )

    def _cut_index(self, dispatched: int) -> int:
        """Remove the entries of records from `dispatched` on; return the offset up to which the index is complete."""
        if self._recovery.index is None:
            return self._recovery.log.end
        indexed = self._cut_entries(self._recovery.index, dispatched)
        if not all(file.has_valid_header(self._recovery.log.stored_ms) for file in self._recovery.index.files):
            return self._drop_index(self._recovery.index, "has a header that does not fit what follows it")
        return indexed

    def _cut_entries(self, index: Index, dispatched: int) -> int:
        positions = self._recovery.checkpoint.positions
        if index.is_damaged or index.has_unreadable():
            return self._drop_index(index, "was cut, or cannot be read")
        if positions is None:
            while (
                not self._recovery.is_clean
                and index.files
                and index.files[-1].end_ms > self._recovery.checkpoint.index_ms
            ):
                index.drop_last()
            # After a crash the last record may lack some keys: a full file can end between two of them.
            complete_until = index.end_offset if self._recovery.is_clean else index.end_offset - 1
            return max(complete_until, self._recovery.log.begin - 1) if index.files else self._recovery.log.begin - 1
        if positions.index_file == UNKNOWN_INDEX:
            return self._drop_index(index, "was switched off, or found damaged")
        name = f"{positions.index_file:017d}" if positions.index_file else ""
        if name and not any(file.name == name and file.next_entry >= positions.index_next for file in index.files):
            return self._drop_index(index, "lacks entries that the checkpoint names")
        if not self._recovery.is_clean or index.end_offset >= dispatched:
            index.cut(name, positions.index_next, dispatched)
            if index.has_unreadable():
                return self._drop_index(index, "cannot be read")
        return dispatched - 1

    def _drop_index(self, index: Index, reason: str) -> int:
        log.warning("the index %s; it is built again from the log", reason)
        index.drop_all(self._recovery.layout.set_aside)
        return self._recovery.log.begin - 1

    def _rebuild_queue(self, queue: ConsumeQueue, last_offsets: dict[ConsumeQueue, int], end: int) -> None:
        for record in self._recovery.log.sound_records(self._recovery.log.begin, end):
            fields = records.outline(record)
            if (fields.topic, fields.queue_id) == (queue.topic, queue.queue_id):
                self._recovery.queue_builder.replay(
                    bytes(record), last_offsets, self._recovery.log.begin, end, fills_gaps=True
                )
