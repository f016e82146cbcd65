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

from sparrowmq.errors import BadStore
from sparrowmq.kernel.records import Passed
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import Property, SysFlag
from sparrowmq.protocol.messages.record import Outline
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.store import checkpoint
from sparrowmq.store.care.progress import Watch
from sparrowmq.store.index import Index, IndexFile
from sparrowmq.store.index_keys import key_hash, keys_of
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE, LOCK_OF_JAVA
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.log.scrub import STEP_BYTES, check_records
from sparrowmq.store.queue_builder import tags_code
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.entries import Entry
from sparrowmq.store.queues.queue_ends import QueueEnds
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, Unsynced, Vfs, content_of

_OPEN_FILES: Final = 1024
_BYTES_PER_COMPARISON: Final = 512 * ENTRY_SIZE


def verify(
    settings: StoreSettings, vfs: Vfs | None = None, watch: Watch | None = None, *, reads_index: bool = True
) -> Iterator[str]:
    """Yield each violation in the store as a sentence. Without the index it takes a tenth of the time."""
    vfs, layout = vfs or Disk(), settings.layout
    try:
        log, queues = open_to_check(settings, vfs)
        index = Index.from_settings(settings, vfs, Unsynced(), writable=False) if reads_index else None
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


def open_to_check(settings: StoreSettings, vfs: Vfs) -> tuple[LogReader, QueueTable]:
    layout = settings.layout
    log = LogReader.open(settings, vfs)
    files = OpenFiles(vfs, _OPEN_FILES, Unsynced())
    queues = QueueTable(files, layout, settings.consume_queue_file_entries)
    queues.load(0, writable=False)
    return log, queues


