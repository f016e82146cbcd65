"""A quick check of a log and its queues: every record is sound, and each record and queue entry have each other.

The log is read once, and each queue beside it, in large parts. That takes a tenth of the time of `check.verify`. The
answer is only yes or no: after a no, `verify` says what is wrong. It also knows the few states that look wrong here and
are not, such as a topic that was deleted and created again. The index is not looked at.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import Outline
from sparrowmq.protocol.messages.soundness import Passed
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.store import checkpoint
from sparrowmq.store.care.check import opened
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.scrub import STEP_BYTES
from sparrowmq.store.progress_vfs import Watch
from sparrowmq.store.queue_builder import tags_code
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_ends import QueueEnds
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs

_BATCH: Final = 512 * ENTRY_SIZE
_TAGS_CODE_SIZE: Final = 8


def agree(settings: StoreSettings, vfs: Vfs, watch: Watch | None = None) -> bool:
    """Whether the log of a store that is not open is sound, and its queues are those of the log."""
    layout = settings.layout
    try:
        log, queues = opened(settings, vfs)
        positions = checkpoint.load(vfs, layout.checkpoint).positions
        known = QueueEnds(vfs, layout.ends).load()
        if positions is None or known.positions is None:
            return False
        log.crc_from = positions.crc_from
        reading = _Reading(settings, log, queues)
        try:
            if not reading.log_agrees(watch or (lambda *_: None)):
                return False
            if max(positions.scan_from, positions.dispatched, positions.flushed) > reading.end:
                return False
            ended = {key: wanted.end for key, wanted in known.ends.items() if wanted.end != wanted.begin}
            return reading.queues_agree() and all(reading.reaches(*each) for each in ended.items())
        finally:
            log.close()
            queues.files.close()
    except (BadStore, CorruptRecord, OSError):
        return False


class _Row:
    """The entries that the log says a queue has, of which the first ones were compared already.

    Attributes:
        compared: the queue offset up to which they were compared.
        entries: those from there on.
    """

    __slots__ = ("compared", "entries", "has_tags", "queue")

    def __init__(self, queue: ConsumeQueue | None, begin: int, has_tags: bool) -> None:
        self.queue = queue
        self.compared = begin
        self.entries = bytearray()
        self.has_tags = has_tags

    @property
    def end(self) -> int:
        return self.compared + len(self.entries) // ENTRY_SIZE

    def agrees(self) -> bool:
        """Compare the entries with those of the queue, and forget them."""
        entries, queue = self.entries, self.queue
        while entries and queue is not None:
            found = queue.read(self.compared, len(entries) // ENTRY_SIZE).content
            if not found or not self._are_equal(found, bytes(entries[: len(found)])):
                return False
            self.compared += len(found) // ENTRY_SIZE
            del entries[: len(found)]
        self.compared = self.end
        entries.clear()
        return True

    def _are_equal(self, entries: bytes, expected: bytes) -> bool:
        return entries == expected if self.has_tags else _without_tags(entries) == _without_tags(expected)


class _Reading:
    def __init__(self, settings: StoreSettings, log: CommitLog, queues: QueueTable) -> None:
        self.end = log.begin
        self._settings = settings
        self._log = log
        self._queues = queues
        self._rows: dict[tuple[str, int], _Row] = {}

    def log_agrees(self, watch: Watch) -> bool:
        """Read the log to its end, and compare the entries of its records with the queues."""
        log = self._log
        used = log.last_used_byte(log.begin)
        while self.end < log.row.end:
            watch("checking the log", self.end - log.begin, used - log.begin)
            chunk = log.chunk(self.end, STEP_BYTES)
            size = log.count_sound(chunk, self.end, Passed())
            if size:
                found = [records.outline(each) for each in records.walk(chunk[:size])]
                following = self.end + size
            else:  # a blank, a record larger than a step, damage, or the log's end
                try:
                    record, following = log.parse(self.end)
                except CorruptRecord:
                    break
                if record is not None and log.problem(record, self.end) is not None:
                    break
                found = [records.outline(record)] if record is not None else []
            if not all(map(self._takes, found)):
                return False
            self.end = following
        return self.end >= used and all(row.agrees() for row in self._rows.values())

    def _takes(self, record: Outline) -> bool:
        """Whether a record has the next queue offset of its queue, and those before it were right."""
        if record.sys_flag & SysFlag.PREPARED:
            return True
        key = record.topic, record.queue_id
        row = self._rows.get(key)
        if row is None:
            # The delay levels may have changed since. In stores of Java, a timer's entry has the hash of its tag.
            has_tags = record.topic not in (SCHEDULE_TOPIC, TIMER_TOPIC)
            row = self._rows[key] = _Row(self._queues.get(*key), record.queue_offset, has_tags)
        if record.queue_offset != row.end:
            return False
        code = tags_code(record, self._settings.delay_levels_ms) if row.has_tags else 0
        row.entries += ENTRY.pack(record.physical_offset, record.size, code)
        return len(row.entries) < _BATCH or row.agrees()

    def queues_agree(self) -> bool:
        """Whether no queue has more entries than the log has records."""
        for queue in self._queues:
            row = self._rows.get((queue.topic, queue.queue_id))
            if queue.used_entries() > queue.end.value:
                return False
            if row is not None and row.end != queue.end.value:
                return False
            if row is None and sum(queue.last_entry()) > self._log.begin:
                return False
        return True

    def reaches(self, key: tuple[str, int], end: int) -> bool:
        """Whether a queue ends where the last checkpoint says, or later."""
        queue = self._queues.get(*key)
        return queue is not None and queue.end.value >= end


def _without_tags(entries: bytes) -> list[bytes]:
    return [entries[at : at + ENTRY_SIZE - _TAGS_CODE_SIZE] for at in range(0, len(entries), ENTRY_SIZE)]
