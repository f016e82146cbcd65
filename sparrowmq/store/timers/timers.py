"""The timers of a store: which messages of rmq_sys_wheel_timer are pending, and when each of them is due.

    rmq_sys_wheel_timer[0]   every timer ever, as the queue's entry: offset, size, due                ┐
    the log                  what was delivered says which timer it settles (`settles`)                ├ wheel
    timers/                  pending once, settled since: a start need not read the first two whole   ┘ (timer_wheel.py)

A timer is settled by a record: the message at its real address, or the same timer stored again (rolled) because the
file of the log in which it lay is about to go. That record carries where the timer lay, in the field in which a
committed message has the place of its half message, as -1 - offset. So whatever a crash leaves of the log, each timer
is either pending or settled in it: none is lost and none delivered twice. Recalls, and what they recall, are settled by
the file alone: after a crash they are taken once more, together, with the same result.

Source: TimerMessageStore, Java 5.4. Unlike Java, which rolls a timer every two days, one is rolled when its file should
go; and a store of Java's, which has no file of ours, is read as if nothing had been delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from sparrowmq.errors import CorruptRecord
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record import outline
from sparrowmq.protocol.messages.record_layout import BODY_SIZE_BY_HOSTS, HOST_BITS_AT, LONG
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.retention import Hold
from sparrowmq.store.timers.timer_file import Known, TimerFile
from sparrowmq.store.timers.timer_wheel import RECALL, TimerWheel
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_PREPARED_BEFORE_BODY_SIZE: Final = 8
_PIECE: Final = 512  # entries of the queue that are read at once
_LEAST_DUE: Final = 1 << 33  # a hash has 32 bits, a time in ms more
_MOST_LOG_BYTES: Final = 16 << 20  # that a start has to read because the file knows nothing of them


class Timer(NamedTuple):
    """A timer that is due, or is to be rolled: where its record lies, and when it is due, perhaps with `RECALL`."""

    offset: int
    size: int
    due: int


class Saved(NamedTuple):
    """What `Timers.save` writes: everything up to these offsets."""

    settled: list[int]
    pending: list[bytes] | None
    queue_offset: int
    log_offset: int


class Timers:
    """What is pending, on one event loop; only `save` runs in a thread.

    Args:
        queue: of the timer topic.
        hold: is told which part of the log is needed.
    """

    def __init__(self, vfs: Vfs, folder: str, commit_log: CommitLog, queue: ConsumeQueue, hold: Hold) -> None:
        self.queue = queue
        self._log = commit_log
        self._file = TimerFile(vfs, folder)
        self._wheel = TimerWheel(commit_log.file_size)
        self._hold = hold
        # Entries that were taken from the wheel and not settled: a slot, its recalls, what is to be rolled.
        self._hand = b""
        self._at = 0
        self._recalls = b""
        self._put_off_ms = 0  # when those of the slot come again that could not be settled; 0 if all could
        self._to_roll = bytearray()
        self._rolling: Iterator[bytes] | None = None
        self._settled: list[int] = []  # the file does not know it yet
        known = self._file.load() or self._unknown()
        self._next = known.queue_offset
        self._saved_end, self._saved_next = known.log_offset, known.queue_offset
        self._recover(known)
        hold.begin = self._needed

    def __len__(self) -> int:
        return self._wheel.count

    @property
    def next_offset(self) -> int:
        """The offset in the queue up to which timers were taken over."""
        return self._next

    def learn(self) -> None:
        """Take over what is new in the queue."""
        self._learn(frozenset())

    def due(self, now_ms: int, most: int) -> list[Timer]:
        """The next timers that are due, in the order of their slots; each must be settled.

        With none of them left there may still be something to pour, so ask `wait_ms`.
        """
        if not self._hand:
            self._next_slot(now_ms)
        return _timers(self._hand[self._at : self._at + most * ENTRY_SIZE])

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing will be due."""
        is_busy = self._hand or self._to_roll or self._hold.wanted or self._wheel.turn(now_ms)
        return 0 if is_busy else self._wheel.wait_ms(now_ms)

    def is_over(self, due_ms: int, now_ms: int) -> bool:
        """Whether it is too late to recall what is due then."""
        return self._wheel.is_over(due_ms, now_ms)

    @property
    def recalls(self) -> list[Timer]:
        """The recalls of the slot of which `due` tells."""
        return _timers(self._recalls)

    def settle_next(self) -> None:
        """The first of the timers that `due` told needs nothing more."""
        self._settle(ENTRY.unpack_from(self._hand, self._at)[0])
        self._pass_next()

    def put_off_next(self, due_ms: int) -> None:
        """The first of the timers that `due` told cannot be settled now: let it come again, with its slot's recalls."""
        offset, size, _ = ENTRY.unpack_from(self._hand, self._at)
        self._put_off_ms = self._put_off_ms or due_ms  # all at one time, so that they are in one slot again
        self._put_back(offset, size, self._put_off_ms)
        self._pass_next()

    def to_roll(self) -> Timer | None:
        """A timer that is to be stored again and then `rolled`, because its file should go."""
        if not self._to_roll:
            if self._rolling is None and self._hold.wanted and not self._wheel.is_pouring:
                self._rolling = self._wheel.take_before(self._hold.wanted)
            if self._rolling is None:
                return None
            self._to_roll += next(self._rolling, b"")
            if not self._to_roll:  # That was all. Retention tells if it still wants something.
                self._rolling, self._hold.wanted = None, 0
                return None
        return _timers(self._to_roll[-ENTRY_SIZE:])[0]

    def rolled(self) -> None:
        """The timer that `to_roll` told was stored again."""
        self._settle(ENTRY.unpack(self._to_roll[-ENTRY_SIZE:])[0])
        del self._to_roll[-ENTRY_SIZE:]

    def put_off_roll(self) -> None:
        """The timer that `to_roll` told cannot be stored again now; it is told again when its file should go."""
        self._put_back(*ENTRY.unpack(self._to_roll[-ENTRY_SIZE:]))
        del self._to_roll[-ENTRY_SIZE:]

    # The file -------------------------------------------------------------------------------------------------------

    def unsaved(self) -> Saved | None:
        """What `save` should write once the log is on disk up to its end; None if there is nothing worth it."""
        end = self._log.end
        is_new = (
            self._settled
            or self._next - self._saved_next >= _PIECE
            or end - self._saved_end >= _MOST_LOG_BYTES
        )
        if not is_new or not (self.queue.max_offset or self._settled):
            return None
        pending = None
        if self._file.wants_replacement:
            pending = [*self._wheel.slots(), self._hand[self._at :], self._recalls, bytes(self._to_roll)]
        return Saved(list(self._settled), pending, self._next, end)

    def save(self, saved: Saved) -> None:
        """Write it, in any thread; one at a time. Raises: DiskFull, OSError: it is as before."""
        if saved.pending is not None:
            self._file.replace(saved.pending, saved.queue_offset, saved.log_offset)
        else:
            self._file.settle(saved.settled, saved.queue_offset, saved.log_offset)

    def was_saved(self, saved: Saved) -> None:
        """It was written."""
        del self._settled[: len(saved.settled)]
        self._saved_end, self._saved_next = saved.log_offset, saved.queue_offset

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _settle(self, offset: int) -> None:
        self._wheel.settle(offset)
        self._settled.append(offset)

    def _put_back(self, offset: int, size: int, due: int) -> None:
        self._wheel.settle(offset)
        self._wheel.add(offset, size, due)

    def _pass_next(self) -> None:
        self._at += ENTRY_SIZE
        if self._at == len(self._hand):
            self._hand, self._at = b"", 0
            self._settle_recalls()

    def _needed(self) -> int | None:
        return self._wheel.oldest

    def _settle_recalls(self) -> None:
        for recall in _timers(self._recalls):
            if self._put_off_ms:
                self._put_back(recall.offset, recall.size, self._put_off_ms | RECALL)
            else:
                self._settle(recall.offset)
        self._recalls, self._put_off_ms = b"", 0

    def _next_slot(self, now_ms: int) -> None:
        if self._wheel.turn(now_ms):
            return
        self._hand, self._recalls = self._wheel.take(now_ms)
        if not self._hand:
            self._settle_recalls()  # What they recall is not here.

    def _unknown(self) -> Known:
        """Without a file: whatever the queue has, and what the log says of it."""
        first = self.queue.min_offset
        entry = next((self.queue.entry(at) for at in range(first, self.queue.max_offset)), None)
        return Known(queue_offset=first, log_offset=entry.offset if entry else self._log.end)

    def _recover(self, known: Known) -> None:
        settled = known.settled
        settled.update(self._settled_in_log(known.log_offset))
        for at in range(0, len(known.pending), ENTRY_SIZE):
            offset, size, due = ENTRY.unpack_from(known.pending, at)
            if offset not in settled:
                self._add(offset, size, due)
        self._next = min(self._next, self.queue.max_offset)
        self._learn(settled)

    def _settled_in_log(self, begin: int) -> Iterator[int]:
        begin = max(begin, self._log.begin)
        try:
            for record in self._log.walk(begin, self._log.written):
                if (offset := settles(record)) is not None:
                    yield offset
        except CorruptRecord as damaged:
            log.error("some timers may be delivered twice: %s", damaged)

    def _learn(self, settled: set[int] | frozenset[int]) -> None:
        queue = self.queue
        self._next = max(self._next, queue.min_offset)
        while self._next < queue.max_offset:
            entries = queue.read(self._next, _PIECE)
            for i in range(len(entries)):
                offset, size, code = entries.offset(i), entries.size(i), entries.tags_code(i)
                if not entries.is_gap(i) and offset not in settled:
                    self._add(offset, size, code if code >= _LEAST_DUE else self._due_of(offset))
            self._next += len(entries)

    def _add(self, offset: int, size: int, due: int) -> None:
        if offset < self._log.begin:
            log.error("the timer at log offset %d is gone, with the file of the log that it was in", offset)
        else:
            self._wheel.add(offset, size, due)

    def _due_of(self, offset: int) -> int:
        """When a timer is due whose entry does not say it, because Java wrote it."""
        try:
            record, _ = self._log.parse(offset)
        except CorruptRecord:
            record = None
        properties = outline(record).properties if record is not None else None
        due = (properties.get(Property.TIMER_OUT_MS) or "") if properties is not None else ""
        if properties is None or not due.isdecimal():
            log.error("the timer at log offset %d does not say when it is due; it is delivered now", offset)
            return 0
        return int(due) | (RECALL if properties.get(Property.TIMER_DEL_UNIQKEY) else 0)


def _timers(entries: bytes | bytearray) -> list[Timer]:
    return [Timer(*each) for each in ENTRY.iter_unpack(entries)]


def settling(offset: int) -> int:
    """What the record that settles the timer at `offset` has as its `prepared_offset`."""
    return -1 - offset


def settles(record: memoryview) -> int | None:
    """Where the timer lies that a record settles; None if it settles none."""
    at = BODY_SIZE_BY_HOSTS[record[HOST_BITS_AT] >> 4 & 3] - _PREPARED_BEFORE_BODY_SIZE
    prepared: int = LONG.unpack_from(record, at)[0]
    return -1 - prepared if prepared < 0 else None
