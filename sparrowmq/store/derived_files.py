"""The files that are derived from the log: recovery makes queues and index agree with it again.

    known to be right        up to the checkpoint's position, if the ends of queues are known; else nothing
    behind it                entries are removed, and made again from the log's records
    an entry without place   the hole of a lost record: the whole queue is made again

A queue that ends too early is filled with gaps, so no new message gets the queue offset of a lost one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from sparrowmq.protocol.messages import record as records
from sparrowmq.store.checkpoint import UNKNOWN_INDEX, Checkpoint
from sparrowmq.store.keys.index import Index
from sparrowmq.store.layout import Layout
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.queue_builder import Hole, QueueBuilder
from sparrowmq.store.queue_rebuild import QueueRebuild
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_ends import SavedEnds
from sparrowmq.store.queues.queue_table import QueueTable

log = logging.getLogger(__name__)

_REPLAY_BATCH: Final = 10_000


@dataclass(slots=True)
class DerivedFiles:
    """Queues and index of one store, during its recovery.

    Attributes:
        clean: the store was closed in order.
        after_java: a Java broker has opened the store since us.
        ends: the ends of queues as they were saved.
    """

    layout: Layout
    log: CommitLog
    queues: QueueTable
    index: Index | None
    dispatch: QueueBuilder
    checkpoint: Checkpoint
    ends: SavedEnds
    mending: QueueRebuild
    clean: bool
    after_java: bool

    def update(self, scan_from: int, end: int) -> None:
        """Update queues and index to the log's end, from the offset up to which they are known to be right.

        Args:
            scan_from: the offset from which on the log's records were checked.
        """
        known = self._load_queues(scan_from, end)
        for queue in self.queues:
            self._cut_queue(queue, known)
        self.dispatch.deleted = self.ends.deleted
        indexed = self._cut_index(known)
        last_offsets: dict[ConsumeQueue, int] = {}
        start = min(known, scan_from if indexed >= scan_from else self.log.begin)
        for count, record in enumerate(self.log.sound_records(start, min(scan_from, end)), 1):
            self.dispatch.replay(record, last_offsets, known, indexed, healing=True)
            if count % _REPLAY_BATCH == 0:
                self.dispatch.drain(known)
                self.dispatch.index_keys()
        if known == self.log.begin:  # no entry is taken from files
            self.mending.check_sound(start, scan_from)
        start = max(start, scan_from)
        while start < end:
            try:
                start = self._replay(start, end, last_offsets, known, indexed)
            except Hole as hole:
                log.warning("%s; the queue is built again from the log", hole)
                self._heal(hole.queue, last_offsets, end)
                start = hole.following
            self.dispatch.drain(known)
            self.dispatch.index_keys()
        self.dispatch.drain(end)
        self._fill_up()
        self.dispatch.index_keys()

    def _replay(
        self, begin: int, end: int, last_offsets: dict[ConsumeQueue, int], dispatched: int, indexed: int
    ) -> int:
        """Replay some records of `[begin, end)`, and return the offset of the next one. Raises: Hole."""
        chunk = self.log.chunk(begin)[: end - begin]
        following = self.dispatch.replay_all(chunk, begin, last_offsets, dispatched, indexed)
        if following > begin:
            return following
        record, following = self.log.parse(begin)  # a blank, or a record larger than a chunk
        if record is not None:
            self.dispatch.replay_all(bytes(record), begin, last_offsets, dispatched, indexed)
        return following

    def _fill_up(self) -> None:
        """Write gaps for lost records at the ends of queues: no new message may get their queue offsets."""
        for (topic, queue_id), wanted in self.ends.ends.items():
            queue = self.queues.get(topic, queue_id)
            if queue is not None and queue.next_offset < wanted.end:
                lost = wanted.end - queue.next_offset
                log.error("queue %s/%d: the last %d messages are lost", topic, queue_id, lost)
                queue.write_gap(wanted.end)

    def _load_queues(self, scan_from: int, end: int) -> int:
        """Find the queues on disk, and return the log offset before which they are right."""
        positions = self.checkpoint.positions
        known = min(max(positions.dispatched, self.log.begin), end) if positions is not None else scan_from
        if positions is not None and self.ends.positions is not None:
            self._restore_queues(known)
            return known
        if positions is not None and self.ends.is_lost and not self.after_java:
            log.warning("the ends of queues are lost; all queues are built again from the log")
            self.queues.load(None if self.clean else known)
            return self.log.begin
        self.queues.load(None if self.clean else known)
        behind_last = [offset + size for queue in self.queues for offset, size in [queue.last_entry()] if size]
        if not behind_last:
            return self.log.begin
        return min(max(behind_last), end) if self.clean and positions is None else known

    def _restore_queues(self, dispatched: int) -> None:
        """Restore the queues up to their saved ends, and repair damaged files."""
        damaged = self.queues.restore(self.ends.ends, None if self.clean else dispatched)
        for topic in self.ends.deleted:
            of_topic = self.queues.of_topic(topic)
            new = {queue for queue in of_topic if (topic, queue.queue_id) in self.ends.ends}
            if len(new) < len(of_topic):
                self.queues.remove_topic(topic, new)
        for queue, begins in damaged.items():
            names = ", ".join(map(str, begins))
            log.warning("queue %s/%d: the files of entries %s are damaged", queue.topic, queue.queue_id, names)
        self.mending.rebuild(damaged)

    def _cut_queue(self, queue: ConsumeQueue, dispatched: int) -> None:
        """Remove the entries of records from `dispatched` on. After a crash, also remove all bytes after them."""
        keep = queue.find(dispatched) if queue.last_entry()[0] >= dispatched else queue.next_offset
        if not self.clean and keep == queue.begin:
            # Perhaps no entry had been on disk, and the queue may have had earlier files.
            queue.restart(0)
        elif not self.clean or keep < queue.next_offset:
            queue.truncate(keep)
        proved = (queue.topic, queue.queue_id) in self.ends.ends
        while not self.clean and not proved and not self._last_entry_fits(queue):
            queue.truncate(queue.next_offset - 1)
        queue.forget_before(self.log.begin, dispatched)

    def _last_entry_fits(self, queue: ConsumeQueue) -> bool:
        """Whether the last entry belongs to the record that it points to: half an entry can look like a whole one."""
        offset, size = queue.last_entry()
        if not size or offset < self.log.begin:
            return True
        record = self.log.sound_record(offset)
        if record is None:
            return False
        found = records.outline(record)
        return (found.size, found.topic, found.queue_id, found.queue_offset) == (
            size,
            queue.topic,
            queue.queue_id,
            queue.next_offset - 1,
        )

    def _cut_index(self, dispatched: int) -> int:
        """Remove the entries of records from `dispatched` on; return the offset up to which the index is complete."""
        if self.index is None:
            return self.log.end
        indexed = self._cut_entries(self.index, dispatched)
        if not all(file.makes_sense(self.log.stored_ms) for file in self.index.files):
            return self._drop_index(self.index, "has a header that does not fit what follows it")
        return indexed

    def _cut_entries(self, index: Index, dispatched: int) -> int:
        """Do the work of `_cut_index`, except the check of the files that are left."""
        positions = self.checkpoint.positions
        if index.is_damaged or index.has_unreadable():
            return self._drop_index(index, "was cut, or cannot be read")
        if positions is None:
            while not self.clean and index.files and index.files[-1].end_ms > self.checkpoint.index_ms:
                index.drop_last()
            # After a crash the last record may lack some keys: a full file can end between two of them.
            whole = index.end_offset if self.clean else index.end_offset - 1
            return max(whole, self.log.begin - 1) if index.files else self.log.begin - 1
        if positions.index_file == UNKNOWN_INDEX:
            return self._drop_index(index, "was switched off, or found damaged")
        name = f"{positions.index_file:017d}" if positions.index_file else ""
        if name and not any(file.name == name and file.next >= positions.index_next for file in index.files):
            return self._drop_index(index, "lacks entries that the checkpoint names")
        if not self.clean or index.end_offset >= dispatched:
            index.cut(name, positions.index_next, dispatched)
            if index.has_unreadable():
                return self._drop_index(index, "cannot be read")
        return dispatched - 1

    def _drop_index(self, index: Index, reason: str) -> int:
        """Delete the index, set damaged files aside, and return the offset up to which the index is complete."""
        log.warning("the index %s; it is built again from the log", reason)
        index.drop_all(self.layout.set_aside)
        return self.log.begin - 1

    def _heal(self, queue: ConsumeQueue, last_offsets: dict[ConsumeQueue, int], end: int) -> None:
        """Build one queue again from all its records in the log."""
        for record in self.log.sound_records(self.log.begin, end):
            found = records.outline(record)
            if (found.topic, found.queue_id) == (queue.topic, queue.queue_id):
                self.dispatch.replay(record, last_offsets, self.log.begin, end, healing=True)
