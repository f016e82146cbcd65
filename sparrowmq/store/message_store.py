"""The message store: the only door through which upper floors come to the disk.

    with MessageStore.open(StoreSettings(path)) as store:
        appended = store.append("Orders", 0, b"body", b"", born_timestamp_ms=..., born_host=...)
        store.dispatch()                                    # by itself while `run` is running
        store.flush()                                       # likewise; `await store.durable().reached(end)` then
        found = store.read("Orders", 0, offset=0, max_count=32)

One event loop owns a store, and nothing here awaits but `run`: append, dispatch and read follow each other,
and need no lock. Threads see only files (flush, checkpoint, the next log file).

The messages of one burst of requests are written when the loop has read all of them; then their answers leave (with
SYNC: once they are on disk), and then their queues show them. They all carry the same store timestamp, which never
goes back, even if the clock does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeAlias

from sparrowmq.clock import Clock, SystemClock
from sparrowmq.errors import CorruptRecord, DiskFull, InvalidMessage, StoreError, StoreFailed, StoreLocked
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import Buffer, encode
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
from sparrowmq.watermark import Watermark

log = logging.getLogger(__name__)

# Physical offset, queue offset, the log's end behind the record, store timestamp in ms.
Appended: TypeAlias = tuple[int, int, int, int]

_PREPARED: Final = SysFlag.PREPARED  # also set in a rollback; neither has a place in a queue
_FULL_PAUSE_S: Final = 1.0  # between two attempts to write to a full disk
_ALWAYS: Final = Watermark((1 << 63) - 1)


class Part(NamedTuple):
    """One message of a batch."""

    body: Buffer
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    tags_code: int = 0
    keys: tuple[str, ...] = ()
    unique_key: str | None = None
    reconsume_times: int = 0
    prepared_offset: int = 0


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
        self._index: Index | None = None
        if settings.index:
            self._index = Index(
                vfs, layout.index, settings.index_slots, settings.index_entries, unsynced, writable
            )
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
        self._loop: asyncio.AbstractEventLoop | None = None

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

    def append(
        self,
        topic: str,
        queue_id: int,
        body: Buffer,
        properties: bytes,
        born_timestamp_ms: int,
        born_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        tags_code: int = 0,
        keys: tuple[str, ...] = (),
        unique_key: str | None = None,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> Appended:
        """Put a message at the end of the log and of its queue.

        `tags_code` is the hash of the tag, but when to deliver for SCHEDULE_TOPIC_XXXX.

        Raises:
            InvalidMessage, MessageTooLarge: it can never be stored.
            DiskFull: there is no room now; nothing has changed.
            StoreFailed: a sync failed before; nothing is taken any more.
        """
        queue = self._by_key.get((topic, queue_id)) or self._queues.obtain(topic, queue_id)
        dispatch, commit_log = self._dispatch, self._log
        if not dispatch.dirty:
            self._begin_burst()
        offset, queue_offset, now_ms = commit_log.end, queue.next_offset, self._now_ms
        while True:
            record = encode(
                queue.topic_bytes, queue_id, flag, queue_offset, offset, sys_flag, born_timestamp_ms, born_host,
                now_ms, self._store_host, reconsume_times, prepared_offset, body, properties, self._property_crc,
            )  # fmt: skip
            size = len(record)
            if offset + size <= commit_log.limit:
                break
            offset = self._make_room(size)  # and encode it again: a record says where it lies
        commit_log.append(record)
        if not sys_flag & _PREPARED:
            dispatch.add(queue, offset, size, tags_code)
        if unique_key is not None or keys:
            dispatch.keys.add(topic, offset, now_ms, keys, unique_key)
        return offset, queue_offset, offset + size, now_ms

    def append_batch(self, topic: str, queue_id: int, parts: Sequence[Part]) -> list[Appended]:
        """Put messages at the end of one queue, side by side in one file of the log: all of them or none.

        Raises:
            InvalidMessage: also if one of them is prepared or rolled back.
            others as `append`.
        """
        if any(part.sys_flag & _PREPARED for part in parts):
            raise InvalidMessage("a batch cannot hold messages of a transaction; send them one by one")
        if not parts:
            return []
        queue = self._queues.obtain(topic, queue_id)
        if not self._dispatch.dirty:
            self._begin_burst()
        batch = self._encode_batch(queue, parts)
        size = sum(map(len, batch))
        if self._log.end + size > self._log.limit:
            self._make_room(size)
            batch = self._encode_batch(queue, parts)
        offset, now_ms = self._log.end, self._now_ms
        appended: list[Appended] = []
        self._log.append(b"".join(batch))
        for part, record in zip(parts, batch, strict=True):
            if part.unique_key is not None or part.keys:
                self._dispatch.keys.add(topic, offset, now_ms, part.keys, part.unique_key)
            appended.append((offset, queue.next_offset, offset + len(record), now_ms))
            self._dispatch.add(queue, offset, len(record), part.tags_code)
            offset += len(record)
        return appended

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

    def durable(self) -> Watermark:
        """What an answer has to wait for: `flushed` with SYNC, and with ASYNC a mark that every offset has reached."""
        return self.flushed if self.settings.flush is Flush.SYNC else _ALWAYS

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
            StoreFailed: a sync failed.
        """
        end, now_ms = self.prepare_checkpoint()
        self.flush()
        try:
            self.begin_checkpoint(end, now_ms)()
        except OSError as error:
            raise self.fail(error) from error

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = 262_144,
        tag_codes: frozenset[int] | None = None,
    ) -> Read:
        """Up to `max_count` messages of a queue from `offset` on, as views into the log; at least one if there is one.

        With `tag_codes`, only messages whose tag has one of these hashes; `next_offset` moves past the others.
        """
        return reading.read(
            self._log, self._by_key.get((topic, queue_id)), offset, max_count, max_bytes, tag_codes
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
        """Records that may have the key (or unique key), newest first; another key can have the same hash."""
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
        self._queues.remove_topic(topic)
        self.wants_checkpoint.set()

    def run(self) -> Coroutine[Any, Any, None]:
        """Write to disk, make checkpoints and delete what is old, until cancelled; then `close`."""
        return upkeep.run(self)

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

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sync in a thread from now on, and end the bursts of requests by themselves."""
        self._loop = loop
        self._flusher.start(loop)

    def detach(self) -> None:
        """Undo `attach`; what was given to the thread is finished first."""
        self._loop = None
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
        self._full = full
        self._full_until_s = max(self._full_until_s, self.clock.monotonic() + pause_s)
        self._log.hold()

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
        """The first message after a dispatch: look at the clock, and have the loop end the burst."""
        self._now_ms = max(self._now_ms, self.clock.now_ms())
        if self._loop is not None:
            self._loop.call_soon(self._end_burst)

    def _end_burst(self) -> None:
        """Write the burst; then sessions have their turn to send its answers, and then its queues show it.

        With SYNC its answers wait for the disk, so its queues come first: while they are written, the thread that
        syncs gets the GIL, and sessions make the answers while the disk is busy (a tenth more messages, measured).
        """
        if self.settings.flush is Flush.SYNC:
            self.dispatch()
            return
        self._write_burst()
        asyncio.get_running_loop().call_soon(self.dispatch)

    def _write_burst(self) -> bool:
        """Write what was appended, and have it synced if an answer waits for that; whether it could be written."""
        written = self._attempt(self._log.write_out)
        if written and self.settings.flush is Flush.SYNC and self._loop is not None:
            self._flusher.kick()
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

    def _encode_batch(self, queue: ConsumeQueue, parts: Sequence[Part]) -> list[bytes]:
        """The records of a batch, as they would lie at the log's end."""
        offset, batch = self._log.end, []
        for queue_offset, part in enumerate(parts, queue.next_offset):
            record = encode(
                queue.topic_bytes, queue.queue_id, part.flag, queue_offset, offset, part.sys_flag,
                part.born_timestamp_ms, part.born_host, self._now_ms, self._store_host, part.reconsume_times,
                part.prepared_offset, part.body, part.properties, self._property_crc,
            )  # fmt: skip
            batch.append(record)
            offset += len(record)
        return batch

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
