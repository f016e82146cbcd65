"""Group commit: one fdatasync at a time, each for everything that was appended before it began.

    loop       append append | kick(end) ------- append, kick(end) ---------------- done: flushed.advance
    thread                   | fdatasync (0.1 ms, without the GIL) | fdatasync for what came meanwhile | ...

A sync takes about as long as handing work to a thread pool and back. So the thread lives as long as the store, and
starts the next sync by itself.

After the first failed sync the log takes no more messages. Linux reports success for the same bytes at the next call,
though they are lost (measured on ext4). `flushed` fails, so that no message is acknowledged that may be lost. A caller
that syncs while the thread lives (`flush`) first lets the thread finish, and reads its result:

    thread    fdatasync fails ─ tells the loop, which is busy
    loop      flush: fdatasync "succeeds"   ── must not be believed: `flush` reads the thread's result (`_sync_error`)

Source of the rule: PostgreSQL's "fsyncgate". Java's GroupCommitService tries again up to 1,000 times.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from sparrowmq.core.stats import Histogram
from sparrowmq.errors import DiskFull, StoreFailed
from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.layout import SECTOR
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.log_file import LogFile
from sparrowmq.store.vfs import File, Vfs, content_of

log = logging.getLogger(__name__)

ROOM_BYTES: Final = 16 << 20  # that have to become free after a start without room, before another start

_MARK: Final = struct.Struct(">8sq")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"SYNCED-1"
_FILE_SIZE: Final = 2 * SECTOR
_BOOT_AT: Final = 24
_BOOT_SIZE: Final = 16
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _SyncOrder(NamedTuple):
    target: int
    files: list[LogFile]


class Flusher:
    """Writes a commit log to disk."""

    def __init__(self, commit_log: CommitLog, mark: SyncedMark) -> None:
        self.mark = mark  # notes each finished sync, so that a start can tell rot from a torn tail
        self.written = Watermark(commit_log.written)  # the offset up to which the log is in its files
        # The offset up to which the log is on disk. Both fail when a write or a sync fails.
        self.flushed = Watermark(commit_log.end)
        self._log = commit_log
        self._ordered_end = self.flushed.value
        self._orders: SimpleQueue[_SyncOrder | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.times = Histogram()  # the durations of the thread's syncs, in microseconds; only the thread adds to them
        self._sync_error: OSError | None = None  # the error that ended the thread; the loop may not know it yet

    def start_at(self, end: int) -> None:
        self.written.advance(end)
        self.flushed.advance(end)
        self._ordered_end = end

    def begin_full(self, full_error: DiskFull) -> None:
        self.start_at(self._log.end)
        failure = StoreFailed(
            f"the disk was full at the start ({full_error}): messages can be read, none is taken; free at least "
            f"{ROOM_BYTES >> 20} MiB, and the broker takes messages again by itself"
        )
        failure.__cause__ = full_error
        self._end_with(failure)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._sync_orders, args=(loop,), name="sparrowmq-flush", daemon=True)
        self._thread.start()

    def kick(self) -> None:
        """Sync the written bytes: now, or right after the running sync."""
        end = self._log.written
        if end > self._ordered_end and self.flushed.error is None:
            self._orders.put(_SyncOrder(end, self._log.row.between(self._ordered_end, end)))
            self._ordered_end = end

    def stop(self) -> None:
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()
            self._thread = None

    def flush(self) -> None:
        """Write and sync the appended records on this thread, after the orders of the flush thread. Raises: DiskFull,
        try again later; StoreFailed.
        """
        has_thread, loop = self._thread is not None, self._loop
        self.stop()
        try:
            self._flush()
        finally:
            if has_thread and loop is not None and self._sync_error is None:
                self.start(loop)
        if self.flushed.error is not None:
            raise self.flushed.error

    def _flush(self) -> None:
        if self._sync_error is not None:
            self.fail(self._sync_error)
        if self.flushed.error is None:
            try:
                end = self._log.write_out()
                self.written.advance(end)
                for file in self._log.row.between(self.flushed.value, end) if end > self.flushed.value else ():
                    file.sync()
                self._ordered_end = max(self._ordered_end, end)
                if end > self.flushed.value:
                    self.mark.note(end)
                self.flushed.advance(end)
            except OSError as error:
                self.fail(error)

    def fail(self, cause: OSError) -> StoreFailed:
        if isinstance(self.flushed.error, StoreFailed):
            return self.flushed.error
        failure = StoreFailed(
            f"writing the store to disk failed ({cause}): messages can be read, none is taken; "
            "check the disk, then start again, which keeps what had been acknowledged"
        )
        failure.__cause__ = cause
        self._end_with(failure)
        return failure

    def _end_with(self, failure: StoreFailed) -> None:
        log.critical("%s", failure)
        self._log.refuse(failure)
        self._log.distrust()
        self.written.fail(failure)
        self.flushed.fail(failure)

    def _sync_orders(self, loop: asyncio.AbstractEventLoop) -> None:
        while (order := self._next_order()) is not None:
            began = perf_counter()
            try:
                for file in order.files:
                    file.sync()
            except OSError as error:
                self._sync_error = error
                _call_on_loop(loop, self.fail, error)
                return
            self.mark.note(order.target)
            self.times.record(int((perf_counter() - began) * 1e6))
            _call_on_loop(loop, self.flushed.advance, order.target)

    def _next_order(self) -> _SyncOrder | None:
        """Wait for an order, and merge all waiting orders into one: a sync covers everything written before it."""
        order = self._orders.get()
        files = list(order.files) if order else []
        while order is not None:
            try:
                following = self._orders.get_nowait()
            except Empty:
                return _SyncOrder(order.target, list(dict.fromkeys(files)))
            if following is None:
                self._orders.put(None)
                return _SyncOrder(order.target, list(dict.fromkeys(files)))
            order = following
            files += order.files
        return None


def _call_on_loop(loop: asyncio.AbstractEventLoop, callback: object, argument: object) -> None:
    try:
        loop.call_soon_threadsafe(callback, argument)  # type: ignore[arg-type]
    except RuntimeError:
        log.warning("the loop ended while the store was being written to disk")


@cache
def boot_id() -> bytes:
    with suppress(OSError, ValueError):
        return UUID(_BOOT_ID.read_text().strip()).bytes
    return bytes(_BOOT_SIZE)


class SyncedMark:
    """The file `abort`: it exists while a broker runs, and says how far the log has been synced.

          0  8  "SYNCED-1"
          8  8  an offset: the log is on disk up to there
         16  4  CRC-32 of bytes 0 to 16
         24 16  the system's boot in which it was written (Linux's boot_id); zeros if that is not known
         40  4  CRC-32 of bytes 24 to 40
        512 44  the same, of the sync before or after that one

    After each sync of the log, and before any of its messages is acknowledged, the sync's thread writes one of the two
    sectors. Only one thread at a time may write. These writes are not synced, which would double the cost of a message:

        the process is killed     the system still has the last write: the mark is exact
        the power fails           the mark may be seconds old; but it is never too high

    A start believes the higher mark. Bytes before it had been on disk, so damage there is no torn tail (recovery.py).
    After a restart of the machine, damage behind the mark can look like a log that ended there: the store is in doubt.
    Java leaves the file empty (4.9) or writes the id of its process into it (5.x). `path`: of the file `abort`.
    """

    def __init__(self, vfs: Vfs, path: str) -> None:
        self._vfs = vfs
        self._path = path
        self._file: File | None = None
        self._sector = 0

    def begin(self, end: int) -> None:
        """Create the file, or take over that of a crash. It says `end` on disk when this returns, and no higher mark.
        The caller syncs the folder. On a full disk the file exists, and is empty.
        """
        exists = self._vfs.exists(self._path)
        try:
            self._file = self._vfs.open(self._path, True) if exists else self._vfs.create(self._path, _FILE_SIZE, True)
            if self._file.size != _FILE_SIZE:
                self._vfs.truncate(self._file, _FILE_SIZE)
            self._vfs.write(self._file, 0, _pack_mark(end).ljust(SECTOR, b"\0") + _pack_mark(end))
            self._vfs.sync(self._file)
        except DiskFull as full:
            log.warning("the file %s does not note how far the log is on disk: %s", self._path, full)
            self.close()
            if not self._vfs.exists(self._path):
                self._vfs.close(self._vfs.create(self._path, 0, allocate=False))

    def note(self, end: int) -> None:
        """Write down that the log is on disk up to `end`. Never raises: the log does not need the mark."""
        if self._file is None:
            return
        try:
            self._vfs.write(self._file, self._sector * SECTOR, _pack_mark(end))
        except (OSError, DiskFull) as error:
            log.warning("%s is not written any more: %s", self._path, error)
            self.close()
        self._sector = 1 - self._sector

    def close(self) -> None:
        if self._file is not None:
            self._vfs.close(self._file)
            self._file = None


def load_mark(vfs: Vfs, path: str) -> int:
    with suppress(FileNotFoundError):
        return highest_mark(content_of(vfs, path, _FILE_SIZE))
    return 0


def highest_mark(content: bytes) -> int:
    """Return the higher mark in the content of a file `abort`; 0 without a mark."""
    return max(_unpack_mark(content[at : at + SECTOR]) for at in (0, SECTOR))


def lower_mark(vfs: Vfs, path: str, end: int) -> None:
    """Let the marks of a closed store say at most `end`, on disk, before its log is cut there."""
    if load_mark(vfs, path) > end:
        mark = SyncedMark(vfs, path)
        mark.begin(end)
        mark.close()


def is_of_earlier_boot(vfs: Vfs, path: str) -> bool:
    """Whether the machine was restarted since the marks were written; False if that is not known."""
    with suppress(FileNotFoundError):
        content = content_of(vfs, path, _FILE_SIZE)
        boots = {_boot_in(content[at : at + SECTOR]) for at in (0, SECTOR)} - {bytes(_BOOT_SIZE)}
        return boot_id() not in boots and bool(boots)
    return False


def _pack_mark(end: int) -> bytes:
    covered, boot = _MARK.pack(_MAGIC, end), boot_id()
    return (covered + _CRC.pack(crc32(covered))).ljust(_BOOT_AT, b"\0") + boot + _CRC.pack(crc32(boot))


def _boot_in(sector: bytes) -> bytes:
    boot = sector[_BOOT_AT : _BOOT_AT + _BOOT_SIZE]
    crc = sector[_BOOT_AT + _BOOT_SIZE : _BOOT_AT + _BOOT_SIZE + _CRC.size]
    return boot if crc == _CRC.pack(crc32(boot)) else bytes(_BOOT_SIZE)


def _unpack_mark(sector: bytes) -> int:
    covered = sector[: _MARK.size]
    if len(sector) < _MARK.size + _CRC.size or _CRC.unpack_from(sector, _MARK.size)[0] != crc32(covered):
        return 0
    magic, end = _MARK.unpack(covered)
    return int(end) if magic == _MAGIC else 0
