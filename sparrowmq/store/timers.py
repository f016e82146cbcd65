"""The timers of a store: the pending messages of rmq_sys_wheel_timer, and the due time of each.

    rmq_sys_wheel_timer[0]   every timer ever, as the queue's entry: offset, size, due                ┐
    the log                  a delivered record names the timer that it settles (`settling_offset`)    ├ wheel
    timers/                  pending and settled timers: a start need not read all of the first two   ┘ (timer_wheel.py)

A record settles a timer: the message at its real address, or the same timer stored again ("rolled"), because its log
file is about to be deleted. It contains the timer's log offset as -1 - offset, in the field where a committed message
has that of its half message. So each timer is either pending or settled in the log that a crash leaves. Recalls, and
the timers that they recall, are settled by the file alone. After a crash they are taken once more, with the same
result.

Source: TimerMessageStore, Java 5.4. Unlike Java, which rolls a timer every two days, a timer is rolled when its log
file should be deleted. A store of Java's has no timer file of ours, and is read as if no timer had been delivered.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import CorruptRecord
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record import outline
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.retention import RetentionHold
from sparrowmq.store.timer_wheel import RECALL, TimerWheel
from sparrowmq.store.vfs import File, NumberedFolder, Vfs

log = logging.getLogger(__name__)

_MAGIC: Final = b"SPTM"
_HEAD: Final = struct.Struct(">4siiqq")
_CRC: Final = struct.Struct(">I")
_PENDING: Final = 1
_SETTLED: Final = 2
_SIZES: Final = {_PENDING: ENTRY_SIZE, _SETTLED: 8}
_SPARE_BYTES: Final = 1 << 20  # settled chunks up to this size need no new file
_ENTRIES_PER_PIECE: Final = 512  # queue entries per read, and recalls that are settled at once
_MAX_NEW_ENTRIES: Final = 1 << 16  # queue entries that a start reads because they are newer than the file
_MIN_DUE_MS: Final = 1 << 33  # a hash has 32 bits, a time in ms more
_MAX_LOG_BYTES: Final = 16 << 20  # bytes of the log that a start reads because the file does not cover them


class Timer(NamedTuple):
    """A timer that is due or is to be rolled: the place of its record, and its due time, perhaps with `RECALL`."""

    offset: int
    size: int
    due: int


class TimerSnapshot(NamedTuple):
    """The content that `Timers.save` writes: everything up to these offsets."""

    finished: list[int]
    pending: list[bytes] | None
    queue_offset: int
    log_offset: int


class Timers:
    """The pending timers, on one event loop; only `save` runs in a thread. `hold` gets the part of the log that timers
    need.
    """

    def __init__(self, vfs: Vfs, folder: str, commit_log: CommitLog, queue: ConsumeQueue, hold: RetentionHold) -> None:
        self.queue = queue
        self._log = commit_log
        self._file = TimerFile(vfs, folder)
        self._wheel = TimerWheel(commit_log.file_size)
        self._hold = hold
        # Entries that were taken from the wheel and are not settled: a slot, its recalls, and timers to roll.
        self.slot = 0
        self._due_entries = b""
        self._due_at = 0
        self._recalls = b""
        self._recalls_at = 0  # settled up to here, once the slot is empty
        self._put_off_ms = 0  # when the slot's timers come again that could not be settled; 0 if all could
        self._to_roll = bytearray()
        self._rolling: Iterator[bytes] | None = None
        self._finished: list[int] = []  # not in the file yet
        loaded = self._file.load()
        saved = loaded or self._state_without_file()
        self._next_queue_offset = saved.queue_offset
        self._saved_log_offset, self._saved_queue_offset = saved.log_offset, saved.queue_offset
        self._recover(saved)
        if loaded is None:
            self._finished.clear()  # the first file has the pending timers alone
        hold.needed_from.append(lambda: self._wheel.oldest)

    def __len__(self) -> int:
        return self._wheel.count

    @property
    def next_offset(self) -> int:
        return self._next_queue_offset

    def read_new(self) -> None:
        self._read_queue(frozenset())

    def due(self, now_ms: int, max_count: int) -> list[Timer]:
        """Return the next due timers, in the order of their slots; each must be settled. If there is none, ask
        `wait_ms`.
        """
        if not self._due_entries:
            self._next_slot(now_ms)
        return _unpack_timers(self._due_entries[self._due_at : self._due_at + max_count * ENTRY_SIZE])

    def wait_ms(self, now_ms: int) -> int:
        is_taken = self._due_entries or self._recalls or self._to_roll
        is_busy = is_taken or self._hold.delete_before or self._wheel.pour_next(now_ms)
        return 0 if is_busy else self._wheel.wait_ms(now_ms)

    def is_over(self, due_ms: int, now_ms: int) -> bool:
        """Whether it is too late to recall a timer with this due time."""
        return self._wheel.is_over(due_ms, now_ms)

    @property
    def recall_count(self) -> int:
        return len(self._recalls) // ENTRY_SIZE

    def recalls(self, begin: int, max_count: int) -> list[Timer]:
        return _unpack_timers(self._recalls[begin * ENTRY_SIZE : (begin + max_count) * ENTRY_SIZE])

    def settle_next(self) -> None:
        self._settle(ENTRY.unpack_from(self._due_entries, self._due_at)[0])
        self._pass_next()

    def put_off_next(self, due_ms: int) -> None:
        """Put off the first of the timers that `due` returned, because it cannot be settled now. It comes again with
        its slot's recalls.
        """
        offset, size, _ = ENTRY.unpack_from(self._due_entries, self._due_at)
        self._put_off_ms = self._put_off_ms or due_ms  # all at one time, so that they share a slot again
        self._put_back(offset, size, self._put_off_ms)
        self._pass_next()

    def next_to_roll(self) -> Timer | None:
        """Return a timer to be stored again and then `settle_rolled`, because its log file should be deleted."""
        if not self._to_roll:
            if self._rolling is None and self._hold.delete_before and not self._wheel.pouring:
                self._rolling = self._wheel.take_before(self._hold.delete_before)
            if self._rolling is None:
                return None
            self._to_roll += next(self._rolling, b"")
            if not self._to_roll:  # no timer is left there; retention asks again if it needs more
                self._rolling, self._hold.delete_before = None, 0
                return None
        return _unpack_timers(self._to_roll[-ENTRY_SIZE:])[0]

    def settle_rolled(self) -> None:
        """Settle the timer that `next_to_roll` returned, because it was stored again."""
        self._settle(ENTRY.unpack(self._to_roll[-ENTRY_SIZE:])[0])
        del self._to_roll[-ENTRY_SIZE:]

    def put_off_roll(self) -> None:
        """Put back the timer that `next_to_roll` returned; it comes again when its log file should be deleted."""
        self._put_back(*ENTRY.unpack(self._to_roll[-ENTRY_SIZE:]))
        del self._to_roll[-ENTRY_SIZE:]

    def collect_unsaved(self) -> TimerSnapshot | None:
        """Return the content for `save`, to write once the log is on disk to its end; None if it is too little."""
        end, new_count = self._log.end, self._next_queue_offset - self._saved_queue_offset
        replaces = self._file.wants_replacement or new_count >= max(_MAX_NEW_ENTRIES, self._wheel.count)
        is_new = (
            self._finished
            or (replaces and new_count >= _ENTRIES_PER_PIECE)
            or end - self._saved_log_offset >= _MAX_LOG_BYTES
        )
        if not is_new or not (self.queue.max_offset or self._finished):
            return None
        pending, queue_offset = None, self._saved_queue_offset
        if replaces:
            queue_offset = self._next_queue_offset
            pending = [
                *self._wheel.slots(),
                self._due_entries[self._due_at :],
                self._recalls[self._recalls_at :],
                bytes(self._to_roll),
            ]
        return TimerSnapshot(list(self._finished), pending, queue_offset, end)

    def save(self, saved: TimerSnapshot) -> None:
        """Write the content, in any thread; one at a time. Raises: DiskFull, OSError: nothing has changed."""
        if saved.pending is not None:
            self._file.replace(saved.pending, saved.queue_offset, saved.log_offset)
        else:
            self._file.settle(saved.finished, saved.log_offset)

    def note_saved(self, saved: TimerSnapshot) -> None:
        del self._finished[: len(saved.finished)]
        self._saved_log_offset, self._saved_queue_offset = saved.log_offset, saved.queue_offset

    def close(self) -> None:
        self._file.close()

    def _settle(self, offset: int) -> None:
        self._wheel.settle(offset)
        self._finished.append(offset)

    def _put_back(self, offset: int, size: int, due: int) -> None:
        self._wheel.settle(offset)
        self._wheel.add(offset, size, due)

    def _pass_next(self) -> None:
        self._due_at += ENTRY_SIZE
        if self._due_at == len(self._due_entries):
            self._due_entries, self._due_at = b"", 0

    def _settle_recalls(self) -> None:
        """Settle some recalls of the slot, whose messages are all settled or put off."""
        end = self._recalls_at + _ENTRIES_PER_PIECE * ENTRY_SIZE
        for recall in _unpack_timers(self._recalls[self._recalls_at : end]):
            if self._put_off_ms:
                self._put_back(recall.offset, recall.size, self._put_off_ms | RECALL)
            else:
                self._settle(recall.offset)
        self._recalls_at = end
        if end >= len(self._recalls):
            self._recalls, self._recalls_at, self._put_off_ms = b"", 0, 0

    def _next_slot(self, now_ms: int) -> None:
        """Take the next slot that is over. The previous slot's recalls and the wheel's pouring come before it."""
        if self._recalls:
            self._settle_recalls()
        elif not self._wheel.pour_next(now_ms):
            self._put_off_ms = 0
            self.slot += 1
            self._due_entries, self._recalls = self._wheel.take(
                now_ms
            )  # recalls without messages: what they name is gone

    def _state_without_file(self) -> SavedTimers:
        """Return the state without a file: everything in the queue, and the log from its first timer on."""
        first = self.queue.min_offset
        entry = next((self.queue.entry(at) for at in range(first, self.queue.max_offset)), None)
        return SavedTimers(queue_offset=first, log_offset=entry.offset if entry else self._log.end)

    def _recover(self, saved: SavedTimers) -> None:
        settled_offsets = saved.finished
        # The next chunk moves the file's log offset past the records that settle these.
        self._finished += self._settled_in_log(saved.log_offset)
        settled_offsets.update(self._finished)
        for at in range(0, len(saved.pending), ENTRY_SIZE):
            offset, size, due = ENTRY.unpack_from(saved.pending, at)
            if offset not in settled_offsets:
                self._add_to_wheel(offset, size, due)
        self._next_queue_offset = min(self._next_queue_offset, self.queue.max_offset)
        self._read_queue(settled_offsets)

    def _settled_in_log(self, begin: int) -> Iterator[int]:
        begin, prepared = max(begin, self._log.begin), set[int]()
        while begin < self._log.written:
            begin = self._log.collect_prepared(begin, self._log.written, prepared)
        return (settling_offset(prepared_offset) for prepared_offset in prepared if prepared_offset < 0)

    def _read_queue(self, finished: set[int] | frozenset[int]) -> None:
        queue = self.queue
        self._next_queue_offset = max(self._next_queue_offset, queue.min_offset)
        while self._next_queue_offset < queue.max_offset:
            entries = queue.read(self._next_queue_offset, _ENTRIES_PER_PIECE)
            for i in range(len(entries)):
                offset, size, code = entries.offset(i), entries.size(i), entries.tags_code(i)
                if not entries.is_gap(i) and offset not in finished:
                    self._add_to_wheel(offset, size, code if code >= _MIN_DUE_MS else self._due_of(offset))
            self._next_queue_offset += len(entries)

    def _add_to_wheel(self, offset: int, size: int, due: int) -> None:
        # A file that is deleted had only timers that were settled: retention keeps the others, at each broker.
        if offset >= self._log.begin:
            self._wheel.add(offset, size, due)

    def _due_of(self, offset: int) -> int:
        """Return the due time of a timer whose entry lacks it, because Java wrote the entry."""
        try:
            record, _ = self._log.parse(offset)
        except CorruptRecord:
            record = None
        properties = outline(record).properties if record is not None else None
        due = whole_number(properties.get(Property.TIMER_OUT_MS)) if properties is not None else None
        if properties is None or due is None:
            log.error("the timer at log offset %d does not say when it is due; it is delivered now", offset)
            return 0
        return due | (RECALL if properties.get(Property.TIMER_DEL_UNIQKEY) else 0)


def _unpack_timers(entries: bytes | bytearray) -> list[Timer]:
    return [Timer(*fields) for fields in ENTRY.iter_unpack(entries)]


def settling_offset(offset: int) -> int:
    """Return the `prepared_offset` of the record that settles the timer at `offset`, and the offset from that."""
    return -1 - offset


@dataclass(slots=True)
class SavedTimers:
    pending: bytes = b""  # entries
    finished: set[int] = field(default_factory=set)  # the log offsets of timers that are no longer pending
    queue_offset: int = 0
    log_offset: int = 0


class TimerFile:
    """The newest file of pending timers, which the first `replace` creates. Without it a start reads the log, slower.

        timers/%020d    numbered: a new file replaces the previous one when the settled outweigh the pending
        chunk | "SPTM" 4 | kind 4 | count 4 | queue offset 8 | log offset 8 | `count` items | CRC-32 of all that 4 |
              kind 1   pending: entries as in the queue, 20 bytes; the first chunk, and only the first
              kind 2   settled: the log offsets of timers that were delivered, rolled or recalled, 8 bytes

        queue offset    timers of the queue before it are in this file: the same in all chunks of a file
        log offset      timers that a record before it settles are in this file

    A start takes the pending timers and adds the queue's timers from the queue offset on. Then it removes the settled
    ones, and those that records of the log settle, from the last log offset on. A settled chunk is written when the
    records that settle are on disk. It is not synced: the log contains everything that a crash takes from it. Numbers
    are big-endian.
    """

    def __init__(self, vfs: Vfs, folder: str) -> None:
        self._vfs = vfs
        self._folder = NumberedFolder(vfs, folder)
        self._file: File | None = None
        self._end = 0
        self._begin_settled = 0
        self._queue_offset = 0

    def load(self) -> SavedTimers | None:
        """Return the content of the newest readable file; None if there is none. Raises: OutOfResources."""
        for number in self._folder.numbers():
            file = self._folder.open(number, writable=True)
            if saved := self._read(self._vfs.read(file, 0, file.size)):
                self._file = file
                return saved
            log.warning("%s is damaged; the pending timers are found in the log", file.path)
            self._vfs.close(file)
        return None

    @property
    def wants_replacement(self) -> bool:
        """Whether most of the file is about timers that are no longer pending."""
        return self._file is None or self._end - self._begin_settled > self._begin_settled + _SPARE_BYTES

    def settle(self, offsets: list[int], log_offset: int) -> None:
        """Add a chunk of settled timers. Raises: DiskFull, OSError: nothing has changed."""
        assert self._file is not None
        items = struct.pack(f">{len(offsets)}q", *offsets)
        chunk = _chunk(_SETTLED, items, self._queue_offset, log_offset)
        self._vfs.write(self._file, self._end, chunk)
        self._end += len(chunk)

    def replace(self, pending: list[bytes], queue_offset: int, log_offset: int) -> None:
        """Write a new file, and delete the previous one; in any thread. Raises: DiskFull, OSError, and no change."""
        chunk = _chunk(_PENDING, b"".join(pending), queue_offset, log_offset)
        former_file, self._file = self._file, self._folder.replace(chunk)
        self._end = self._begin_settled = len(chunk)
        self._queue_offset = queue_offset
        if former_file is not None:
            self._vfs.close(former_file)
        self._folder.remove_others()

    def close(self) -> None:
        if self._file is not None:
            self._vfs.close(self._file)
            self._file = None

    def _read(self, content: bytes) -> SavedTimers | None:
        """Return the content of the whole chunks; None if not even the first is whole."""
        at = log_offset = 0
        pending, finished = b"", set[int]()
        while (chunk := _whole_chunk(content, at)) is not None:
            kind, items, queue_offset, log_offset = chunk
            at += _HEAD.size + len(items) + _CRC.size
            if kind == _PENDING:
                pending, self._queue_offset, self._begin_settled = items, queue_offset, at
            else:
                finished.update(struct.unpack(f">{len(items) // 8}q", items))
        self._end = at
        return SavedTimers(pending, finished, self._queue_offset, log_offset) if at else None


def _chunk(kind: int, items: bytes, queue_offset: int, log_offset: int) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, len(items) // _SIZES[kind], queue_offset, log_offset)
    return b"".join((head, items, _CRC.pack(crc32(items, crc32(head)))))


def _whole_chunk(content: bytes, at: int) -> tuple[int, bytes, int, int] | None:
    """Return kind, items, queue offset and log offset of the chunk at a position; None if it is not whole."""
    if at + _HEAD.size > len(content):
        return None
    magic, kind, count, queue_offset, log_offset = _HEAD.unpack_from(content, at)
    if magic != _MAGIC or kind not in _SIZES or count < 0:
        return None
    begin = at + _HEAD.size
    end = begin + count * _SIZES[kind]
    if end + _CRC.size > len(content):
        return None
    items = content[begin:end]
    is_whole = _CRC.unpack_from(content, end)[0] == crc32(items, crc32(content[at:begin]))
    return (kind, items, queue_offset, log_offset) if is_whole else None
