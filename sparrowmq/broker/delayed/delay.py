"""Delivery of messages with a delay level.

    SCHEDULE_TOPIC_XXXX   queue 0 (1 s)   ■ ■ ■ ■     all messages of a queue wait equally long, so they are in the
                          queue 1 (5 s)   ■ ■ ■       order of their due times, and only the first needs watching
                          ...
    due ── restore topic and queue (redirect.py) ── store again, with the place in its level ── offset of the level + 1

Each queue entry has its due time, store time plus delay, in the field that has the tags' hash in other queues. One
coroutine sleeps until the earliest first message is due, or an empty queue gets one. There is no other polling.

Each message is delivered once, also after a crash. A delivered record names the message that it delivers, so the log
shows how far each level is delivered. delayOffset.json saves a start from reading the whole log:

    delayOffset.json     the offset of each level, by the log before an offset X; the same for a few earlier X
    the log from X on    each delivered record names its place in SCHEDULE_TOPIC_XXXX, in its prepared offset
                         ── the progress: the highest place of each level, or the offset in the file

A level delivers in order, so one record says that everything before its place is delivered too. A start takes the last
point that is in the log. The file can be newer than the log: after a failover that cut the log, and after a power cut
on a disk that lost synced bytes. Points after the log's end are dropped before the log grows again. The earlier points
are 16 MiB, 32 MiB, 64 MiB and so on back. So a start that drops points reads at most four times what the log has lost.

A point is saved in each save period in which messages were delivered, or in which the log grew by `MAX_UNSAVED_BYTES`
while messages wait. A start reads the log in slices, while the broker serves; if no message waits, it reads nothing. A
slave takes a point of its master once its own log is on disk up to there.

A file of Java's has no X. Its offsets count, and so do the delivered records after the first message that waits by
them. Records that Java delivered have no mark. So after Java ran, a crash of its process may double messages, as with
Java alone. Without any file, a start reads the log from the oldest message that was ever delayed.
Source: ScheduleMessageService, Java 4.9.8. Unlike Java, which delivers again what its file does not have.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.broker.delayed.delivery import MAX_WAIT_S, DamageLog, Delivery, Redelivery
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.part import Chore, Part, Task
from sparrowmq.broker.redirect import Redirect, move, restore
from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.core import snapshot
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BadStore, CorruptRecord, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import DELIVERY_LATE
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import DelayLevels, delivered_mark, level_of, parse_delivered_mark, queue_of
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.requests.offset_bodies import DelayOffsets, DelayPoint
from sparrowmq.protocol.wire import json
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

MESSAGES_PER_TURN: Final = 128
BYTES_PER_TURN: Final = 1 << 20
# A due time further away than the level's delay means that the clock was set back. Unlike Java, which delivers at
# once if it is one millisecond further, small corrections of the clock are waited out.
CLOCK_SLACK_MS: Final = 60_000
MAX_UNSAVED_BYTES: Final = 16 << 20


@dataclass(slots=True)
class _Level:
    level: int
    offset: int = 0
    retry_s: float = 0.0  # the time to retry a damaged message, by the steady clock


def delay_levels(delays: DelayLevels, clock: Clock) -> Redirect:
    def divert(entry: Entry) -> bool:
        text = entry.properties.get(Property.DELAY) or "0"
        try:
            level = delays.clamp(int(text))
        except ValueError:
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL, f"the delay level {text!r} is not a number; the first level is 1"
            ) from None
        if level <= 0:
            return False
        if whole_number(text) is None:  # as "+3": a queue that is made again from the log knows digits only
            entry.properties.put(Property.DELAY, str(level))
        entry.deliver_at_ms = clock.now_ms() + delays.delay_ms(level)
        move(entry, SCHEDULE_TOPIC, queue_of(level))
        return True

    return Redirect(mark(Property.DELAY), divert, _restore)


def _restore(message: StoredMessage) -> Entry:
    entry = restore(message)
    entry.prepared_offset = delivered_mark(message.queue_id, message.queue_offset)
    return entry


class DelayedDelivery:
    """The delay levels of one broker; the writer uses the same `redirect`. Raises: BadStore."""

    def __init__(
        self,
        store: MessageStore,
        writer: Writer,
        redirect: Redirect,
        delays: DelayLevels,
        path: Path,
        clock: Clock,
        figures: Figures,
    ) -> None:
        self._store = store
        self._delays = delays
        self._clock = clock
        self.delivery = Delivery("delayed messages", self._deliver_levels, clock)
        self._progress = DelayProgress(store, path)
        self._needed_from: int | None = 0
        self._awaited_progress: DelayOffsets | None = None  # The master's, until our log is on disk up to its end.
        self._damage_log = DamageLog()
        self._redelivery = Redelivery("delayed message", store, writer, redirect)
        self._levels = [_Level(level) for level in self._known_levels()]
        self._set_offsets(self._progress.saved.offset_table)
        store.hold.needed_from.append(lambda: self._progress.first_waiting(self._level_offsets()))
        self.file = SavedFile(path, self.content)
        figures.gauges("sparrowmq_delay_delivered", "delayed messages delivered", ("level",), self._delivered_rows)
        figures.gauges("sparrowmq_delay_parked", "delayed messages stored, ever", ("level",), self._parked_rows)

    def part(self, save_period_s: float) -> Part:
        return Part(
            chores=(Chore("save delay offsets", save_period_s, self.save),),
            tasks=(Task("delayed delivery", self.delivery.run),),
            saves=(self.close,),
            probes=((DELIVERY_LATE, self.delivery.late_condition),),
        )

    def part_of_slave(self, save_period_s: float) -> Part:
        """Return the tasks of a slave: it delivers nothing, and keeps what its master needs, as it may be next."""
        self._store.hold.needed_from.append(self._needed_by_master)
        return Part(
            chores=(Chore("save delay offsets", save_period_s, self._save_masters),), saves=(self._save_masters,)
        )

    def follow(self, progress: DelayOffsets) -> None:
        """Take over the master's progress, on a slave. Java's does not say what it needs."""
        if progress.needed is None:
            self._needed_from = self._awaited_progress = None
        else:
            self._awaited_progress = self._awaited_progress or progress
        if self._progress.follow(progress):
            self._set_offsets(self._progress.saved.offset_table)
            self.file.touch()

    async def close(self) -> None:
        """Stop delivery, and save. Messages that become due now wait for the next start. Raises: as `save`."""
        self.delivery.close()
        self._store.flush()
        await self.save()

    async def save(self) -> None:
        progress, end = self._progress, self._store.end
        if not progress.is_found:
            return  # so nothing was delivered yet
        offsets = {level.level: level.offset for level in self._levels if level.offset}
        is_java_file = bool(offsets) and not progress.saved.log_offset
        has_changed = is_java_file or offsets != progress.saved.offset_table
        is_far_behind = end - progress.saved.log_offset >= MAX_UNSAVED_BYTES and any(
            map(self._has_waiting, self._levels)
        )
        if has_changed or is_far_behind:
            await self._store.flushed.reached(end)
            progress.add(DelayPoint(end, offsets))
            self.file.touch()
        await self.file.save()

    async def _save_masters(self) -> None:
        if self._progress.take_awaited_point():
            self.file.touch()
        await self.file.save()

    def content(self) -> DelayOffsets:
        return self._progress.content()

    def progress_for_slave(self) -> DelayOffsets:
        """Return the answer to a slave: the content, and what this broker needs. Raises: BadStore."""
        content = self.content()
        needed = self._store.hold.begin()
        content.log_end = self._store.end
        content.needed = content.log_end if needed is None else needed
        return content

    def leave_master(self) -> None:
        """Forget what the master needs as soon as our log is as long as its own: another one may follow."""
        self._awaited_progress = None

    def _needed_by_master(self) -> int | None:
        """The log offset from which the master needs records. What it no longer needs is delivered in our log too."""
        progress = self._awaited_progress
        if progress is not None and self._store.flushed.value >= (progress.log_end or 0):
            self._needed_from, self._awaited_progress = progress.needed, None
        return self._needed_from

    def _level_offsets(self) -> dict[int, int]:
        return {level.level: level.offset for level in self._levels}

    def _delivered_rows(self) -> Rows:
        return [((str(level.level),), level.offset) for level in self._levels if self._queue_end(level)]

    def _parked_rows(self) -> Rows:
        return [((str(level.level),), end) for level in self._levels if (end := self._queue_end(level))]

    def _queue_end(self, level: _Level) -> int:
        return self._store.queues.max_offset(SCHEDULE_TOPIC, queue_of(level.level))

    def _set_offsets(self, offsets: dict[int, int]) -> None:
        for level in self._levels:
            level.offset = offsets.get(level.level, 0)

    def _deliver_levels(self) -> float:
        if not self._progress.is_found:
            if self._progress.search_some():
                self._set_offsets(self._progress.exact_offsets())
                for level in self._levels:
                    self._clamp_offset(level)
            return 0
        return min(map(self._deliver_some, self._levels))

    def _deliver_some(self, level: _Level) -> float:
        """Deliver due messages of a level, at most one turn's worth; return the seconds to wait for the next one.

        A level with a damaged message stops until the damage is repaired; the other levels continue.
        """
        now_s = self._clock.monotonic()
        if level.retry_s > now_s:
            return level.retry_s - now_s
        try:
            return self._deliver_turn(level)
        except (CorruptRecord, BadStore) as damage:
            self._damage_log.log_problem(f"delay level {level.level}, at message {level.offset},", damage)
            level.retry_s = now_s + MAX_WAIT_S
            return MAX_WAIT_S

    def _deliver_turn(self, level: _Level) -> float:
        """Do `_deliver_some` for a sound level. Raises: CorruptRecord, BadStore: the level is damaged."""
        queue = self._store.queues.get(SCHEDULE_TOPIC, queue_of(level.level))
        if queue is None or level.offset >= queue.max_offset:
            end = self._store.queues.obtain(SCHEDULE_TOPIC, queue_of(level.level)).end
            self.delivery.wake_at(end, level.offset + 1)
            return MAX_WAIT_S
        level.offset = max(level.offset, queue.min_offset)
        entries = queue.read(level.offset, MESSAGES_PER_TURN)
        size = 0
        for i in range(len(entries)):
            if size >= BYTES_PER_TURN:
                break
            wait_ms = self._wait_ms(level.level, entries.tags_code(i))
            if wait_ms > 0:
                return wait_ms / 1000
            if not entries.is_gap(i):
                size += entries.size(i)
                message = self._redelivery.message(entries.offset(i), entries.size(i))
                if message is not None:
                    self._redelivery.put(message)
            level.offset += 1
        return 0

    def _wait_ms(self, level: int, due_ms: int) -> int:
        wait_ms = due_ms - self._clock.now_ms()
        return 0 if wait_ms > self._delays.delay_ms(level) + CLOCK_SLACK_MS else wait_ms

    def _known_levels(self) -> list[int]:
        parked_levels = {level_of(queue.queue_id) for queue in self._store.queues if queue.topic == SCHEDULE_TOPIC}
        return sorted(parked_levels | set(range(1, self._delays.max + 1)))

    def _has_waiting(self, level: _Level) -> bool:
        queue = self._store.queues.get(SCHEDULE_TOPIC, queue_of(level.level))
        return queue is not None and level.offset < queue.max_offset

    def _clamp_offset(self, level: _Level) -> None:
        queue = self._store.queues.get(SCHEDULE_TOPIC, queue_of(level.level))
        min_offset, max_offset = (queue.min_offset, queue.max_offset) if queue else (0, 0)
        if not min_offset <= level.offset <= max_offset and level.offset:
            log.warning(
                "delay level %d was delivered up to %d, but has %d to %d",
                level.level,
                level.offset,
                min_offset,
                max_offset,
            )
        level.offset = min(max(level.offset, min_offset), max_offset)


class DelayProgress:
    """The saved points of delayOffset.json, and the search for later progress in the log. Raises: BadStore."""

    def __init__(self, store: MessageStore, path: Path) -> None:
        self.is_found = False
        self._store = store
        saved = saved_content(path, DelayOffsets, json.decode) or DelayOffsets()
        newest = DelayPoint(saved.log_offset or 0, saved.offset_table)
        points: list[DelayPoint] = [newest, *(saved.earlier or ())]
        in_log = [point for point in points if point.log_offset <= store.end]
        self._points = in_log or [DelayPoint()]
        self._search_offset: int | None = None  # the offset from which the log is not read yet; None before the search
        self._search_end = store.end
        self._delivered_marks: set[int] = set()
        self._awaited_point: DelayPoint | None = None  # the master's, until our log is on disk up to there
        if len(in_log) < len(points):
            log.warning("the delay progress is newer than the log; reading it from the log")
            self._save_at_once(path)

    @property
    def saved(self) -> DelayPoint:
        newest: DelayPoint = self._points[0]
        return newest

    def content(self) -> DelayOffsets:
        newest, *earlier = self._points
        return DelayOffsets(dict(newest.offset_table), log_offset=newest.log_offset or None, earlier=earlier or None)

    def search_some(self) -> bool:
        """Read some of the log; return whether the search is complete. Raises: BadStore, the next call tries again."""
        if self._search_offset is None:
            self._search_offset = self._search_from()
        if self._search_offset < self._search_end:
            self._search_offset = self._store.collect_prepared(
                self._search_offset, self._search_end, self._delivered_marks
            )
        self.is_found = self._search_offset >= self._search_end
        return self.is_found

    def exact_offsets(self) -> dict[int, int]:
        offsets = dict(self.saved.offset_table)
        for queue_id, queue_offset in filter(None, map(parse_delivered_mark, self._delivered_marks)):
            level = level_of(queue_id)
            offsets[level] = max(offsets.get(level, 0), queue_offset + 1)
        self._delivered_marks.clear()
        return offsets

    def add(self, point: DelayPoint) -> None:
        """Add a point, which is exact: all that was delivered before its log offset, and the log is on disk there."""
        if point.log_offset < self.saved.log_offset:
            return
        by_distance: dict[int, DelayPoint] = {}
        for known_point in self._points:  # of each distance, from 16 MiB to 32, to 64 ..., the oldest stays
            by_distance[((point.log_offset - known_point.log_offset) // MAX_UNSAVED_BYTES).bit_length()] = known_point
        self._points = [point, *(kept for kept in by_distance.values() if kept.log_offset)]

    def follow(self, progress: DelayOffsets) -> bool:
        if progress.log_offset is None:  # Java's
            has_changed = progress.offset_table != self.saved.offset_table or self.saved.log_offset != 0
            self._points = [DelayPoint(0, dict(progress.offset_table))]
            return has_changed
        has_changed = self.take_awaited_point()
        if self._awaited_point is None and progress.log_offset > self.saved.log_offset:
            self._awaited_point = DelayPoint(progress.log_offset, dict(progress.offset_table))
        return self.take_awaited_point() or has_changed

    def take_awaited_point(self) -> bool:
        point = self._awaited_point
        if point is None or self._store.flushed.value < point.log_offset:
            return False
        self._awaited_point = None
        has_changed = point.offset_table != self.saved.offset_table
        if has_changed or point.log_offset - self.saved.log_offset >= MAX_UNSAVED_BYTES:
            self.add(point)
            return True
        return False

    def _search_from(self) -> int:
        begin = self.first_waiting(self.saved.offset_table)
        return self._search_end if begin is None else max(self.saved.log_offset, begin, self._store.begin)

    def first_waiting(self, offsets: dict[int, int]) -> int | None:
        """Return the log offset of the first message that waits; None if none does. `offsets`: what is delivered."""
        offsets_of_first = []
        for queue in self._store.queues.of_topic(SCHEDULE_TOPIC):
            offset = max(offsets.get(level_of(queue.queue_id), 0), queue.min_offset)
            if offset < queue.max_offset:
                entry = queue.entry(offset)
                offsets_of_first.append(entry.offset if entry is not None else 0)
        return min(offsets_of_first, default=None)

    def _save_at_once(self, path: Path) -> None:
        """Drop the points from the file before the log grows: later they would look as if they fitted it."""
        try:
            snapshot.save(path, self.content(), encode=json.dumps)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)
