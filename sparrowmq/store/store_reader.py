"""The messages of a store, as upper floors read them: by queue, by log offset, by time and by key."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.store.index import Index
from sparrowmq.store.key_search import find_by_unique_id, search_steps
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.queue_builder import QueueBuilder
from sparrowmq.store.queues import cold_reads
from sparrowmq.store.queues import queue_reading as reading
from sparrowmq.store.queues.plain_reading import PlainReader
from sparrowmq.store.queues.queue_reading import Read
from sparrowmq.store.queues.queue_table import QueueTable

log = logging.getLogger(__name__)


class StoreReader:
    """The reading half of a store."""

    def __init__(
        self, commit_log: CommitLog, queues: QueueTable, index: Index | None, queue_builder: QueueBuilder
    ) -> None:
        self.queues = queues  # all queues, also those that were asked for but never had a message
        self._log = commit_log
        self._index = index
        self._queue_builder = queue_builder

    def publish(self) -> None:
        """Write the messages of the current burst, and show them to readers."""
        raise NotImplementedError

    def read(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int = 262_144, selector: Selector = ALL
    ) -> Read:
        """Read up to `max_count` messages of a queue from `offset` on, as views into the log; at least one, if any. The
        result's `next_offset` moves past messages that do not match the selector.
        """
        return reading.read(self._log, self.queues.get(topic, queue_id), offset, max_count, max_bytes, selector)

    def plain_reader(self) -> PlainReader:
        return PlainReader(self._log)

    def cold_read(self, topic: str, queue_id: int, offset: int, size: int) -> Callable[[], None] | None:
        """The function to call in a thread before `read`, if that would wait for the disk (cold_reads.py)."""
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else cold_reads.cold_read(self._log, queue, offset, size)

    def record_at(self, offset: int, size: int | None = None) -> memoryview | None:
        """The record that begins at `offset`; None if no record begins there. Any number is a valid argument."""
        if offset >= self._log.written:
            self.publish()
        record = reading.record_at(self._log, offset, size)
        if record is None:
            return None
        raw = record.obj  # it begins with the record
        assert isinstance(raw, bytes)
        return record if self._is_verified(offset, len(record), raw) else None

    def parked_at(self, offset: int, size: int | None = None) -> memoryview | None:
        """A record that was stored at `offset` to be taken out later; None if it was deleted with its log file, or is
        damaged and `corruptPolicy` is quarantine. Raises: CorruptRecord.
        """
        if offset >= self._log.written:
            self.publish()
        return reading.parked_at(self._log, offset, size)

    def collect_prepared(self, begin: int, end: int, prepared: set[int]) -> int:
        """Add the prepared offsets, other than 0, of about 1 MiB of records from `begin` on; return the offset to
        continue at.
        """
        if end > self._log.written:
            self.publish()
        return self._log.collect_prepared(max(begin, self._log.begin), end, prepared)

    def copy_at(self, offset: int, size: int | None = None) -> bytes | None:
        """A copy of the record that `record_at` returns. A known size halves the cost."""
        if size is not None and offset + size <= self._log.written:
            content = self._log.copy(offset, size)
            return content if content and self._is_verified(offset, size, content) else None
        view = self.record_at(offset, size)
        return None if view is None else view.tobytes()

    def _is_verified(self, offset: int, size: int, raw: bytes) -> bool:
        if self._log.is_verified(offset, size, raw):
            return True
        log.error("the record at offset %d of the log is damaged; it is not served", offset)
        return False

    def log_bytes(self, offset: int, max_bytes: int) -> memoryview | None:
        """Up to `max_bytes` of the log itself, from one file, for a slave; None if `offset` is not in the log."""
        if offset + max_bytes > self._log.written:
            self.publish()
        file = self._log.row.find(offset)
        if file is None or not self._log.begin <= offset < self._log.end:
            return None
        return self._log.view(offset, min(max_bytes, file.end - offset, self._log.end - offset))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """The first queue offset stored at or after a time; with `upper`, the last one at or before it."""
        queue = self.queues.get(topic, queue_id)
        return reading.offset_by_time(self._log, queue, timestamp_ms, upper) if queue else 0

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        queue = self.queues.get(topic, queue_id)
        return reading.store_time(self._log, queue, offset) if queue else None

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[memoryview]:
        return at_once(self.search_steps(topic, key, max_count, begin_ms, end_ms))

    def search_steps(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> Steps[list[memoryview]]:
        """The steps of `search_steps` of key_search.py: records with a key or unique key, newest first."""
        self._queue_builder.index_keys()
        return search_steps(self._index, self.record_at, topic, key, max_count, begin_ms, end_ms)

    def find_by_unique_id(self, topic: str, unique_id: str, begin_ms: int, end_ms: int) -> list[memoryview]:
        """Find all records with the unique id. Raises: BadStore, as `find_by_unique_id` of key_search.py."""
        self._queue_builder.index_keys()
        return find_by_unique_id(self._index, self.record_at, topic, unique_id, begin_ms, end_ms)

    @property
    def indexed(self) -> tuple[int, int]:
        """Store timestamp and offset of the last record that the index knows; (0, -1) if there is none."""
        return (self._index.end_ms, self._index.end_offset) if self._index else (0, -1)

    @property
    def index_lacks_from_ms(self) -> int:
        """The store time from which on the index lacks keys; 0 if it has all."""
        return (self._index.lacks_from_ms or 0) if self._index is not None else 0
