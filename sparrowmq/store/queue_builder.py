"""Queue builder: add the messages of the commit log to consume queues and index, in batches.

An appended message first has its entry among the unwritten entries of its queue. After a burst, `drain` writes the
entries of each queue at once and raises the queue's end, which wakes the pulls that wait there. Index keys are
collected for longer, because hashing is fast only for hundreds of keys at once.

Some records do not come through `MessageStore.append`: recovery finds them, or they are copied from a master. `replay`
reads these records from the log, and finds out whether they already are in a queue:

    its log offset is not after the last entry's       already there: nothing to do
    its queue offset is the queue's next               add it
    ... is lower                                       the topic was deleted and created: the queue begins again there
    ... is higher, and the queue is empty              older ones are no longer in the log: the queue begins there
    ... is higher                                      entries are missing: `Hole`, and the queue is replayed from
                                                       the log's beginning; gaps replace records that are lost there
    no queue can have it                               it stays without an entry, and a warning is logged

A damaged or false master can send records of the last kind: their topic is no name of a folder, or their queue offset
counts more messages than the log can have had. An entry for each would fill the disk.

The kernel takes the records that are plain (kernel/follow.py), a chunk of the log in one call.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import InvalidName, SparrowError
from sparrowmq.kernel.follow import Follower, add_keys
from sparrowmq.kernel.log_tail import KeyHashes
from sparrowmq.kernel.record_layout import MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record import Outline, outline_at, physical_offset
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.store import index_keys
from sparrowmq.store.index import BATCH, Index
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.entries import Entry
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.timer_wheel import RECALL

log = logging.getLogger(__name__)

_SIZE_AND_MAGIC: Final = struct.Struct(">ii")  # the begin of a record
_CHUNK_BYTES: Final = 1 << 18  # of the log, whose keys are added to the index at once: some milliseconds
_NO_LIMIT: Final = (1 << 63) - 1
_MAX_QUEUE_OFFSET: Final = 1 << 55  # of a queue: the names of its files count bytes
# Numbers that a master may pass over: it lost the messages, or counts those inside one record of Java's inner batches.
_MAX_SKIPPED_OFFSETS: Final = 4096
_PREPARED: Final[int] = SysFlag.PREPARED
_TRANSACTION_MASK: Final[int] = SysFlag.TRANSACTION_MASK
_ROLLBACK: Final[int] = SysFlag.ROLLBACK


class Hole(SparrowError):
    """A queue lacks entries before the record that is replayed."""

    def __init__(self, queue: ConsumeQueue, queue_offset: int) -> None:
        super().__init__(queue, queue_offset)
        self.queue = queue
        self.queue_offset = queue_offset
        self.following = 0  # where the next record begins in the replayed bytes

    def __str__(self) -> str:
        queue = self.queue
        name = f"{queue.topic}/{queue.queue_id}"
        return f"queue {name} ends at {queue.next_offset}, entries up to {self.queue_offset} are missing"


class QueueBuilder(Follower):
    """The appended messages that are not yet in queues and index."""

    def __init__(self, queues: QueueTable, index: Index | None, delay_levels_ms: tuple[int, ...]) -> None:
        super().__init__(queues.by_topic, (SCHEDULE_TOPIC, TIMER_TOPIC))
        self.has_keys = index is not None
        self.position = Watermark()  # the offset up to which the queues know the log
        self.followed = 0
        self._queues = queues
        self._index = index
        self._delay_levels_ms = delay_levels_ms
        # Returns the offset up to which the log may be shown now. An elected master shows only messages that its
        # successor will have too.
        self.limit: Callable[[], int] | None = None
        # Entries, by queue, that were taken out of the queues because they may not be shown yet.
        self._hidden_entries: dict[ConsumeQueue, bytes] = {}
        self._no_entry_count = 0  # records that no queue can have

    def drain(self, end: int) -> None:
        """Write the unwritten entries and raise the ends of the queues, which then know the log up to `end`. Raises:
        DiskFull, OSError, an entry could not be written; the next call tries again.
        """
        pending, self.queues_to_write = self.queues_to_write, []
        if self.limit is not None or self._hidden_entries:
            pending = self._within_limit(pending)
            for entries in self._hidden_entries.values():
                end = min(end, ENTRY.unpack_from(entries)[0])
        while pending:
            try:
                pending[-1].write_pending()
            except BaseException:
                self.queues_to_write = pending + self.queues_to_write
                for queue in pending:  # hidden entries come after those that could not be written
                    queue.unwritten.raw(self._hidden_entries.pop(queue, b""))
                raise
            pending.pop()
        self.position.advance(end)

    def _within_limit(self, pending: list[ConsumeQueue]) -> list[ConsumeQueue]:
        """Leave the entries in the queues that may be shown, and hide the rest. Returns the queues with entries."""
        unwritten, self._hidden_entries = self._hidden_entries, {}
        limit = self.limit() if self.limit is not None else _NO_LIMIT
        for queue in pending:
            unwritten[queue] = unwritten.get(queue, b"") + queue.unwritten.content()
        for queue, entries in unwritten.items():
            at = 0
            while at < len(entries):
                offset, size, _ = ENTRY.unpack_from(entries, at)
                if offset + size > limit:
                    break
                at += ENTRY_SIZE
            if at < len(entries):
                self._hidden_entries[queue] = entries[at:]
            _replace_unwritten(queue, entries[:at])
        return [queue for queue in unwritten if queue.has_unwritten]

    def drop_unwritten(self, topic: str, new_queues: Collection[ConsumeQueue]) -> None:
        """Drop the unwritten entries of a topic's queues, except new queues, before the queues are deleted."""
        queues = (*self._hidden_entries, *self.queues_to_write)
        deleted = {queue: None for queue in queues if queue.topic == topic and queue not in new_queues}
        for queue in deleted:
            self._hidden_entries.pop(queue, b"")
            queue.unwritten.cut(0)
        self.queues_to_write = [queue for queue in self.queues_to_write if queue not in deleted]

    def last_entry(self, queue: ConsumeQueue) -> int:
        """Return the log offset of a queue's last message, whether it may be shown or not; -1 without any."""
        hidden = self._hidden_entries.get(queue, b"")
        if not hidden:
            return queue.last_entry()[0]
        return Entry(*ENTRY.unpack_from(hidden, len(hidden) - ENTRY_SIZE)).offset

    @property
    def has_batch_to_index(self) -> bool:
        """Whether a whole batch of keys was collected: more keys would only make the pause longer."""
        return len(self.keys) >= BATCH

    def index_keys(self) -> None:
        if self._index is not None and self.keys:
            self._index.put(self.keys)
        self.keys = KeyHashes()

    def keys_of(self, content: bytes, keys: KeyHashes) -> int:
        """Add the keys of the whole records at the beginning of `content`. Returns the end of the last one."""
        at = add_keys(content, 0, keys)
        while size := _whole_record_size(content, at):
            _collect_keys(outline_at(content, at), keys)
            at = add_keys(content, at + size, keys)
        return at

    def fill_index(self, commit_log: LogReader) -> bool:
        """Add the keys of the next 256 KiB of records to the index that it lacks because the disk had no room for its
        next file. Returns whether there was room, and more are missing.

            put ── no room ── later keys are dropped ── each second: `fill_index`
                      room again: the log from `lacks_from` on, 256 KiB at a time ── its end ── `put` goes on

        A store that is closed or killed before that builds the whole index again at its next start, as far as there is
        room.
        """
        index, end, keys = self._index, commit_log.end, KeyHashes()
        if index is None or commit_log.written < end:
            return False
        begin = max(index.lacks_from, commit_log.begin)
        following = begin + self.keys_of(commit_log.chunk(begin, min(_CHUNK_BYTES, end - begin)), keys)
        if following == begin < end:  # a blank, a record larger than that, or damage
            record = next(commit_log.sound_records(begin, end), None)
            following = end
            if record is not None:
                following = physical_offset(record) + len(record)
                self.keys_of(bytes(record), keys)
        is_last = following >= end
        had_room = index.fill(keys, following, is_last)
        if had_room and is_last:
            self.keys = KeyHashes()  # they are in the index now
        return had_room and not is_last

    def replay(
        self,
        content: bytes,
        last_offsets: dict[ConsumeQueue, int],
        dispatched: int,
        indexed: int,
        fills_gaps: bool = False,
    ) -> int:
        """Dispatch the sound records at the beginning of `content`, of which queues and index may know some. Returns
        the end of the last one.

        Args:
            last_offsets: the log offsets of the queues' last messages.
            dispatched: a queue that lacks records before it was deleted, and is not created again for them.
            indexed: the index knows the records up to there.
            fills_gaps: whether missing entries are lost, and become gaps.
        Raises: Hole, entries are missing before a record, and are not known to be lost; `Hole.following` is its end.
        """
        indexed = indexed if self._index is not None else _NO_LIMIT
        at = self.take(content, 0, indexed, last_offsets, dispatched)
        while size := _whole_record_size(content, at):
            try:
                self._replay(outline_at(content, at), last_offsets, dispatched, indexed, fills_gaps)
            except Hole as hole:
                hole.following = at + size
                raise
            at = self.take(content, at + size, indexed, last_offsets, dispatched)
        return at

    def follow(self, content: bytes, begin: int) -> int:
        """Dispatch the whole records at the beginning of `content`, which is at `begin`, as a slave does. Returns the
        last one's end. Entries that are missing before one of them are lost; a warning is logged.

        Raises: DiskFull, OSError, as `drain`; `followed` is the offset to continue at.
        """
        indexed = -1 if self._index is not None else _NO_LIMIT
        at = self._follow_plain(content, begin, 0, indexed)
        while size := _whole_record_size(content, at):
            record = outline_at(content, at)
            if self._has_entry(record):
                queue = self._obtain(record)
                if queue is not None and (record.queue_offset == queue.next_offset or self._follow_leap(queue, record)):
                    code = tags_code(record, self._delay_levels_ms)
                    self.add(queue, record.physical_offset, record.size, code)
            if self._index is not None:
                _collect_keys(record, self.keys)
            self.followed_ms = record.store_timestamp_ms
            at = self._follow_plain(content, begin, at + size, indexed)
        return begin + at

    def _follow_plain(self, content: bytes, begin: int, at: int, indexed: int) -> int:
        at = self.take(content, at, indexed)
        if at:
            self.followed = begin + at
        return at

    def _obtain(self, record: Outline) -> ConsumeQueue | None:
        try:
            return self._queues.obtain(record.topic, record.queue_id)
        except InvalidName as error:
            self._log_without_entry(record, str(error))
            return None

    def _log_without_entry(self, record: Outline, reason: str) -> None:
        """Log that a record has no entry, for the first such records and then ever more rarely."""
        self._no_entry_count += 1
        count = self._no_entry_count
        if not count & (count - 1):
            log.warning("the record at offset %d of the log is in no queue: %s", record.physical_offset, reason)

    def _follow_leap(self, queue: ConsumeQueue, record: Outline) -> bool:
        try:
            return self._make_ready(queue, record, False)
        except Hole as hole:
            log.warning("%s; nor were they in the master's log", hole)
            return self._make_ready(queue, record, True)

    def _replay(
        self, record: Outline, last_offsets: dict[ConsumeQueue, int], dispatched: int, indexed: int, fills_gaps: bool
    ) -> None:
        if record.physical_offset > indexed:
            _collect_keys(record, self.keys)
        if not self._has_entry(record):
            return
        if record.physical_offset >= dispatched:
            queue = self._obtain(record)
        else:
            queue = self._queues.get(record.topic, record.queue_id)
        if queue is None or (record.physical_offset < dispatched and queue.is_empty and not queue.has_unwritten):
            return
        last_offset = last_offsets.get(queue)
        if last_offset is None:
            last_offset = last_offsets[queue] = queue.last_entry()[0]
        if record.physical_offset > last_offset and self._make_ready(queue, record, fills_gaps):
            code = tags_code(record, self._delay_levels_ms)
            self.add(queue, record.physical_offset, record.size, code)
            last_offsets[queue] = record.physical_offset

    def _has_entry(self, record: Outline) -> bool:
        if record.sys_flag & _PREPARED:  # prepared or rolled back: Java gives it no place in a queue
            return False
        return not self.deleted or record.physical_offset >= self.deleted.get(record.topic, 0)

    def _make_ready(self, queue: ConsumeQueue, record: Outline, fills_gaps: bool) -> bool:
        """Make the record's queue offset the queue's next one. Returns False if the queue cannot have the record."""
        queue_offset = record.queue_offset
        if queue_offset == queue.next_offset:
            return True
        hidden = self._hidden_entries.pop(queue, b"")
        if hidden:
            if not queue.has_unwritten:
                self.queues_to_write.append(queue)
            _replace_unwritten(queue, hidden + queue.unwritten.content())
        if queue.has_unwritten:
            queue.write_pending()
            self.queues_to_write.remove(queue)
        if not self._is_plausible(queue, record):
            self._log_without_entry(record, f"its queue offset {queue_offset} cannot follow {queue.next_offset}")
            return False
        if queue_offset < queue.next_offset or queue.is_empty:
            queue.restart(queue_offset)
        elif fills_gaps:
            queue.write_gap(queue_offset)
        else:
            raise Hole(queue, queue_offset)
        return True

    def _is_plausible(self, queue: ConsumeQueue, record: Outline) -> bool:
        """Whether the entries that are missing before a record can have had a place in the log."""
        if not 0 <= record.queue_offset <= _MAX_QUEUE_OFFSET:
            return False
        missing_count = record.queue_offset - queue.next_offset
        if missing_count <= _MAX_SKIPPED_OFFSETS or queue.is_empty:
            return True
        return (
            missing_count - _MAX_SKIPPED_OFFSETS <= (record.physical_offset - queue.last_entry()[0]) // MIN_SIZE_BYTES
        )


