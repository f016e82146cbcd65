"""The message store: the only door through which upper floors come to the disk.

    with MessageStore.open(StoreSettings(path)) as store:
        placed = store.append(Entry("Orders", 0, b"body", Properties(), born_timestamp_ms=..., born_host=...))
        store.dispatch()                                    # by itself while `run` is running
        store.flush()                                       # likewise; `store.safety(True).when(placed.end, ...)` then
        found = store.read("Orders", 0, offset=0, max_count=32)

One event loop owns a store, and nothing here awaits but `run`: append, dispatch and read follow each other,
and need no lock. Threads see only files (flush, checkpoint, the next log file).

The messages of one burst of requests are written and shown at the end of the loop's turn (turn.py). They all carry the
same store timestamp, which never goes back, even if the clock does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Self

from sparrowmq.clock import Clock, SystemClock
from sparrowmq.errors import (
    CorruptRecord,
    DiskFull,
    InvalidMessage,
    OutOfResources,
    StoreError,
    StoreFailed,
    StoreLocked,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import Buffer, encode
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.safety import Demand, Safety
from sparrowmq.store import reading, upkeep
from sparrowmq.store.checkpoint import Checkpointer, load
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.consume_queue import ConsumeQueue, OpenFiles, QueueTable
from sparrowmq.store.dispatch import Dispatch
from sparrowmq.store.flush import Flusher
from sparrowmq.store.index import Index
from sparrowmq.store.layout import BLANK, BLANK_SIZE, NO_CRC
from sparrowmq.store.reading import Read
from sparrowmq.store.recovery import Recovery
from sparrowmq.store.retention import Retention
from sparrowmq.store.settings import Flush, StoreSettings
from sparrowmq.store.vfs import Disk, File, Unsynced, Vfs
from sparrowmq.turn import Turn
from sparrowmq.watermark import Watermark

log = logging.getLogger(__name__)

_PREPARED: Final = SysFlag.PREPARED  # also set in a rollback; neither has a place in a queue
_FULL_PAUSE_S: Final = 1.0  # between two attempts to write to a full disk


class MessageStore:
    """An open store.

    Attributes:
        wants_checkpoint: set when a checkpoint should be made soon; `upkeep` makes it.
    """

    def __init__(self, settings: StoreSettings, vfs: Vfs, clock: Clock, *, writable: bool = True) -> None:
        """Use `open`."""
        layout = settings.layout
        self.settings = settings
        self.clock = clock
        self._vfs = vfs
        self._lock: File | None = None
        self._log = CommitLog(vfs, layout.commit_log, settings.commit_log_file_size, writable)
        unsynced = Unsynced()
        files = OpenFiles(vfs, settings.open_queue_files, unsynced)
        self._queues = QueueTable(files, layout, settings.consume_queue_file_entries)
        self._by_key = self._queues.by_key
        self._index = Index.of(settings, vfs, unsynced, writable)
        self._dispatch = Dispatch(self._queues, self._index, settings.delay_levels_ms)
        self._checkpointer = Checkpointer(vfs, layout.checkpoint, unsynced, self._index)
        self._flusher = Flusher(self._log)
        self._now_ms = 0  # the store timestamp of this burst; it never goes back
        self._store_host = settings.store_host
        self._property_crc = settings.property_crc
        self._full: DiskFull | None = None
        self._full_until_s = 0.0
        self._follows_master = False
        self.wants_checkpoint = asyncio.Event()
        self._turn: Turn | None = None
        written = Demand(self.written, ResponseCode.FLUSH_DISK_TIMEOUT, "written")
        flushed = Demand(self.flushed, ResponseCode.FLUSH_DISK_TIMEOUT, "on disk")
        timeout_s = settings.safety_timeout_ms / 1000
        self._written = Safety((written,), clock, timeout_s)
        # What is on disk was written before.
        self._safe = Safety((flushed,), clock, timeout_s) if settings.flush is Flush.SYNC else self._written

    @classmethod
    def open(
        cls,
        settings: StoreSettings,
        *,
        vfs: Vfs | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> MessageStore:
        """Open a store, or make one where there is none, and bring it in order if it was left by a crash.

        With `read_only` nothing is locked, mended or written: what the queues on disk know can be read.

        Raises:
            StoreLocked: another broker has it open.
            CorruptRecord: what had been on disk is damaged.
            BadStore: files are missing, or are not of the configured sizes.
            DiskFull: there is no room for what recovery has to write.
        """
        vfs, clock, layout = vfs or Disk(), clock or SystemClock(), settings.layout
        if read_only:
            store = cls(settings, vfs, clock, writable=False)
            store._queues.load(None, writable=False)
            store._log.start_at(max((sum(queue.last_entry()) for queue in store._queues), default=0))
            store._log.refuse(StoreError("the store was opened for reading only"))
            return store
        for folder in (layout.root, layout.commit_log, layout.consume_queue, layout.index):
            vfs.make_folder(folder)
        if (lock := vfs.lock(layout.lock)) is None:
            raise StoreLocked(layout.root)
        try:
            vfs.sync_folder(os.path.dirname(layout.root))
            clean = not vfs.exists(layout.abort)
            store = cls(settings, vfs, clock)
            store._recover(clean)
        except BaseException:
            vfs.close(lock)
            raise
        store._lock = lock
        return store

    def append(self, entry: Entry) -> Placed:
        """Put a message at the end of the log and of its queue.

        Raises:
            InvalidMessage, MessageTooLarge: it can never be stored.
            DiskFull: there is no room now; nothing has changed.
            StoreFailed: a write or sync failed before; nothing is taken any more.
        """
        queue = self._by_key.get((entry.topic, entry.queue_id))
        if queue is None:
            queue = self._queues.obtain(entry.topic, entry.queue_id)
        if not self._dispatch.dirty:
            self._begin_burst()
        commit_log = self._log
        placed = Placed(commit_log.end, queue.next_offset, self._now_ms, self._store_host)
        while True:
            record = encode(entry, placed, self._property_crc)
            size = len(record)
            if placed.offset + size <= commit_log.limit:
                break
            placed.offset = self._make_room(size)  # and encode it again: a record says where it lies
        commit_log.append(record)
        self._enter(queue, entry, placed, size)
        return placed

    def append_batch(self, entries: Sequence[Entry]) -> list[Placed]:
        """Put messages at the end of one queue, side by side in one file of the log: all of them or none.

        Raises:
            InvalidMessage: also if one of them is prepared or rolled back, or belongs to another queue.
            others as `append`.
        """
        if not entries:
            return []
        first = entries[0]
        for entry in entries:
            if entry.sys_flag & _PREPARED:
                raise InvalidMessage("a batch cannot hold messages of a transaction; send them one by one")
            if entry.topic != first.topic or entry.queue_id != first.queue_id:
                raise InvalidMessage("a batch belongs to one queue; send one batch for each")
        queue = self._queues.obtain(first.topic, first.queue_id)
        if not self._dispatch.dirty:
            self._begin_burst()
        places, batch = self._encode_batch(queue, entries)
        size = len(batch)
        if self._log.end + size > self._log.limit:
            self._make_room(size)
            places, batch = self._encode_batch(queue, entries)
        self._log.append(batch)
        for entry, placed in zip(entries, places, strict=True):
            self._enter(queue, entry, placed, placed.end - placed.offset)
        return places

    def append_raw(self, offset: int, content: Buffer) -> None:
        """Put bytes of the master's log at the end of this one; `dispatch` finds the records in them.

        Raises:
            StoreError: they do not follow what is here.
            DiskFull, StoreFailed: as `append`.
        """
        if offset != self._log.end:
            raise StoreError(f"bytes of the log from {offset} on do not follow its end, {self._log.end}")
        if self._full is not None:
            self._make_room(0)
        if self._checkpointer.crc_from != NO_CRC:
            # The master may write records without property CRC; a start must know that before it sees one.
            self._log.crc_from = self._checkpointer.crc_from = NO_CRC
            self.checkpoint()
        self._follows_master = True
        self._begin_burst()
        try:
            self._log.append_raw(content)
        except DiskFull as full:
            self.stall(full)
            raise
        except OSError as error:
            raise self.fail(error) from error

    @property
    def written(self) -> Watermark:
        """The offset up to which the log's files have what was appended; it fails when a write or sync fails."""
        return self._flusher.written

    @property
    def flushed(self) -> Watermark:
        """The offset up to which the log is on disk; it fails when a sync fails."""
        return self._flusher.flushed

    @property
    def dispatched(self) -> Watermark:
        """The offset up to which queues know the log."""
        return self._dispatch.position

    @property
    def begin(self) -> int:
        """The offset of the oldest byte of the log."""
        return self._log.begin

    @property
    def end(self) -> int:
        """The offset at which the next record will begin."""
        return self._log.end

    def safety(self, wants_safety: bool) -> Safety:
        """What the answer about a message waits for: with SYNC the disk, with ASYNC the write.

        Args:
            wants_safety: whether its producer does (`Properties.wants_safety`); otherwise the write is enough.
        """
        return self._safe if wants_safety else self._written

    def dispatch(self) -> None:
        """Write what was appended, and show it to the queues."""
        if self._write_burst():
            drain = self._dispatch_raw if self._follows_master else self._dispatch.drain
            self._attempt(lambda: drain(self._log.written))
            if self._dispatch.has_batch_to_index:
                self._index_keys()

    def flush(self) -> None:
        """Write the log to disk, here and now. Raises: StoreFailed."""
        self._flusher.flush()

    def checkpoint(self) -> None:
        """Write log, queues and index to disk, here and now, so that the next start has less to do.

        Raises:
            DiskFull: it could not be written now.
            StoreFailed: a sync failed.
        """
        end, now_ms = self.prepare_checkpoint()
        self.flush()
        try:
            self.begin_checkpoint(end, now_ms)()
        except OutOfResources as short:
            if not self.spare_descriptors(short):
                raise
            self.checkpoint()
        except OSError as error:
            raise self.fail(error) from error

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = 262_144,
        selector: Selector = ALL,
    ) -> Read:
        """Up to `max_count` messages of a queue from `offset` on, as views into the log; at least one if there is one.

        Only those that the selector wants; `next_offset` moves past the others.
        """
        return reading.read(
            self._log, self._by_key.get((topic, queue_id)), offset, max_count, max_bytes, selector
        )

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None if it never had a message."""
        return self._by_key.get((topic, queue_id))

    def queue_end(self, topic: str, queue_id: int) -> Watermark:
        """Where the queue ends; it can be waited for before the first message is there."""
        return self._queues.obtain(topic, queue_id).end

    def queues(self) -> list[tuple[str, int, ConsumeQueue]]:
        """All queues, with topic and queue id."""
        return [(topic, queue_id, queue) for (topic, queue_id), queue in self._by_key.items()]

    def record_at(self, offset: int, size: int | None = None) -> memoryview | None:
        """The record that begins at `offset`; None if none does, so any number may be asked for."""
        if offset >= self._log.written:
            self.dispatch()
        if not self._log.begin <= offset < self._log.end:
            return None
        try:
            record, end = self._log.parse(offset)
        except CorruptRecord:
            return None
        if record is None or end > self._log.end or (size is not None and size != len(record)):
            return None
        return record if records.physical_offset(record) == offset else None

    def log_bytes(self, offset: int, max_bytes: int) -> memoryview | None:
        """Up to `max_bytes` of the log itself, from one file, for a slave; None if `offset` is not in the log."""
        if offset + max_bytes > self._log.written:
            self.dispatch()
        file = self._log.row.find(offset)
        if file is None or not self._log.begin <= offset < self._log.end:
            return None
        return self._log.view(offset, min(max_bytes, file.end - offset, self._log.end - offset))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """The first queue offset stored at or after a time; with `upper`, the last one at or before it."""
        queue = self._by_key.get((topic, queue_id))
        return reading.offset_by_time(self._log, queue, timestamp_ms, upper) if queue else 0

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When a message was stored, in ms; None if it is not there."""
        queue = self._by_key.get((topic, queue_id))
        return reading.store_time(self._log, queue, offset) if queue else None

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[memoryview]:
        """Records that may have the key (or unique key), newest first; another key can have the same hash.

        Raises:
            BadStore: the index is damaged; the next start makes it anew.
        """
        if self._index is None:
            return []
        self._index_keys()
        offsets = self._index.find(topic, key, max_count, begin_ms, end_ms)
        return [record for record in map(self.record_at, offsets) if record is not None]

    @property
    def indexed(self) -> tuple[int, int]:
        """Store timestamp and offset of the last record that the index knows; (0, -1) if there is none."""
        return (self._index.end_ms, self._index.end_offset) if self._index else (0, -1)

    def delete_topic(self, topic: str) -> None:
        """Delete the topic's queues; a topic of that name begins at 0 again. Its messages leave with their files."""
        self.dispatch()
        self._dispatch.forget(topic)
        self._queues.remove_topic(topic)
        self.wants_checkpoint.set()

    def run(self, turn: Turn | None = None) -> Coroutine[Any, Any, None]:
        """Write to disk, make checkpoints and delete what is old, until cancelled; then `close`.

        Args:
            turn: of the loop, if others take part in it.
        """
        return upkeep.run(self, turn or Turn())

    def close(self) -> None:
        """Bring everything to disk and give the lock back. A store that failed is left as after a crash."""
        try:
            if self._lock is not None:
                self.checkpoint()
                # If a crash brings it back, the next start has a little more to look at.
                self._vfs.unlink(self.settings.layout.abort)
        except StoreError as error:
            log.error("the store was not closed in order: %s", error)
        finally:
            self._log.refuse(StoreError("the store is closed"))
            self._log.close()
            self._queues.files.close()
            if self._index is not None:
                self._index.close()
            if self._lock is not None:
                self._vfs.close(self._lock)
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # What `upkeep` does with it ---------------------------------------------------------------------------------

    def attach(self, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        """Sync in a thread from now on, and end the bursts of requests by themselves."""
        self._turn = turn
        self._flusher.start(loop)

    def detach(self) -> None:
        """Undo `attach`; what was given to the thread is finished first."""
        self._turn = None
        self._flusher.stop()

    def flush_soon(self) -> None:
        """Have the thread sync what was written."""
        self._flusher.kick()

    def tend(self, executor: Executor) -> None:
        """Index what was collected, make the next log file early, and try again what a full disk refused."""
        if self._full is not None and self.clock.monotonic() >= self._full_until_s:
            self._try_again()
        if self._full is None:
            if self._dispatch.can_index(executor):
                self._index_keys()
            self._log.prepare(executor)

    def prepare_checkpoint(self) -> tuple[int, int]:
        """Dispatch everything; up to which offset, and when the last record before it was stored. Raises: DiskFull."""
        before, self._full = self._full, None
        self.dispatch()
        self._index_keys()
        self._raise_if_full()
        self._full = before  # a disk without room for messages may have room for this
        return self.dispatched.value, self._now_ms

    def begin_checkpoint(self, end: int, now_ms: int) -> Callable[[], None]:
        """What writes a checkpoint for the log before `end`, once that is on disk; in any thread. Raises: OSError."""
        return partial(self._checkpointer.write, self._checkpointer.begin(end, now_ms))

    def retention(self) -> Retention:
        """What deletes old messages."""
        return Retention(self.settings, self._vfs, self._log, self._queues, self._index, self._checkpointer)

    def stall(self, full: DiskFull, pause_s: float = _FULL_PAUSE_S) -> None:
        """Take nothing for a while; then the next message, or `tend`, tries again."""
        log.warning("%s", full)
        self.spare_descriptors(full)
        self._full = full
        self._full_until_s = max(self._full_until_s, self.clock.monotonic() + pause_s)
        self._log.hold()

    def spare_descriptors(self, full: DiskFull) -> bool:
        """Close files of queues, if that is what is missing; whether there were any."""
        return isinstance(full, OutOfResources) and self._queues.files.shrink()

    def fail(self, cause: OSError) -> StoreFailed:
        """Acknowledge nothing any more, and take no more messages."""
        return self._flusher.fail(cause)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _recover(self, clean: bool) -> None:
        """Bring the store in order, say on disk that it is, and that it runs."""
        layout = self.settings.layout
        recovery = Recovery(
            self._vfs,
            layout,
            self._log,
            self._queues,
            self._index,
            self._dispatch,
            load(self._vfs, layout.checkpoint),
            self.settings.corrupt_policy,
            clean,
        )
        found = recovery.run()
        if not clean:
            log.warning(
                "the store was not closed in order: %d records checked, the log ends at %d, %d bytes behind it cut",
                found.records,
                found.end,
                found.cut_bytes,
            )
        self._now_ms = found.last_ms
        self._checkpointer.start(found.scanned_from)
        if not self._property_crc:
            self._log.crc_from = NO_CRC
        elif self._log.crc_from == NO_CRC:
            self._log.crc_from = found.end
        self._checkpointer.crc_from = self._log.crc_from
        self._flusher.start_at(found.end)
        self.checkpoint()
        if not self._vfs.exists(layout.abort):
            self._vfs.close(self._vfs.create(layout.abort, 0, allocate=False))
        self._vfs.sync_folder(layout.root)

    def _begin_burst(self) -> None:
        """The first message after a dispatch: look at the clock, and have the turn end the burst.

        With SYNC the queues come at once: the thread that syncs gets the GIL then (a tenth more messages, measured).
        """
        self._now_ms = max(self._now_ms, self.clock.now_ms())
        turn = self._turn
        if turn is None:
            return
        if self.settings.flush is Flush.SYNC:
            turn.write(self.dispatch)
            turn.rest()
        else:
            turn.write(self._write_burst)
            turn.show(self.dispatch)

    def _write_burst(self) -> bool:
        """Write what was appended, and have it synced if an answer waits for that; whether it could be written."""
        if self.flushed.error is not None:
            return False  # Whoever waits for it was told: it may not appear after all.
        written = self._attempt(self._log.write_out)
        if written:
            if self.settings.flush is Flush.SYNC and self._turn is not None:
                self._flusher.kick()
            self.written.advance(self._log.written)
        return written

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Do what writes; a full disk stops appends for a while, a broken one for ever. Whether it was done."""
        try:
            work()
            return True
        except DiskFull as full:
            self.stall(full)
        except OSError as error:
            self.fail(error)
        return False

    def _encode_batch(self, queue: ConsumeQueue, entries: Sequence[Entry]) -> tuple[list[Placed], bytes]:
        """The records of a batch, as they would lie at the log's end, and where."""
        offset, places, records = self._log.end, [], []
        for queue_offset, entry in enumerate(entries, queue.next_offset):
            placed = Placed(offset, queue_offset, self._now_ms, self._store_host)
            record = encode(entry, placed, self._property_crc)
            offset = placed.end = offset + len(record)
            places.append(placed)
            records.append(record)
        return places, b"".join(records)

    def _enter(self, queue: ConsumeQueue, entry: Entry, placed: Placed, size: int) -> None:
        """Remember what queue and index will have to know of a record that was appended."""
        placed.end = placed.offset + size
        properties = entry.properties
        if not entry.sys_flag & _PREPARED:
            self._dispatch.add(queue, placed.offset, size, entry.tags_code)
        keys, unique_key = properties.keys, properties.unique_key
        if (unique_key is not None or keys) and self._index is not None:
            self._dispatch.keys.add(entry.topic, placed.offset, placed.store_timestamp_ms, keys, unique_key)

    def _make_room(self, size: int) -> int:
        """Where a record of `size` bytes can begin. Raises: MessageTooLarge, DiskFull, StoreFailed."""
        if self._full is not None:
            if self.clock.monotonic() < self._full_until_s:
                raise self._full
            self._try_again()
        if self._full is None:
            try:
                self._log.make_room(size)
            except DiskFull as full:
                self.stall(full)
            except OSError as error:
                raise self.fail(error) from error
        self._raise_if_full()
        return self._log.end

    def _raise_if_full(self) -> None:
        # A method of its own: whoever set it to None and called something would be believed that it still is.
        if self._full is not None:
            raise self._full

    def _try_again(self) -> None:
        """After a full disk: write what could not be written; what is appended next begins a burst."""
        self._full = None
        self.dispatch()
        self._begin_burst()

    def _dispatch_raw(self, end: int) -> None:
        """Dispatch the whole records among the bytes before `end` that came from a master."""
        offset = self.dispatched.value
        while end - offset >= BLANK_SIZE:
            size, _ = BLANK.unpack_from(self._log.view(offset, BLANK_SIZE) or bytes(BLANK_SIZE))
            if offset + size > end:
                break
            record, following = self._log.parse(offset)
            if record is not None:
                self._dispatch.replay(record, {}, offset, offset - 1)
                self._now_ms = max(self._now_ms, records.store_timestamp_ms(record))
            offset = following
        self._dispatch.drain(offset)

    def _index_keys(self) -> None:
        self._attempt(self._dispatch.index_keys)
