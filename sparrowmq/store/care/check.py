"""Verify a whole store: yield each violation as a sentence, or nothing if there is none. It reads, and repairs nothing.

    for violation in verify(StoreSettings(path)):
        print(violation)

The store must not be open: the queues and the index of a running broker lag behind its log. The checks:

- the log's files follow each other, and have one size; each record is sound and contains its own offset; a file ends in
  a blank; all bytes after the last record are zero;
- in each queue offsets are dense; each record has its entry and each entry its record, with size and tags code;
- each index entry points to a record that has such a key, chains lead back, and each key of each record is found; the
  header of each index file matches its entries;
- all queues of the last checkpoint exist;
- no offset in the checkpoint is after the log's end.

Every test of the store ends with this check (the idea of bbolt's `Tx.Check`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.kernel.records import Passed
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import Property, SysFlag
from sparrowmq.protocol.messages.record import Outline
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.store import checkpoint
from sparrowmq.store.care.progress import Watch
from sparrowmq.store.index import Index, IndexFile
from sparrowmq.store.index_keys import key_hash, keys_of
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE, LOCK_OF_JAVA, Layout
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.scrub import STEP_BYTES
from sparrowmq.store.queue_builder import tags_code
from sparrowmq.store.queues.consume_queue import ConsumeQueue, OpenFiles
from sparrowmq.store.queues.entries import Entry
from sparrowmq.store.queues.queue_ends import QueueEnds
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, Unsynced, Vfs, content_of

_OPEN_FILES: Final = 1024
_BYTES_PER_COMPARISON: Final = 512 * ENTRY_SIZE
_TAGS_CODE_SIZE: Final = 8


def verify(settings: StoreSettings, vfs: Vfs | None = None, watch: Watch | None = None) -> Iterator[str]:
    """Yield each violation in the store as a sentence."""
    vfs, layout = vfs or Disk(), settings.layout
    try:
        log, queues = open_to_check(settings, vfs)
        index = Index.from_settings(settings, vfs, Unsynced(), writable=False)
    except BadStore as bad:
        yield str(bad)
        return
    saved = checkpoint.load(vfs, layout.checkpoint)
    if saved.positions is not None:
        log.crc_from = saved.positions.crc_from
    check = _Check(settings, log, queues, index, watch)
    yield from check.log_and_queues()
    yield from check.all_queues()
    yield from check.missing_queues(vfs)
    if index is not None:
        yield from check.index_files(index)
    yield from check.checkpoint(saved)
    log.close()
    queues.files.close()
    if index is not None:
        index.close()


def open_to_check(settings: StoreSettings, vfs: Vfs) -> tuple[CommitLog, QueueTable]:
    layout = settings.layout
    log = CommitLog(vfs, layout.commit_log, settings.commit_log_file_size, writable=False)
    files = OpenFiles(vfs, _OPEN_FILES, Unsynced())
    queues = QueueTable(files, layout, settings.consume_queue_file_entries)
    queues.load(0, writable=False)
    return log, queues


class _Check:
    def __init__(
        self, settings: StoreSettings, log: CommitLog, queues: QueueTable, index: Index | None, watch: Watch | None
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._log = log
        self._queues = queues
        self._index = index
        # The queue offset that the next record of a queue should have.
        self._next: dict[tuple[str, int], int] = {}
        # The missing entries of a queue. They do not count if the topic was deleted and created again.
        self._missing_entries: dict[tuple[str, int], list[str]] = {}

    def log_and_queues(self) -> Iterator[str]:
        """Read the whole log, and look up each record in its queue and in the index."""
        log = self._log
        offset, watch = log.begin, self._watch
        used_end = log.last_used_byte(offset) if watch is not None else 0
        while offset < log.row.end:
            if watch is not None:
                watch("checking the log", offset - log.begin, used_end - log.begin)
            try:
                record, following = log.parse(offset)
                problem = log.problem(record, offset) if record is not None else None
            except CorruptRecord as bad:
                record, following, problem = None, offset, bad.expected
            if problem:
                used_end = log.last_used_byte(offset)
                if used_end == offset:
                    break
                survivor = log.next_sound(offset, used_end)
                yield f"the log is damaged from offset {offset} to {survivor or used_end}: {problem}"
                if survivor is None:
                    break
                following = survivor
            elif record is not None:
                yield from self._record(records.outline(record))
            offset = following
        log.start_at(offset)
        for violations in self._missing_entries.values():
            yield from violations

    def all_queues(self) -> Iterator[str]:
        checked_count, total = 0, sum(queue.end.value - queue.begin for queue in self._queues)
        for queue in self._queues:
            yield from self._queue(queue, checked_count, total)
            checked_count += queue.end.value - queue.begin

    def _queue(self, queue: ConsumeQueue, checked_count: int, total: int) -> Iterator[str]:
        """Compare the entries of a queue with the log, and its end with the records that were found."""
        name = f"queue {queue.topic}/{queue.queue_id}"
        expected = self._next.get((queue.topic, queue.queue_id))
        if expected is not None and _end_of_messages(queue, expected) != expected:
            yield f"{name} ends at {queue.end.value}, the log says {expected}"
        if queue.count_used_entries() > queue.end.value:
            yield f"{name} ends at {queue.end.value}, but there is content after that"
        for queue_offset in range(queue.find(self._log.begin), queue.end.value):
            if self._watch is not None:
                self._watch("checking queues", checked_count + queue_offset - queue.begin, total)
            entry = queue.read(queue_offset, 1)[0]
            if not entry.is_gap:
                yield from self._entry(name, queue, queue_offset, entry)

    def missing_queues(self, vfs: Vfs) -> Iterator[str]:
        """Look for the queues of the last checkpoint, if no broker of Java has run since."""
        layout = self._settings.layout
        saved_ends = QueueEnds(vfs, layout.ends).load()
        if (
            saved_ends.positions is None
            or saved_ends.positions.dispatched < self._log.begin
            or _last_used_by_java(vfs, layout)
        ):
            if self._next and not list(self._queues):
                yield "the log has messages, but there is no queue; the next start builds them again"
            return
        for (topic, queue_id), saved in saved_ends.ends.items():
            queue = self._queues.get(topic, queue_id)
            if saved.end == saved.begin:
                continue
            if queue is None or queue.is_empty:
                problem = f"it ended at {saved.end}, and the next start builds it again"
                yield f"queue {topic}/{queue_id} is missing; {problem}"
            elif queue.end.value < saved.end and (topic, queue_id) not in self._next:
                yield f"queue {topic}/{queue_id} ends at {queue.end.value}, the last checkpoint says {saved.end}"

    def index_files(self, index: Index) -> Iterator[str]:
        checked_count, total = 0, sum(file.next_entry for file in index.files)
        for file in index.files:
            if not file.has_valid_header(self._log.stored_ms):
                yield f"index {file.name}: its header does not fit its entries, or their records"
            used_slots = set()
            for number in range(1, file.next_entry):
                if self._watch is not None:
                    self._watch("checking the index", checked_count + number, total)
                key, offset, _, previous = file.entry(number)
                used_slots.add(key % file.slot_count)
                if previous >= number:
                    yield f"index {file.name}: entry {number} comes after entry {previous}, its predecessor"
                yield from self._index_entry(file, number, key, offset)
            if len(used_slots) != file.used_slots:
                yield f"index {file.name}: {len(used_slots)} slots are used, the header says {file.used_slots}"
            checked_count += file.next_entry

    def checkpoint(self, saved: checkpoint.Checkpoint) -> Iterator[str]:
        positions = saved.positions
        if positions is None:
            return
        for name in ("scan_from", "dispatched", "flushed"):
            if getattr(positions, name) > self._log.end:
                yield f"the checkpoint says {name} {getattr(positions, name)}, the log ends at {self._log.end}"

    def _record(self, record: Outline) -> Iterator[str]:
        place = f"the record at {record.physical_offset}"
        if self._index is not None:
            try:
                for missing_key in self._missing_keys(record):
                    yield f"{place} has the key {missing_key!r}, which the index does not know"
            except BadStore as bad:
                yield f"{place}: {bad}"
        if record.sys_flag & SysFlag.PREPARED:
            return
        key = record.topic, record.queue_id
        expected = self._next.get(key, record.queue_offset)
        queue = self._queues.get(*key)
        if record.queue_offset < expected:
            self._missing_entries.pop(key, None)
        elif record.queue_offset > expected and not (queue and _is_gap(queue, expected)):
            yield f"{place} is number {record.queue_offset} of queue {key[0]}/{key[1]}, {expected} is missing"
        self._next[key] = record.queue_offset + 1
        if queue is not None:  # else the topic was deleted
            yield from self._entry_of(queue, record, tags_code(record, self._settings.delay_levels_ms))

    def _entry_of(self, queue: ConsumeQueue, record: Outline, code: int) -> Iterator[str]:
        entry = queue.entry(record.queue_offset)
        place = f"entry {record.queue_offset} of queue {queue.topic}/{queue.queue_id}"
        if entry is None or entry.offset < record.physical_offset:
            violations = self._missing_entries.setdefault((queue.topic, queue.queue_id), [])
            violations.append(f"{place} is missing, its record is at {record.physical_offset}")
        elif entry.offset == record.physical_offset and entry.size != record.size:
            yield f"{place} says {entry.size} bytes, the record has {record.size}"
        elif (
            entry.offset == record.physical_offset
            and entry.tags_code != code
            # The delay levels may have changed since. In stores of Java, a timer's entry has the hash of its tag.
            and record.topic not in (SCHEDULE_TOPIC, TIMER_TOPIC)
        ):
            yield f"{place} has the tags code {entry.tags_code}, the record {code}"

    def _entry(self, name: str, queue: ConsumeQueue, queue_offset: int, entry: Entry) -> Iterator[str]:
        place = f"{name}: entry {queue_offset} points to offset {entry.offset}"
        record = self._outline_at(entry.offset)
        if record is None:
            yield f"{place}, where no record is"
        elif (record.topic, record.queue_id, record.queue_offset) != (queue.topic, queue.queue_id, queue_offset):
            yield f"{place}, where {record.topic}/{record.queue_id} number {record.queue_offset} is"

    def _index_entry(self, file: IndexFile, number: int, key_hash_code: int, offset: int) -> Iterator[str]:
        if offset < self._log.begin:
            return
        record = self._outline_at(offset)
        if record is None or key_hash_code not in [key_hash(record.topic, key) for key in _possible_keys(record)]:
            yield f"index {file.name}: entry {number} points to offset {offset}, where no such key is"

    def _missing_keys(self, record: Outline) -> list[str]:
        index = self._index
        is_rollback = record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.ROLLBACK
        if index is None or not index.files or is_rollback or record.physical_offset < index.files[0].begin_offset:
            return []
        stored_ms = record.store_timestamp_ms
        return [
            key
            for key in keys_of(record.properties)
            if record.physical_offset not in index.find(record.topic, key, stored_ms - 1000, stored_ms + 1000)
        ]

    def _outline_at(self, offset: int) -> Outline | None:
        if not self._log.begin <= offset < self._log.end:
            return None
        record = self._log.sound_record(offset)
        return records.outline(record) if record is not None else None


def _last_used_by_java(vfs: Vfs, layout: Layout) -> bool:
    return vfs.exists(layout.lock) and content_of(vfs, layout.lock, len(LOCK_OF_JAVA)) == LOCK_OF_JAVA


def _is_gap(queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the queue has a gap in place of a lost message, as after `corruptPolicy=quarantine`."""
    return queue.begin <= queue_offset < queue.end.value and queue.read(queue_offset, 1).is_gap(0)