def _collect_keys(record: Outline, target: KeyHashes) -> None:
    keys, unique_key = record.properties.keys, record.properties.unique_key
    is_rollback = record.sys_flag & _TRANSACTION_MASK == _ROLLBACK
    if (keys or unique_key) and not is_rollback:
        index_keys.add_keys(target, record.topic, record.physical_offset, record.store_timestamp_ms, keys, unique_key)


def _replace_unwritten(queue: ConsumeQueue, entries: bytes) -> None:
    queue.unwritten.cut(0)
    queue.unwritten.raw(entries)


def _whole_record_size(content: bytes, at: int) -> int:
    """Return the size of the record at `at`; 0 if there is no whole record."""
    remaining_bytes = len(content) - at
    if remaining_bytes < MIN_SIZE_BYTES:
        return 0
    size, magic = _SIZE_AND_MAGIC.unpack_from(content, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return 0
    return size if MIN_SIZE_BYTES <= size <= remaining_bytes else 0


def tags_code(record: Outline, delay_levels_ms: tuple[int, ...]) -> int:
    """The tags code in a record's queue entry."""
    if record.topic == SCHEDULE_TOPIC:
        level = whole_number(record.properties.get(Property.DELAY))
        if level is not None and level > 0:
            return record.store_timestamp_ms + delay_levels_ms[min(level, len(delay_levels_ms)) - 1]
    if record.topic == TIMER_TOPIC:
        due_ms = whole_number(record.properties.get(Property.TIMER_OUT_MS))
        if due_ms is not None:
            return due_ms | (RECALL if record.properties.get(Property.TIMER_DEL_UNIQKEY) else 0)
    return record.properties.tags_code
