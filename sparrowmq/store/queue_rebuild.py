"""Rebuild missing or damaged queue files from the part of the log between their neighbours.

    file before        damaged file          file after
    ... entry ─┐       ?   ?   ?   ?       ┌─ entry ...
    log        ▼                           ▼
    ───────────●═══════════════════════════●──────────────    only this is read, once for all damaged files

The queue's end is known from elsewhere (queue_ends.py). So a record that the log does not have any more, or has only
damaged, becomes a gap, and no queue offset is used twice. Where other brokers have a copy of the log, a damaged record
becomes no gap, because consumers would skip it: the file is rebuilt once the log is repaired.

If two records have the same queue offset, the later one counts: a broker that keeps no record of deletions may have
deleted the topic and created it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from sparrowmq.errors import CorruptRecord
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import Outline, outline
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE, GAP_ENTRY
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queue_builder import tags_code
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.entries import Entries

log = logging.getLogger(__name__)

_ENTRIES_PER_READ: Final = 512

Damaged: TypeAlias = dict[ConsumeQueue, list[int]]


class QueueRebuild:
    def __init__(
        self,
        commit_log: LogReader,
        delay_levels_ms: tuple[int, ...],
        deleted: Mapping[str, int],
        awaits_copy: bool = False,
    ) -> None:
        self._log = commit_log
        self._awaits_copy = awaits_copy
        self._delay_levels_ms = delay_levels_ms
        self._deleted = deleted
        # Files not to read now. The search for a neighbour can find one more damaged file.
        self._damaged_files: dict[ConsumeQueue, set[int]] = {}

    def rebuild_file(self, queue: ConsumeQueue, begin: int) -> None:
        self.rebuild({queue: [begin]})

    def rebuild(self, damaged: Damaged) -> None:
        """Rebuild files, given by their first entries. Raises: CorruptRecord, the log is damaged there too, and other
        brokers may have a copy of it.
        """
        if not damaged:
            return
        try:
            self._rebuild(damaged)
        finally:
            for queue, begins in damaged.items():
                self._damaged_files[queue].difference_update(begins)

    def _rebuild(self, damaged: Damaged) -> None:
        for queue, begins in damaged.items():
            self._damaged_files.setdefault(queue, set()).update(begins)
        ranges = [self._log_range(queue, begins) for queue, begins in damaged.items()]
        low, high = min(begin for begin, _ in ranges), max(end for _, end in ranges)
        pages = {(queue.topic, queue.queue_id): _Pages(queue, begins) for queue, begins in damaged.items()}
        for record in self._log.sound_records(low, high):
            record_fields = outline(record)
            page = pages.get((record_fields.topic, record_fields.queue_id))
            if page is not None and self._has_entry(record_fields):
                code = tags_code(record_fields, self._delay_levels_ms)
                page.put(
                    record_fields.queue_offset, ENTRY.pack(record_fields.physical_offset, record_fields.size, code)
                )
        self.check_sound(low, high)
        for page in pages.values():
            page.finish()

    def check_sound(self, low: int, high: int) -> None:
        """Refuse a gap in a queue for a damaged record that other brokers may have. Raises: CorruptRecord."""
        damaged = [offset for offset in self._log.suspects if low <= offset < high]
        if damaged and self._awaits_copy:
            path = self._log.row.path_at(min(damaged))
            raise CorruptRecord(
                path, min(damaged), "a queue file is damaged too, and is rebuilt once the log is repaired"
            )

    def _has_entry(self, record: Outline) -> bool:
        is_deleted = record.physical_offset < self._deleted.get(record.topic, 0)
        return not is_deleted and not record.sys_flag & SysFlag.PREPARED

    def _log_range(self, queue: ConsumeQueue, begins: Iterable[int]) -> tuple[int, int]:
        damaged_files = self._damaged_files[queue]
        entries_before = range(queue.begin, min(begins))
        entries_after = range(max(begins) + queue.file_entries, queue.end.value)
        low = _nearest(queue, entries_before, damaged_files, last=True)
        high = _nearest(queue, entries_after, damaged_files, last=False)
        return max(low or 0, self._log.begin), self._log.written if high is None else high


class _Pages:
    """The damaged files of one queue. One of them is being filled."""

    def __init__(self, queue: ConsumeQueue, begins: Iterable[int]) -> None:
        self._queue = queue
        self._unwritten = set(begins)
        self._begins = set(begins)
        self._begin = -1
        self._content = bytearray()

    def put(self, queue_offset: int, entry: bytes) -> None:
        begin = self._queue.file_of(queue_offset)
        if begin not in self._begins or queue_offset >= self._queue.end.value:
            return
        if begin != self._begin:
            self._turn_to(begin)
        at = (queue_offset - begin) * ENTRY_SIZE
        self._content[at : at + ENTRY_SIZE] = entry

    def finish(self) -> None:
        self._write()
        for begin in sorted(self._unwritten):
            self._turn_to(begin)
            self._write()

    def _turn_to(self, begin: int) -> None:
        self._write()
        queue = self._queue
        count = min(queue.end.value - begin, queue.file_entries)
        written = queue.read(begin, count).content if begin not in self._unwritten else b""
        self._content = bytearray(written or GAP_ENTRY * count)
        self._begin = begin

    def _write(self) -> None:
        if self._begin < 0:
            return
        lost = sum(self._content[at : at + ENTRY_SIZE] == GAP_ENTRY for at in range(0, len(self._content), ENTRY_SIZE))
        queue = self._queue
        name = f"{queue.topic}/{queue.queue_id}"
        log.warning("queue %s: entries from %d on were built again from the log", name, self._begin)
        if lost:
            log.error("queue %s: the log has no record of %d of them", name, lost)
        queue.replace_file(self._begin, bytes(self._content))
        self._unwritten.discard(self._begin)
        self._begin = -1


def _nearest(queue: ConsumeQueue, within: range, damaged_files: set[int], last: bool) -> int | None:
    """The log offset of the first or last message of these entries, without damaged files; None if there is none."""
    step = queue.file_entries
    starts = [
        start
        for begin in range(queue.file_of(within.start), within.stop, step)
        if begin not in damaged_files
        for start in range(max(begin, within.start), min(begin + step, within.stop), _ENTRIES_PER_READ)
    ]
    for start in reversed(starts) if last else starts:
        entries: Entries = queue.read(start, min(_ENTRIES_PER_READ, within.stop - start))
        indexes = range(len(entries))
        for i in reversed(indexes) if last else indexes:
            if not entries.is_gap(i):
                return entries.offset(i)
    return None
