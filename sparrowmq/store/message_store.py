"""The message store: the only interface through which upper floors use the disk.

    with MessageStore.open(StoreSettings(path)) as store:
        [placed] = store.append(Entry("Orders", 0, b"body", Properties(), born_timestamp_ms=..., born_host=...))
        store.publish()                          # `run` does this by itself
        store.flush()                            # likewise; use `store.durability(True).when(placed.end, ...)`
        found = store.read("Orders", 0, offset=0, max_count=32)

One event loop owns a store. Only `run` awaits, so append, publish and read never overlap and need no lock. Threads only
work on files. The messages of one burst of requests are written and shown at the end of the loop's turn (turn.py), and
have the same store timestamp (store_time.py). appender.py has the way of messages into the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from sparrowmq.errors import DiskFull, OutOfResources, StoreError
from sparrowmq.kernel.records import Buffer
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.durability import Durability, Requirement
from sparrowmq.loop.slices import at_once
from sparrowmq.loop.turn import Turn
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Commit
from sparrowmq.protocol.messages.plain_batch import PlainBatch
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.store import upkeep
from sparrowmq.store.appender import Appender
from sparrowmq.store.checkpoint import Checkpointer, load
from sparrowmq.store.index import Index
from sparrowmq.store.layout import LOCK_OF_JAVA, LOCK_OF_OURS, NO_CRC
from sparrowmq.store.log import flush
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.flush import Flusher, SyncedMark
from sparrowmq.store.log.scrub import Scrubber
from sparrowmq.store.queue_builder import QueueBuilder
from sparrowmq.store.queue_rebuild import QueueRebuild
from sparrowmq.store.queues.queue_ends import ALL_TOPICS, QueueEnds
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.record_repair import RepairResult, Requests, find_fenced, replace_known_damage
from sparrowmq.store.recovery import Recovery, RecoveryResult
from sparrowmq.store.retention import Retention, RetentionHold, TopicDeletion
from sparrowmq.store.store_reader import StoreReader
from sparrowmq.store.store_settings import CorruptPolicy, Flush, StoreSettings
from sparrowmq.store.store_time import RetentionTime
from sparrowmq.store.timers import Timers
from sparrowmq.store.truncation import check_queue_files, logs_differ, truncate
from sparrowmq.store.vfs import Disk, StoreLock, Unsynced, Vfs, lost_while_open

log = logging.getLogger(__name__)


class MessageStore(StoreReader):
    """An open store. `StoreReader` has the methods that read messages."""

    def __init__(self, settings: StoreSettings, vfs: Vfs, clock: Clock, *, writable: bool = True) -> None:
        layout = settings.layout
        self.settings = settings
        self.clock = clock
        self._vfs = vfs
        self._lock: StoreLock | None = None
        commit_log = CommitLog(vfs, layout.commit_log, settings.commit_log_file_size, writable)
        unsynced = Unsynced()
        files = OpenFiles(vfs, settings.open_queue_files, unsynced)
        queues = QueueTable(files, layout, settings.consume_queue_file_entries)
        index = Index.from_settings(settings, vfs, unsynced, writable)
        super().__init__(commit_log, queues, index, QueueBuilder(queues, index, settings.delay_levels_ms))
        self._ends = QueueEnds(vfs, layout.ends)
        self._checkpointer = Checkpointer(vfs, layout.checkpoint, unsynced, self._index, self._ends)
        self.flusher = Flusher(self._log, SyncedMark(vfs, layout.abort))  # syncs the log to disk
        # How far the log is in its files, and on disk. Both fail when a write or sync fails.
        self.written, self.flushed = self.flusher.written, self.flusher.flushed
        self.hold = RetentionHold()  # says what retention keeps although it is old
        self.scrubber = Scrubber(self._log)  # checks the log for bit rot; `upkeep` calls it
        self.retention_time = RetentionTime(clock, 0)  # the time that retention compares messages with
        # Log offsets of half messages whose transactions had ended, as the checked records say.
        self.finished_halves: set[int] = set()
        self.recovered = RecoveryResult(0, [])  # the result of the recovery at the start
        # The way of messages into the store; `upkeep` gives it the loop's turn, and can stall it.
        self.appender = Appender(settings, clock, self._log, self.queues, self._queue_builder, self.flusher)
        self.wants_checkpoint = asyncio.Event()  # set when a checkpoint should be made soon; `upkeep` makes it
        # Deletes topics in slices.
        self.deletion = TopicDeletion(
            self._log,
            self.queues,
            self._queue_builder,
            self._ends,
            self.appender,
            self.flusher,
            self.wants_checkpoint.set,
        )
        # Deletes old messages; `upkeep` runs it.
        self.retention = Retention(
            lambda: self.settings, vfs, self._log, queues, self._index, self._checkpointer, self.hold
        )
        written = Requirement(self.written, ResponseCode.FLUSH_DISK_TIMEOUT, "written")
        flushed = Requirement(self.flushed, ResponseCode.FLUSH_DISK_TIMEOUT, "on disk")
        timeout_s = settings.safety_timeout_ms / 1000
        self._written = Durability((written,), clock, timeout_s)
        # Bytes on disk were written before.
        self.on_disk = Durability((flushed,), clock, timeout_s)
        self._promised = self.on_disk if settings.flush is Flush.SYNC else self._written
        self.appender.durability = lambda: self._promised

    @classmethod
    def open(
        cls, settings: StoreSettings, *, vfs: Vfs | None = None, clock: Clock | None = None, cut_at: int | None = None
    ) -> MessageStore:
        """Open a store, or create one if there is none. Recover it if it was left by a crash. A log that is longer than
        its master's is cut at `cut_at` (truncation.py).

        Raises: StoreLocked; CorruptRecord, bytes that had been on disk are damaged; BadStore, files are missing or have
        another size; DiskFull, recovery has no room; LogsDiffer, the log cannot be cut there.
        """
        vfs, clock, layout = vfs or Disk(), clock or SystemClock(), settings.layout
        for folder in (layout.root, layout.commit_log, layout.consume_queue, layout.index):
            vfs.make_folder(folder)
        check_queue_files(settings, vfs, cut_at, partial(cls.open, vfs=vfs, clock=clock))
        with ExitStack() as failed:
            lock = StoreLock(vfs, layout)
            failed.callback(lock.close)
            for folder in layout.above:
                vfs.sync_folder(folder)
            clean = not vfs.exists(layout.abort)
            after_java = vfs.read(lock.file, 0, len(LOCK_OF_JAVA)) == LOCK_OF_JAVA
            store = cls(settings, vfs, clock)
            failed.callback(store._release)  # a member tries to open its store again
            store._recover(clean, cut_at, after_java)
            vfs.write(lock.file, 0, LOCK_OF_OURS)
            failed.pop_all()
        store._lock = lock
        return store

    @classmethod
    def open_full(
        cls, settings: StoreSettings, full: DiskFull, *, vfs: Vfs | None = None, clock: Clock | None = None
    ) -> MessageStore:
        """Open a store to read, as `open` has found no room for recovery: locked, and as failed. Raises: as `open`."""
        vfs, layout = vfs or Disk(), settings.layout
        store = cls.open_to_read(settings, vfs=vfs, clock=clock)
        store._lock = StoreLock(vfs, layout)
        store.flusher.begin_full(full)
        if store._index is not None and vfs.exists(layout.abort):
            store._index.begin_full(full)
        return store

    @classmethod
    def open_to_read(
        cls, settings: StoreSettings, *, vfs: Vfs | None = None, clock: Clock | None = None
    ) -> MessageStore:
        """Open the messages in the queues on disk, without a lock; nothing is repaired or written. Raises: BadStore."""
        store = cls(settings, vfs or Disk(), clock or SystemClock(), writable=False)
        store.queues.load(None, writable=False)
        store._log.verified_from = store._log.row.end
        end = max((sum(queue.last_entry()) for queue in store.queues), default=0)
        store._log.start_at(end)
        store.dispatched.advance(end)
        store._checkpointer.start(end)
        store._log.refuse(StoreError("the store was opened for reading only"))
        return store

    def append(self, *entries: Entry | Commit | PlainBatch) -> list[Placed]:
        """Append messages side by side to one file of the log, each at the end of its queue: all or none. Returns their
        places; that of a `PlainBatch` reaches from its first message to its last one's end.

        Raises: InvalidMessage, MessageTooLarge: one of them can never be stored; DiskFull, there is no room now;
        StoreFailed, a write or sync failed before. Nothing has changed then.
        """
        return self.appender.append(*entries)

    def follow(self, offset: int, content: Buffer, has_crcs: bool = False) -> None:
        """Append bytes of the master's log. `publish` finds the records in them. Without `has_crcs` the log notes that
        some have no property CRC.

        Raises: StoreError, the bytes do not follow the end of this log; DiskFull, StoreFailed, as `append`.
        """
        self.appender.check_position(offset)
        if not has_crcs and self._checkpointer.crc_from != NO_CRC:
            self._log.crc_from = self._checkpointer.crc_from = NO_CRC
            self.checkpoint()
        self.appender.follow(content)

    def begin_at(self, offset: int) -> None:
        """Begin the log of a store that never had a byte at `offset`, where a file of the master's log begins. Raises:
        StoreError, that is not so; DiskFull, and nothing has changed.
        """
        if self._log.end or offset <= 0 or offset % self._log.file_size:
            raise StoreError(
                f"the log cannot begin at {offset}: it ends at {self._log.end}, in files of {self._log.file_size}"
            )
        self._log.begin_at(offset)
        self._checkpointer.note_deletion_before(offset)
        self.flusher.start_at(offset)
        self.dispatched.advance(offset)
        self._checkpointer.start(offset)

    @property
    def dispatched(self) -> Watermark:
        return self._queue_builder.position

    @property
    def begin(self) -> int:
        return self._log.begin

    @property
    def end(self) -> int:
        """The offset at which the next record will begin."""
        return self._log.end

    @property
    def newest_ms(self) -> int:
        """When the newest message was stored; 0 without any."""
        return self.appender.now_ms

    def durability(self, is_awaited: bool) -> Durability:
        """The condition that the answer to a send waits for: if it `is_awaited`, the sync to disk with SYNC; else the
        write.
        """
        return self._promised if is_awaited else self._written

    def also_wait_for(self, other: Durability) -> None:
        """Let later answers also wait for `other`, once the store's own promise is kept."""
        is_sync, timeout_s = self._promised is self.on_disk, self.settings.safety_timeout_ms / 1000
        self.on_disk = Durability(self.on_disk.requirements, self.clock, timeout_s, other)
        self._promised = (
            self.on_disk if is_sync else Durability(self._promised.requirements, self.clock, timeout_s, other)
        )

    def limit_visibility(self, limit: Callable[[], int] | None) -> Callable[[], None]:
        """Let queues show only messages before `limit()` in the log; None: all. Returns the function to call when
        `limit()` has risen.
        """
        self._queue_builder.limit = limit
        return self.appender.publish_soon

    def publish(self) -> None:
        self.appender.publish()

    def flush(self) -> None:
        self.flusher.flush()

    def checkpoint(self) -> None:
        """Write log, queues and index to disk before returning, so that the next start has less to do. Raises:
        DiskFull, not now; StoreFailed.
        """
        end, now_ms = self.prepare_checkpoint()
        self.flush()
        try:
            self.begin_checkpoint(end, now_ms)()
        except OutOfResources as short:
            if not self.appender.close_idle_files(short):
                raise
            self.checkpoint()
        except OSError as error:
            raise self.flusher.fail(error) from error

    def timers(self) -> Timers:
        """The pending timers. From now on retention keeps their records. Raises: DiskFull, BadStore."""
        self.publish()
        queue = self.queues.obtain(TIMER_TOPIC, 0)
        return Timers(self._vfs, self.settings.layout.timers, self._log, queue, self.hold)

    def delete_topic(self, topic: str, before_offset: int | None = None) -> None:
        """Delete the topic's queues at once; a new topic begins at 0. With `before_offset`, as `Deletion.steps`."""
        at_once(self.deletion.begin(topic) if before_offset is None else self.deletion.steps(topic, before_offset))

    def replace_damaged(self, max_bytes: int) -> Requests[RepairResult]:
        """Replace found damage of up to `max_bytes` by a copy's records. Raises: LogsDiffer, DiskFull, OSError."""
        return replace_known_damage(self.settings, self._vfs, self.scrubber, self.queues, max_bytes)

    def run(self, turn: Turn | None = None) -> Coroutine[Any, Any, None]:
        """Write to disk, make checkpoints and delete old messages, until cancelled. Call `close` afterwards."""
        return upkeep.run(self, turn or Turn())

    def close(self) -> None:
        """Write everything to disk and release the lock. A store that failed is left as after a crash."""
        try:
            if self._lock is not None:
                self._queue_builder.limit = None
                self.queues.remove_detached()
                self.checkpoint()
                # If a crash brings the file back, the next start only has a little more to check.
                self._vfs.unlink(self.settings.layout.abort)
        except StoreError as error:
            log.error("the store was not closed in order: %s", error)
        finally:
            self._log.refuse(StoreError("the store is closed"))
            self._release()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def _release(self) -> None:
        self._log.close()
        self.flusher.mark.close()
        self.queues.files.close()
        self._ends.close()
        if self._index is not None:
            self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def tend(self, executor: Executor) -> None:
        """Index the collected keys, create the next log file early, and retry writes that a full disk refused. If a
        file of the log was cut or removed from outside, no message is taken any more.
        """
        if self.flushed.error is None and (lost_file := self._log.row.lost_file()) is not None:
            self.flusher.fail(lost_while_open(lost_file.file))
        if self.appender.try_again_if_due():
            self._checkpointer.mark(self.dispatched.value)
            if self._checkpointer.is_due(self.dispatched.value):
                self.wants_checkpoint.set()
            self._queue_builder.index_keys()
            self._log.prepare(executor)

    def fill_index(self) -> bool:
        """Add keys to the index for which the disk had no room. Returns whether it has room, and more are missing."""
        index = self._index
        if index is None or index.is_damaged or index.no_room is None or self.flushed.error is not None:
            return False
        self.publish()
        is_to_go_on = self._queue_builder.fill_index(self._log)
        if index.no_room is not None:
            self.appender.close_idle_files(index.no_room)
        return is_to_go_on

    def prepare_checkpoint(self) -> tuple[int, int]:
        """Publish everything. Returns the reached offset and the store time of the last record. Raises: DiskFull."""
        appender = self.appender
        earlier_error, appender.full_error = appender.full_error, None
        appender.publish()
        self._queue_builder.index_keys()
        appender.raise_if_full()
        appender.full_error = earlier_error  # a disk without room for messages may have room for this
        self._checkpointer.note_ends(self.queues.take_changed())
        return self.dispatched.value, appender.now_ms

    def begin_checkpoint(self, end: int, now_ms: int) -> Callable[[], None]:
        """The function that writes a checkpoint, for any thread. The log before `end` is on disk. Raises: OSError."""
        return partial(self._checkpointer.write, self._checkpointer.begin(end, now_ms))

    def _recover(self, clean: bool, cut_at: int | None, after_java: bool) -> None:
        settings, layout, saved_ends = self.settings, self.settings.layout, self._ends.load()
        rebuild = QueueRebuild(self._log, settings.delay_levels_ms, saved_ends.deleted, settings.awaits_copy)
        recovery = Recovery(
            self._vfs,
            layout,
            self._log,
            self.queues,
            self._index,
            self._queue_builder,
            load(self._vfs, layout.checkpoint),
            settings.corrupt_policy,
            clean,
            after_java,
            saved_ends,
            rebuild,
            synced=0 if clean or after_java else flush.load_mark(self._vfs, layout.abort),
            checks_all=settings.checks_all,
        )
        self.queues.files.rebuild_file = rebuild.rebuild_file
        if cut_at is not None:
            truncate(recovery, cut_at)
        clean = recovery.is_clean
        was_restarted = not clean and flush.is_of_earlier_boot(self._vfs, layout.abort)
        self.recovered = result = recovery.recover()
        result.was_restarted = was_restarted
        if cut_at is not None and result.end > cut_at:
            raise logs_differ(cut_at)
        for topic, offset in recovery.ends.deleted.items():
            # The log may have lost its tail; the messages that come next are not deleted.
            recovery.ends.deleted[topic] = min(offset, result.end)
        recovery.ends.deleted[ALL_TOPICS] = self._log.begin
        self._ends.begin(recovery.ends)
        self.queues.files.changed.update(dict.fromkeys(self.queues))
        if not clean:
            log.warning(
                "the store was not closed in order: %d records checked, the log ends at %d, %d bytes after it were cut",
                result.passed.count,
                result.end,
                result.cut_bytes,
            )
        self.appender.time.begin(result.passed.last_ms)
        self.appender.now_ms, self.finished_halves = result.passed.last_ms, result.passed.finished_halves
        self.retention_time = RetentionTime(self.clock, result.passed.last_ms)
        self._log.verified_from = result.record_offsets[0]
        self.scrubber.position = self._log.begin
        self.scrubber.fenced = {damage.begin: damage.end for damage in find_fenced(self._vfs, settings, self._log)}
        self._log.skips_damaged = settings.corrupt_policy is CorruptPolicy.QUARANTINE
        self._checkpointer.start(*result.record_offsets)
        if not settings.property_crc:
            self._log.crc_from = NO_CRC
        elif self._log.crc_from == NO_CRC:
            self._log.crc_from = result.end
        self._checkpointer.crc_from = self._log.crc_from
        self.flusher.start_at(result.end)
        self.checkpoint()
        self.flusher.mark.begin(result.end)
        self._vfs.sync_folder(layout.root)
