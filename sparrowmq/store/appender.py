"""The way of messages into the store: to the log's end, to their queues and the index, in bursts.

    append ── a burst begins: the clock is read ── encode, keep for the burst ── note the entries of queue and index
    the turn's end ── write out ── dispatch: queues show it                      (without a turn: `publish`)
    no room on the disk ── stall: no message is taken for a while ── the next message, or `tend`, tries again

Use it through `MessageStore`, which creates it from the parts that it has opened.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from time import perf_counter
from typing import Final

from sparrowmq.errors import DiskFull, InvalidMessage, OutOfResources, StoreError
from sparrowmq.kernel.lanes import Lanes
from sparrowmq.kernel.records import Buffer
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.durability import Durability
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Commit
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.plain_batch import PlainBatch
from sparrowmq.protocol.messages.record import encode
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.store.index_keys import add_keys
from sparrowmq.store.layout import BLANK, BLANK_SIZE
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.flush import Flusher
from sparrowmq.store.queue_builder import QueueBuilder
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import Flush, StoreSettings
from sparrowmq.store.store_time import StoreTime

log = logging.getLogger(__name__)

_PREPARED: Final = SysFlag.PREPARED  # also set in a rollback; neither has a place in a queue
_CHUNK_BYTES: Final = 1 << 20  # bytes of a master's log that are read at once
FULL_PAUSE_S: Final = 1.0  # between two attempts to write to a full disk
FULL_LOG_S: Final = 60.0  # between two log lines about a disk that stays full

# The ends of Java's spans: its first one holds 0 ms, and its last one has no end.
_SPANS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
# Java's buckets for quantiles: the greatest value of each.
_BUCKET_WIDTHS_MS: Final = 20 * (1,) + 15 * (2,) + 10 * (5,) + 10 * (10,) + 6 * (50,) + 5 * (100,) + 9 * (1000,)
_BUCKETS_MS: Final = (*accumulate(_BUCKET_WIDTHS_MS), (1 << 63) - 1)
_MAX_COUNTED_MS: Final = 20_000  # longer times count as this one: both tables end before it
_MINUTE_S: Final = 60.0


class Appender:
    """Takes the messages of one store."""

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        commit_log: CommitLog,
        queues: QueueTable,
        queue_builder: QueueBuilder,
        flusher: Flusher,
    ) -> None:
        self.now_ms = 0  # the store timestamp of this burst
        self.time = StoreTime(clock)  # the source of that timestamp
        self.full_error: DiskFull | None = None  # the reason why no message is taken now; None if messages are taken
        self.turn: Turn | None = None  # the loop's turn, at whose end bursts are written and shown
        self.put_times = PutTimes()  # how long puts take
        self.durability: Callable[[], Durability] | None = None  # returns the condition that answers wait for
        self.unfinished_batches = 0  # how many batches are being stored in parts
        self._began_s = 0.0
        self._timed_count = 0
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._queue_builder = queue_builder
        self._flusher = flusher
        self._is_sync = settings.flush is Flush.SYNC
        self._store_host = settings.store_host
        self._property_crc = settings.property_crc
        self._full_until_s = 0.0
        self._silent_until_s: dict[str, float] = {}  # by the class of what was full: when the log may say so again
        self._follows_master = False
        self._is_raw_due = False  # `publish` runs at the end of this turn, for bytes of a master's log
        self._is_show_due = False
        self._is_burst_prepared = False  # for lanes, which may add nothing

    def append(self, *entries: Entry | Commit | PlainBatch) -> list[Placed]:
        if len(entries) != 1:
            return self._append_together(entries)
        entry, commit_log = entries[0], self._log
        queue = self._queues.obtain(entry.topic, entry.queue_id)
        if not self._queue_builder.queues_to_write:
            self._begin_burst()
        placed = Placed(commit_log.end, queue.next_offset, self.now_ms, self._store_host)
        while True:
            if isinstance(entry, Entry):
                record = encode(entry, placed, self._property_crc)
            else:
                record = entry.encode(placed, self._property_crc)
            placed.end = placed.offset + len(record)
            if placed.end <= commit_log.limit:
                break
            self._make_room(len(record))
            placed.offset = commit_log.end  # and encode it again, because a record contains its offset
        commit_log.append(record)
        self._add_entries(queue, entry, placed)
        return [placed]

    def lanes(self, suffix: str, not_plain: Iterable[str], max_properties: int) -> Lanes:
        """Lanes for messages of this store; a `suffix` is added to their properties, of at most so many bytes."""
        rules = self._property_crc, max_properties - len(suffix.encode()) - 1
        marks = tuple([mark.encode() for mark in not_plain])
        return Lanes(self._log, self._queue_builder, self._store_host, suffix.encode(), marks, *rules)

    def reserve_room(self, size: int) -> None:
        """Make room for `size` bytes, or as many as a file has, if the caller appends them now. Raises: DiskFull,
        StoreFailed.
        """
        if not self._queue_builder.queues_to_write:
            self._begin_burst()
        self._make_room(min(size, self._log.file_size - BLANK_SIZE))

    def count_added(self) -> tuple[int, int]:
        """The number of messages added to queues, and their bytes, without those of STATE_TOPIC."""
        count, size_bytes = int(self._queue_builder.added), int(self._queue_builder.added_bytes)
        for queue in self._queues.of_topic(STATE_TOPIC):
            count, size_bytes = count - queue.next_offset, size_bytes - queue.added_bytes
        return count, size_bytes

    def check_position(self, offset: int) -> None:
        if offset != self._log.end:
            raise StoreError(f"bytes of the log from {offset} on do not follow its end, {self._log.end}")
        if self.full_error is not None:
            self._make_room(0)

    def follow(self, content: Buffer) -> None:
        """Append encoded records of the master's log, or parts of them. `publish` finds the records. Raises: DiskFull,
        StoreFailed.
        """
        self._follows_master = True
        if not self._is_raw_due:
            self._begin_burst()
            self._is_raw_due = self.turn is not None
        try:
            self._log.append_raw(content)
        except DiskFull as full:
            self.stall(full)
            raise
        except OSError as error:
            raise self._flusher.fail(error) from error

    def publish(self) -> None:
        self._is_raw_due = False
        if self._write_burst():
            drain = self._dispatch_raw if self._follows_master else self._queue_builder.drain
            self._attempt(lambda: drain(self._log.written))
            if self._queue_builder.has_batch_to_index:
                self._queue_builder.index_keys()

    def publish_soon(self) -> None:
        """Dispatch at the end of this turn, because held entries may be shown now."""
        if self.turn is None:
            self.publish()
        elif not self._is_show_due:
            self._is_show_due = True
            self.turn.show(self._show_burst)

    def _show_burst(self) -> None:
        self._is_show_due = False
        self.publish()

    def stall(self, full: DiskFull, pause_s: float = FULL_PAUSE_S) -> None:
        """Take no message for a while. Then the next message, or `tend`, tries again."""
        now, kind = self._clock.monotonic(), type(full).__name__
        # A disk may stay full for days, with several attempts a second, and the log may be on it.
        was_logged = now < self._silent_until_s.get(kind, 0.0)
        log.log(logging.DEBUG if was_logged else logging.WARNING, "%s", full)
        if not was_logged:
            self._silent_until_s[kind] = now + FULL_LOG_S
        self.close_idle_files(full)
        self.full_error = full
        self._full_until_s = max(self._full_until_s, now + pause_s)
        self._log.hold()

    def end_log(self, reason: LogEnded) -> None:
        """Take no record until `continue_log`. Callers see a full disk, so they know how to wait."""
        self.full_error, self._full_until_s = reason, math.inf
        self._log.hold()

    def continue_log(self) -> None:
        if isinstance(self.full_error, LogEnded):
            self._full_until_s = 0.0
            self.try_again_if_due()

    def close_idle_files(self, full: DiskFull) -> bool:
        """Close files of queues if the system ran out of descriptors or memory. Returns whether any was closed."""
        return isinstance(full, OutOfResources) and self._queues.files.shrink()

    def try_again_if_due(self) -> bool:
        """After the pause for a full disk, retry the refused writes. Returns whether messages are taken now."""
        if self.full_error is not None and self._clock.monotonic() >= self._full_until_s:
            self._try_again()
        return self.full_error is None

    def raise_if_full(self) -> None:
        """Raises: DiskFull."""
        # A method of its own: after a caller sets `full_error` to None, a type checker believes that it stays None.
        if self.full_error is not None:
            raise self.full_error

    def needed_bytes(self) -> int:
        """The room on the disk that the log needs for its next file; 0 if it has that file. Raises: DiskFull."""
        self.raise_if_full()
        return self._log.wanted_bytes

    def prepare_burst(self) -> None:
        """Get ready for messages that lanes add; `begin_prepared_burst` follows if they did."""
        if not self._queue_builder.queues_to_write:
            self._log.now_ms = self.time.read()
            self._began_s = perf_counter()
            self._timed_count = self._queue_builder.added
            self._is_burst_prepared = True

    def begin_prepared_burst(self) -> None:
        if self._is_burst_prepared:
            self._end_with_turn()

    def _begin_burst(self) -> None:
        """Begin a burst with the first message after a dispatch: read the clock, and let the turn end the burst."""
        self._log.now_ms = self.time.read()
        self._began_s = perf_counter()
        self._timed_count = self._queue_builder.added
        self._end_with_turn()

    def _end_with_turn(self) -> None:
        """Let the turn end the burst. With SYNC the queues show the messages at once. The syncing thread then gets the
        GIL: 10 % more messages, as measured.
        """
        self._is_burst_prepared = False
        self.now_ms = self._log.now_ms
        turn = self.turn
        if turn is None:
            return
        if self._is_sync:
            turn.write(self.publish)
            turn.skip_polling()
        else:
            turn.write(self._write_burst)
            turn.show(self.publish)

    def _write_burst(self) -> bool:
        """Write the appended messages; sync them if an answer waits for that. Returns whether the write succeeded."""
        if self._flusher.flushed.error is not None:
            return False  # The producers got an error, so the messages must not appear later.
        is_written = self._attempt(self._log.write_out)
        if is_written:
            if self._is_sync and self.turn is not None:
                self._flusher.kick()
            self._flusher.written.advance(self._log.written)
            if self.turn is not None and not self._follows_master:
                self._time_burst()
        return is_written

    def _time_burst(self) -> None:
        count = self._queue_builder.added - self._timed_count
        if count > 0 and self.durability is not None:
            self._timed_count += count
            self.put_times.burst(self.durability(), self._began_s, int(count), self._log.written)
            self._began_s = perf_counter()  # more messages may come before the queues show this burst

    def _attempt(self, write: Callable[[], object]) -> bool:
        """Do a write. A full disk stops appends for a while, a broken disk forever. Returns whether it was done."""
        try:
            write()
            return True
        except DiskFull as full:
            self.stall(full)
        except OSError as error:
            self._flusher.fail(error)
        return False

    def _append_together(self, entries: tuple[Entry | Commit | PlainBatch, ...]) -> list[Placed]:
        """Nothing changes until all records are encoded and have room."""
        queues = [self._queues.obtain(entry.topic, entry.queue_id) for entry in entries]
        if entries and not self._queue_builder.queues_to_write:
            self._begin_burst()
        while True:
            end = self._log.end
            places: list[Placed] = []
            records: list[bytes] = []
            following: dict[ConsumeQueue, int] = {}  # the next offset in each queue
            for queue, entry in zip(queues, entries):  # noqa: B905  the check costs a loop
                queue_offset = following.get(queue, queue.next_offset)
                following[queue] = queue_offset + (len(entry) if isinstance(entry, PlainBatch) else 1)
                placed = Placed(end, queue_offset, self.now_ms, self._store_host)
                if not isinstance(entry, Entry):
                    record = entry.encode(placed, self._property_crc)
                elif entry.sys_flag & _PREPARED:
                    raise InvalidMessage("a batch cannot hold messages of a transaction; send them one by one")
                else:
                    record = encode(entry, placed, self._property_crc)
                end += len(record)
                placed.end = end
                records.append(record)
                places.append(placed)
            if end <= self._log.limit or not entries:
                break
            self._make_room(end - self._log.end)
        for i in range(len(entries)):
            self._log.append(records[i])
            self._add_entries(queues[i], entries[i], places[i])
        return places

    def _add_entries(self, queue: ConsumeQueue, entry: Entry | Commit | PlainBatch, placed: Placed) -> None:
        if isinstance(entry, PlainBatch):
            entry.add_entries(self._queue_builder, queue, placed)
            return
        if not isinstance(entry, Entry) or not entry.sys_flag & _PREPARED:
            self._queue_builder.add(queue, placed.offset, placed.end - placed.offset, entry.tags_code)
        if not self._queue_builder.has_keys:
            return
        if entry.terms is not None:
            keys, unique_key = entry.terms.keys, entry.terms.unique_key
        else:
            keys, unique_key = entry.properties.keys, entry.properties.unique_key
        if unique_key is not None or keys:
            add_keys(self._queue_builder.keys, entry.topic, placed.offset, placed.store_timestamp_ms, keys, unique_key)

    def _make_room(self, size: int) -> None:
        """Make room for `size` bytes at the log's end. Raises: MessageTooLarge, DiskFull, StoreFailed."""
        if self.full_error is not None:
            if self._clock.monotonic() < self._full_until_s:
                raise self.full_error
            self._try_again()
        if self.full_error is None:
            try:
                self._log.make_room(size)
            except DiskFull as full:
                self.stall(full)
            except OSError as error:
                raise self._flusher.fail(error) from error
        self.raise_if_full()

    def _try_again(self) -> None:
        self.full_error = None
        self.publish()
        self._begin_burst()

    def _dispatch_raw(self, end: int) -> None:
        """Dispatch the whole records in the bytes before `end` that came from a master."""
        # An earlier attempt may have read further, without writing the entries: those are still unwritten.
        followed_before = self._queue_builder.followed
        offset = max(followed_before, self._queue_builder.position.value)
        while end - offset >= BLANK_SIZE:
            content = self._log.chunk(offset, min(end - offset, _CHUNK_BYTES))
            following = self._queue_builder.follow(content, offset)
            if following == offset:  # a blank, a record larger than the chunk, or a part of one
                size, _ = BLANK.unpack_from(self._log.view(offset, BLANK_SIZE) or bytes(BLANK_SIZE))
                if offset + size > end:
                    break
                record, following = self._log.parse(offset)
                if record is not None:
                    following = self._queue_builder.follow(self._log.chunk(offset, size), offset)
            offset = following
        if self._queue_builder.followed > followed_before:
            self.time.begin(self._queue_builder.followed_ms)
            self.now_ms = self.time.now_ms
        self._queue_builder.drain(offset)


