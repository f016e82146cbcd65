"""Group commit: one fdatasync at a time, each for everything that was appended before it began.

    loop       append append | kick(end) ------- append, kick(end) ---------------- done: flushed.advance
    thread                   | fdatasync (0.1 ms, without the GIL) | fdatasync for what came meanwhile | ...

A sync takes about as long as handing work to a thread pool and back. So the thread lives as long as the store, gets its
work through a SimpleQueue, and starts the next sync by itself. It uses descriptors and nothing else.

After the first failed sync the log takes no more messages. Linux reports success for the same bytes at the next call,
though they are lost (measured on ext4). `flushed` fails, so that no message is acknowledged that may be lost. A caller
that syncs while the thread lives (`flush`) first lets the thread finish, and reads its result:

    thread    fdatasync fails ─ tells the loop, which is busy
    loop      flush: fdatasync "succeeds"   ── must not be believed: `flush` reads the thread's result (`_failed`)

Source of the rule: PostgreSQL's "fsyncgate". Java's GroupCommitService tries again up to 1,000 times.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final, NamedTuple

from sparrowmq.core.stats import Histogram
from sparrowmq.errors import DiskFull, StoreFailed
from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.log_file import LogFile
from sparrowmq.store.log.synced_mark import SyncedMark

log = logging.getLogger(__name__)


ROOM_BYTES: Final = 16 << 20  # that have to become free after a start without room, before another start


class _Order(NamedTuple):
    target: int
    files: list[LogFile]


class Flusher:
    """Writes a commit log to disk.

    Attributes:
        written: the offset up to which the log is in its files.
        flushed: the offset up to which the log is on disk. Both fail when a write or a sync fails.
        mark: notes each finished sync, so that a start can tell rot from a torn tail.
        times: the durations of the thread's syncs, in microseconds; only the thread adds to them.
    """

    def __init__(self, commit_log: CommitLog, mark: SyncedMark) -> None:
        self.mark = mark
        self.written = Watermark(commit_log.written)
        self.flushed = Watermark(commit_log.end)
        self._log = commit_log
        self._ordered = self.flushed.value
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.times = Histogram()
        self._failed: OSError | None = None  # the error that ended the thread; the loop may not know it yet

    def start_at(self, end: int) -> None:
        """Record that the log is on disk up to `end`, as recovery has made sure."""
        self.written.advance(end)
        self.flushed.advance(end)
        self._ordered = end

    def begin_full(self, full: DiskFull) -> None:
        """Begin as failed, as the disk has no room for recovery: messages can be read, none is taken."""
        self.start_at(self._log.end)
        failure = StoreFailed(
            f"the disk was full at the start ({full}): messages can be read, none is taken; free at least "
            f"{ROOM_BYTES >> 20} MiB, and the broker takes messages again by itself"
        )
        failure.__cause__ = full
        self._end(failure)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sync in a thread from now on, and report to `loop`."""
        self._loop = loop
        self._thread = threading.Thread(target=self._work, args=(loop,), name="sparrowmq-flush", daemon=True)
        self._thread.start()

    def kick(self) -> None:
        """Sync the written bytes: now, or right after the running sync."""
        end = self._log.written
        if end > self._ordered and self.flushed.error is None:
            self._orders.put(_Order(end, self._log.row.between(self._ordered, end)))
            self._ordered = end

    def stop(self) -> None:
        """Let the thread finish its orders, and end it."""
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()
            self._thread = None

    def flush(self) -> None:
        """Write and sync the appended records on this thread. A running flush thread first finishes its orders.

        Raises:
            DiskFull: the records could not be written; try again later.
            StoreFailed: this or an earlier sync failed.
        """
        lives, loop = self._thread is not None, self._loop
        self.stop()
        try:
            self._flush()
        finally:
            if lives and loop is not None and self._failed is None:
                self.start(loop)
        if self.flushed.error is not None:
            raise self.flushed.error

    def _flush(self) -> None:
        if self._failed is not None:
            self.fail(self._failed)
        if self.flushed.error is None:
            try:
                end = self._log.write_out()
                self.written.advance(end)
                for file in self._log.row.between(self.flushed.value, end) if end > self.flushed.value else ():
                    file.sync()
                self._ordered = max(self._ordered, end)
                if end > self.flushed.value:
                    self.mark.note(end)
                self.flushed.advance(end)
            except OSError as error:
                self.fail(error)

    def fail(self, cause: OSError) -> StoreFailed:
        """Acknowledge no more messages, and accept no more."""
        if isinstance(self.flushed.error, StoreFailed):
            return self.flushed.error
        failure = StoreFailed(
            f"writing the store to disk failed ({cause}): messages can be read, none is taken; "
            "check the disk, then start again, which keeps what had been acknowledged"
        )
        failure.__cause__ = cause
        self._end(failure)
        return failure

    def _end(self, failure: StoreFailed) -> None:
        log.critical("%s", failure)
        self._log.refuse(failure)
        self._log.distrust()
        self.written.fail(failure)
        self.flushed.fail(failure)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (order := self._next_order()) is not None:
            began = perf_counter()
            try:
                for file in order.files:
                    file.sync()
            except OSError as error:
                self._failed = error
                _tell(loop, self.fail, error)
                return
            self.mark.note(order.target)
            self.times.record(int((perf_counter() - began) * 1e6))
            _tell(loop, self.flushed.advance, order.target)

    def _next_order(self) -> _Order | None:
        """Wait for an order, and merge all waiting orders into one: a sync covers everything written before it."""
        order = self._orders.get()
        files = list(order.files) if order else []
        while order is not None:
            try:
                following = self._orders.get_nowait()
            except Empty:
                return _Order(order.target, list(dict.fromkeys(files)))
            if following is None:
                self._orders.put(None)
                return _Order(order.target, list(dict.fromkeys(files)))
            order = following
            files += order.files
        return None


def _tell(loop: asyncio.AbstractEventLoop, callback: object, argument: object) -> None:
    try:
        loop.call_soon_threadsafe(callback, argument)  # type: ignore[arg-type]
    except RuntimeError:
        log.warning("the loop ended while the store was being written to disk")