def _end_of_messages(queue: ConsumeQueue, at_least: int) -> int:
    end: int = queue.end.value
    while end > at_least and _is_gap(queue, end - 1):
        end -= 1
    return end


def _possible_keys(record: Outline) -> list[str]:
    """The keys of a record that the index may have: its own keys and, in a store of Java 5.4, its tag."""
    return [*keys_of(record.properties), f"T#{record.properties.get(Property.TAGS)}"]


def is_consistent(settings: StoreSettings, vfs: Vfs, watch: Watch | None = None) -> bool:
    """Check quickly whether the log of a store that is not open is sound, and its queues are those of the log.

    The log is read once, and each queue beside it, in large parts. That takes a tenth of the time of `verify`. After a
    no, `verify` says what is wrong. It also knows the few states that look wrong here and are not, such as a topic that
    was deleted and created again. The index is not read.
    """
    layout = settings.layout
    try:
        log, queues = open_to_check(settings, vfs)
        positions = checkpoint.load(vfs, layout.checkpoint).positions
        saved_ends = QueueEnds(vfs, layout.ends).load()
        if positions is None or saved_ends.positions is None:
            return False
        log.crc_from = positions.crc_from
        quick_check = _QuickCheck(settings, log, queues)
        try:
            if not quick_check.log_agrees(watch or (lambda *_: None)):
                return False
            if max(positions.scan_from, positions.dispatched, positions.flushed) > quick_check.end:
                return False
            end_by_queue = {key: saved.end for key, saved in saved_ends.ends.items() if saved.end != saved.begin}
            return quick_check.queues_agree() and all(quick_check.reaches(*item) for item in end_by_queue.items())
        finally:
            log.close()
            queues.files.close()
    except (BadStore, CorruptRecord, OSError):
        return False