class LogEnded(DiskFull):
    """The log takes no record any more. The parts of a broker that add records treat it as a full disk."""


class PutTimes:
    """The times that puts take, from the first message of a burst until the burst is as safe as its answers promise.

        burst    append, append, append ── written, synced, at a slave ── record(ms, 3)
        minute   0 ms: 1200 puts, 1 ms: 7, 250 ms: 2                     the minute before it is what tools see

    A time is one of whole milliseconds, and nearly all are 0. So the store counts those of a burst at once, and a put
    costs no look at a clock. Java looks at the clock twice for each message. Source: StoreStatsService, Java 4.9.8: the
    spans of putMessageDistributeTime, the buckets of findPutMessageEntireTimePX.
    """

    def __init__(self) -> None:
        self.greatest_ms = 0  # the longest time since the start
        self.failed = 0  # puts that were not as safe as promised in time
        self._current_minute: dict[int, int] = {}
        self._last_minute: dict[int, int] | None = None
        self._minute_began_s: float | None = None

    def record(self, took_ms: int, count: int) -> None:
        self.greatest_ms = max(self.greatest_ms, took_ms)
        took_ms = min(took_ms, _MAX_COUNTED_MS)
        self._current_minute[took_ms] = self._current_minute.get(took_ms, 0) + count

    def burst(self, durability: Durability, began_s: float, count: int, end: int) -> None:
        """Note the puts of a written burst, once the log is safe up to its `end`. Its first message came at `began_s`,
        by perf_counter.
        """
        if durability.holds(end):
            self.record(int((perf_counter() - began_s) * 1000), count)
        else:
            durability.when(end, lambda error: self._on_end(began_s, count, error))

    def _on_end(self, began_s: float, count: int, error: BaseException | None) -> None:
        self.record(int((perf_counter() - began_s) * 1000), count)
        if error is not None:
            self.failed += count

    def sample(self, now_s: float) -> None:
        """Begin another minute if one is over; called about every second."""
        if self._minute_began_s is None:
            self._minute_began_s = now_s
        elif now_s - self._minute_began_s >= _MINUTE_S:
            self._minute_began_s = now_s
            self._last_minute, self._current_minute = self._current_minute, {}

    @property
    def spans(self) -> list[int]:
        """The puts of the last full minute in each of Java's 13 spans; before, those since the start."""
        counts = [0] * (len(_SPANS_MS) + 1)
        for took_ms, count in self._minute.items():
            counts[bisect_right(_SPANS_MS, took_ms)] += count
        return counts

    def quantile_ms(self, share: float) -> float:
        """The time that `share` of the same puts did not exceed, as Java interpolates it in its buckets."""
        counts = [0] * len(_BUCKETS_MS)
        for took_ms, count in self._minute.items():
            counts[bisect_left(_BUCKETS_MS, took_ms)] += count
        remaining_count, begin_ms = int(sum(counts) * share), 0
        for end_ms, count in zip(_BUCKETS_MS, counts, strict=True):
            if remaining_count <= count:
                return begin_ms + ((end_ms - begin_ms) * remaining_count / count if count else 0.0)
            remaining_count -= count
            begin_ms = end_ms
        return float(begin_ms)

    @property
    def _minute(self) -> dict[int, int]:
        return self._current_minute if self._last_minute is None else self._last_minute