class _QueueRow:
    """The next entries of one queue, as the log says. The last ones were not compared yet."""

    __slots__ = ("begin", "entries", "is_delayed", "missing", "queue", "verified")

    def __init__(self, queue: ConsumeQueue | None, begin: int, is_delayed: bool) -> None:
        self.queue = queue  # None if the topic was deleted
        self.begin = begin  # the queue offset of the first entry that was not compared
        self.entries = bytearray()  # those from there on
        self.verified: list[tuple[int, int]] = []  # the queue offsets of entries that are as the log says
        self.missing: list[str] = []  # missing entries. They do not count if the topic was deleted and created again
        self.is_delayed = is_delayed

    @property
    def end(self) -> int:
        return self.begin + len(self.entries) // ENTRY_SIZE

    def compare(self) -> Iterator[str]:
        queue = self.queue
        while self.entries and queue is not None:
            is_there = self.begin >= queue.min_offset  # else an earlier file was deleted
            on_disk = queue.stored_entries(self.begin, len(self.entries) // ENTRY_SIZE) if is_there else b""
            expected = bytes(self.entries[: len(on_disk) or ENTRY_SIZE])
            end = self.begin + len(expected) // ENTRY_SIZE
            if on_disk == expected:
                self.verified.append((self.begin, end))
            else:
                for number, entry in enumerate(ENTRY.iter_unpack(expected), self.begin):
                    yield from self._compare_one(queue, number, Entry(*entry))
            self.begin = end
            del self.entries[: len(expected)]
        self.begin = self.end
        self.entries.clear()

    def _compare_one(self, queue: ConsumeQueue, number: int, expected: Entry) -> Iterator[str]:
        entry = queue.entry(number)
        place = f"entry {number} of queue {queue.topic}/{queue.queue_id}"
        if entry is None or entry.offset < expected.offset:
            self.missing.append(f"{place} is missing, its record is at {expected.offset}")
        elif entry.offset == expected.offset and entry.size != expected.size:
            yield f"{place} says {entry.size} bytes, the record has {expected.size}"
        elif entry.offset == expected.offset and entry.tags_code != expected.tags_code and not self.is_delayed:
            yield f"{place} has the tags code {entry.tags_code}, the record {expected.tags_code}"

    def unverified(self, begin: int) -> Iterator[int]:
        """Yield the queue offsets from `begin` on whose entries were not found to be as the log says."""
        assert self.queue is not None
        for verified_begin, verified_end in sorted(self.verified):
            yield from range(begin, verified_begin)
            begin = max(begin, verified_end)
        yield from range(begin, self.queue.end.value)


class _Check:
    def __init__(
        self, settings: StoreSettings, log: LogReader, queues: QueueTable, index: Index | None, watch: Watch | None
    ) -> None:
        self._settings = settings
        self._watch = watch or (lambda *_: None)
        self._log = log
        self._queues = queues
        self._index = index
        self._rows: dict[tuple[str, int], _QueueRow] = {}

    def log_and_queues(self) -> Iterator[str]:
        """Read the whole log, and look up each record in its queue and in the index."""
        log = self._log
        offset = log.begin
        used_end = log.last_used_byte(offset)
        while offset < log.row.end:
            self._watch("checking the log", offset - log.begin, used_end - log.begin)
            chunk = log.chunk(offset, STEP_BYTES)
            size = log.count_sound(chunk, offset, Passed())
            sound_records: Iterator[memoryview] = records.walk(chunk[:size])
            following, problem = offset + size, None
            if not size:  # a blank, a large record, damage, or the log's end
                following, problem = check_records(log, offset)
                sound_records = log.walk(offset, following)
            for record in sound_records:
                yield from self._record(records.outline(record))
            if problem and used_end <= offset:
                break
            if problem:
                survivor = log.next_sound(offset, used_end)
                problem = problem.removeprefix("there should be ")
                yield f"the log is damaged from offset {offset} to {survivor or used_end}: {problem}"
                if survivor is None:
                    break
                following = survivor
            offset = following
        log.start_at(offset)
        for row in self._rows.values():
            yield from row.compare()
        for row in self._rows.values():
            yield from row.missing

    def all_queues(self) -> Iterator[str]:
        checked_count, total = 0, sum(queue.end.value - queue.begin for queue in self._queues)
        for queue in self._queues:
            self._watch("checking queues", checked_count, total)
            yield from self._queue(queue)
            checked_count += queue.end.value - queue.begin
        self._watch("checking queues", checked_count, total)

    def _queue(self, queue: ConsumeQueue) -> Iterator[str]:
        """Compare the entries of a queue with the log, and its end with the records that were found."""
        name = f"queue {queue.topic}/{queue.queue_id}"
        row = self._rows.get((queue.topic, queue.queue_id))
        if row is not None and _end_of_messages(queue, row.end) != row.end:
            yield f"{name} ends at {queue.end.value}, the log says {row.end}"
        if queue.count_used_entries() > queue.end.value:
            yield f"{name} ends at {queue.end.value}, but there is content after that"
        row = row or _QueueRow(queue, queue.begin, False)
        for queue_offset in row.unverified(queue.find(self._log.begin)):
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
            or (vfs.exists(layout.lock) and content_of(vfs, layout.lock, len(LOCK_OF_JAVA)) == LOCK_OF_JAVA)
        ):
            if self._rows and not list(self._queues):
                yield "the log has messages, but there is no queue; the next start builds them again"
            return
        for (topic, queue_id), saved in saved_ends.ends.items():
            queue = self._queues.get(topic, queue_id)
            if saved.end == saved.begin:
                continue
            if queue is None or queue.is_empty:
                problem = f"it ended at {saved.end}, and the next start builds it again"
                yield f"queue {topic}/{queue_id} is missing; {problem}"
            elif queue.end.value < saved.end and (topic, queue_id) not in self._rows:
                yield f"queue {topic}/{queue_id} ends at {queue.end.value}, the last checkpoint says {saved.end}"

    def index_files(self, index: Index) -> Iterator[str]:
        checked_count, total = 0, sum(file.next_entry for file in index.files)
        for file in index.files:
            if not file.has_valid_header(self._log.stored_ms):
                yield f"index {file.name}: its header does not fit its entries, or their records"
            used_slots = set()
            for number in range(1, file.next_entry):
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
        row = self._rows.get(key)
        if row is None:
            # The delay levels may have changed since. In stores of Java, a timer's entry has the hash of its tag.
            is_delayed = record.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
            row = self._rows[key] = _QueueRow(self._queues.get(*key), record.queue_offset, is_delayed)
        queue, expected = row.queue, row.end
        if record.queue_offset != expected:
            yield from row.compare()
            row.begin = record.queue_offset
            if record.queue_offset < expected:
                row.missing.clear()
            elif not (queue and _is_gap(queue, expected)):
                yield f"{place} is number {record.queue_offset} of queue {key[0]}/{key[1]}, {expected} is missing"
        code = tags_code(record, self._settings.delay_levels_ms)
        row.entries += ENTRY.pack(record.physical_offset, record.size, code)
        if len(row.entries) >= _BYTES_PER_COMPARISON:
            yield from row.compare()

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
        # In a store of Java 5.4 a tag is a key, too.
        keys = [] if record is None else [*keys_of(record.properties), f"T#{record.properties.get(Property.TAGS)}"]
        if record is None or key_hash_code not in [key_hash(record.topic, key) for key in keys]:
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


def _is_gap(queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the queue has a gap in place of a lost message, as after `corruptPolicy=quarantine`."""
    return queue.begin <= queue_offset < queue.end.value and queue.read(queue_offset, 1).is_gap(0)


def _end_of_messages(queue: ConsumeQueue, at_least: int) -> int:
    end: int = queue.end.value
    while end > at_least and _is_gap(queue, end - 1):
        end -= 1
    return end