class _QueueRow:
    """The entries that the log says a queue has, of which the first ones were compared already."""

    __slots__ = ("compared", "entries", "has_tags", "queue")

    def __init__(self, queue: ConsumeQueue | None, begin: int, has_tags: bool) -> None:
        self.queue = queue
        self.compared = begin  # the queue offset up to which they were compared
        self.entries = bytearray()  # those from there on
        self.has_tags = has_tags

    @property
    def end(self) -> int:
        return self.compared + len(self.entries) // ENTRY_SIZE

    def agrees(self) -> bool:
        entries, queue = self.entries, self.queue
        while entries and queue is not None:
            on_disk = queue.read(self.compared, len(entries) // ENTRY_SIZE).content
            expected = bytes(entries[: len(on_disk)])
            is_same = on_disk == expected if self.has_tags else _without_tags(on_disk) == _without_tags(expected)
            if not on_disk or not is_same:
                return False
            self.compared += len(on_disk) // ENTRY_SIZE
            del entries[: len(on_disk)]
        self.compared = self.end
        entries.clear()
        return True


class _QuickCheck:
    def __init__(self, settings: StoreSettings, log: CommitLog, queues: QueueTable) -> None:
        self.end = log.begin
        self._settings = settings
        self._log = log
        self._queues = queues
        self._rows: dict[tuple[str, int], _QueueRow] = {}

    def log_agrees(self, watch: Watch) -> bool:
        log = self._log
        used_end = log.last_used_byte(log.begin)
        while self.end < log.row.end:
            watch("checking the log", self.end - log.begin, used_end - log.begin)
            chunk = log.chunk(self.end, STEP_BYTES)
            size = log.count_sound(chunk, self.end, Passed())
            if size:
                records_found = [records.outline(record) for record in records.walk(chunk[:size])]
                following = self.end + size
            else:  # a blank, a record larger than a step, damage, or the log's end
                try:
                    record, following = log.parse(self.end)
                except CorruptRecord:
                    break
                if record is not None and log.problem(record, self.end) is not None:
                    break
                records_found = [records.outline(record)] if record is not None else []
            if not all(map(self._matches, records_found)):
                return False
            self.end = following
        return self.end >= used_end and all(row.agrees() for row in self._rows.values())

    def _matches(self, record: Outline) -> bool:
        """Whether a record has the next queue offset of its queue, and those before it were right."""
        if record.sys_flag & SysFlag.PREPARED:
            return True
        key = record.topic, record.queue_id
        row = self._rows.get(key)
        if row is None:
            # The delay levels may have changed since. In stores of Java, a timer's entry has the hash of its tag.
            has_tags = record.topic not in (SCHEDULE_TOPIC, TIMER_TOPIC)
            row = self._rows[key] = _QueueRow(self._queues.get(*key), record.queue_offset, has_tags)
        if record.queue_offset != row.end:
            return False
        code = tags_code(record, self._settings.delay_levels_ms) if row.has_tags else 0
        row.entries += ENTRY.pack(record.physical_offset, record.size, code)
        return len(row.entries) < _BYTES_PER_COMPARISON or row.agrees()

    def queues_agree(self) -> bool:
        for queue in self._queues:
            row = self._rows.get((queue.topic, queue.queue_id))
            if queue.count_used_entries() > queue.end.value:
                return False
            if row is not None and row.end != queue.end.value:
                return False
            if row is None and sum(queue.last_entry()) > self._log.begin:
                return False
        return True

    def reaches(self, key: tuple[str, int], end: int) -> bool:
        queue = self._queues.get(*key)
        return queue is not None and queue.end.value >= end


def _without_tags(entries: bytes) -> list[bytes]:
    return [entries[at : at + ENTRY_SIZE - _TAGS_CODE_SIZE] for at in range(0, len(entries), ENTRY_SIZE)]
