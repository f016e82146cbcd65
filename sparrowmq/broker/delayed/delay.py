"""Delivery of messages with a delay level.

    SCHEDULE_TOPIC_XXXX   queue 0 (1 s)   ■ ■ ■ ■     all messages of a queue wait equally long, so they are in the
                          queue 1 (5 s)   ■ ■ ■       order of their due times, and only the first needs watching
                          ...
    due ── restore topic and queue (redirect.py) ── store again, with the place in its level ── offset of the level + 1

Each queue entry has its due time, store time plus delay, in the field that has the tags' hash in other queues. One
coroutine sleeps until the earliest first message is due, or an empty queue gets one. There is no other polling.

Each message is delivered once, also after a crash. A delivered record names the message that it delivers, so the log
shows how far each level is delivered. delayOffset.json saves a start from reading the whole log:

    delayOffset.json     the offset of each level, by the log before an offset X
    the log from X on    each delivered record names its place in SCHEDULE_TOPIC_XXXX, in its prepared offset
                         ── the progress: the highest place of each level, or the offset in the file

A level delivers in order, so one record says that everything before its place is delivered too. The file can be newer
than the log: after a failover that cut the log, and after a power cut on a disk that lost synced bytes. Such a file is
emptied before the log grows again, and the start reads the log from the oldest message that was ever delayed.

The file is saved in each save period in which messages were delivered, or in which the log grew by
`MAX_UNSAVED_BYTES` while messages wait. A start reads the log in slices, while the broker serves; if no message waits,
it reads nothing. A slave takes the progress of its master once its own log is on disk up to the master's end.

A file of Java's has no X. Its offsets count, and so do the delivered records after the first message that waits by
them. Records that Java delivered have no mark. So after Java ran, a crash of its process may double messages, as with
Java alone. Without any file, a start reads the log from the oldest message that was ever delayed.
Source: ScheduleMessageService, Java 4.9.8. Unlike Java, which delivers again what its file does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparrowmq.broker.due_work import MAX_WAIT_S, DueWork, Redelivery
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
from sparrowmq.protocol.requests.offset_bodies import DelayOffsets
from sparrowmq.protocol.wire import json
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

MESSAGES_PER_TURN: Final = 128
BYTES_PER_TURN: Final = 1 << 20
# A due time further away than the level's delay means that the clock was set back. Unlike Java, which delivers at
# once if it is one millisecond further, small corrections of the clock are waited out.
CLOCK_SLACK_MS: Final = 60_000
MAX_UNSAVED_BYTES: Final = 16 << 20


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
    """Delivers the messages of the delay levels, on a master; the writer uses the same `redirect`. Raises: BadStore."""

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
        self.progress = DelayProgress(store, path)
        self.delivery = DueWork("delayed messages", self._deliver_levels, clock)
        self._redelivery = Redelivery("delayed message", store, writer, redirect)
        parked_levels = {level_of(queue.queue_id) for queue in store.queues.of_topic(SCHEDULE_TOPIC)}
        self._levels = sorted(parked_levels | set(range(1, delays.max + 1)))
        self._retry_s: dict[int, float] = {}  # when to retry a level with a damaged message, by the steady clock
        figures.gauges("sparrowmq_delay_delivered", "delayed messages delivered", ("level",), self._delivered_rows)
        figures.gauges("sparrowmq_delay_parked", "delayed messages stored, ever", ("level",), self._parked_rows)

    def part(self, save_period_s: float) -> Part:
        return Part(
            chores=(Chore("save delay offsets", save_period_s, self.progress.save),),
            tasks=(Task("delayed delivery", self.delivery.run),),
            saves=(self.close,),
            probes=((DELIVERY_LATE, self.delivery.late_condition),),
        )

    async def close(self) -> None:
        """Stop delivery, and save. Messages that become due now wait for the next start. Raises: as `save`."""
        self.delivery.close()
        self._store.flush()
        await self.progress.save()

    def _delivered_rows(self) -> Rows:
        offsets = self.progress.offsets
        return [((level,), offsets.get(int(level), 0)) for (level,), _ in self._parked_rows()]

    def _parked_rows(self) -> Rows:
        queues = self._store.queues.of_topic(SCHEDULE_TOPIC)
        return [((str(level_of(queue.queue_id)),), queue.max_offset) for queue in queues if queue.max_offset]

    def _deliver_levels(self) -> float:
        if self.progress.search_some():
            return min(map(self._deliver_some, self._levels))
        return 0

    def _deliver_some(self, level: int) -> float:
        """Deliver due messages of a level, at most one turn's worth; return the seconds to wait for the next one.

        A level with a damaged message stops until the damage is repaired; the other levels continue.
        """
        now_s = self._clock.monotonic()
        wait_s = self._retry_s.get(level, now_s) - now_s
        if wait_s > 0:
            return wait_s
        try:
            return self._deliver_turn(level)
        except (CorruptRecord, BadStore) as damage:
            offset = self.progress.offsets.get(level, 0)
            self.delivery.log_damage(f"delay level {level}, at message {offset},", damage)
            self._retry_s[level] = now_s + MAX_WAIT_S
            return MAX_WAIT_S

    def _deliver_turn(self, level: int) -> float:
        """Do `_deliver_some` for a sound level. Raises: CorruptRecord, BadStore: the level is damaged."""
        offsets = self.progress.offsets
        queue = self._store.queues.obtain(SCHEDULE_TOPIC, queue_of(level))
        begin = max(offsets.get(level, 0), queue.min_offset)
        if begin >= queue.max_offset:
            self.delivery.wake_at(queue.end, begin + 1)
            return MAX_WAIT_S
        entries = queue.read(begin, MESSAGES_PER_TURN)
        size = 0
        for i in range(len(entries)):
            if size >= BYTES_PER_TURN:
                break
            wait_ms = entries.tags_code(i) - self._clock.now_ms()
            if 0 < wait_ms <= self._delays.delay_ms(level) + CLOCK_SLACK_MS:
                return wait_ms / 1000
            if not entries.is_gap(i):
                size += entries.size(i)
                message = self._redelivery.message(entries.offset(i), entries.size(i))
                if message is not None:
                    self._redelivery.put(message)
            offsets[level] = begin + i + 1
        return 0


class DelayProgress:
    """The next offset to deliver of each level: `offsets`, and their file. A slave takes those of its master.

    Until `search_some` has found the progress, `offsets` are those of the file. Raises: BadStore.
    """

    def __init__(self, store: MessageStore, path: Path) -> None:
        self._store = store
        saved = saved_content(path, DelayOffsets, json.decode) or DelayOffsets()
        is_newer = (saved.log_offset or 0) > store.end
        self._saved = DelayOffsets() if is_newer else DelayOffsets(saved.offset_table, log_offset=saved.log_offset)
        self.offsets: dict[int, int] = dict(self._saved.offset_table)
        self.file = SavedFile(path, self.content)
        self._is_found = False
        self._search_offset: int | None = None  # the offset from which the log is not read yet; None before the search
        self._search_end = store.end
        self._delivered_marks: set[int] = set()
        self._needed_from: int | None = 0  # what the master needs
        self._awaited: DelayOffsets | None = None  # the master's, until our log is on disk up to its end
        if is_newer:
            log.warning("the delay progress is newer than the log; reading it from the log")
            self._save_at_once(path)
        store.hold.needed_from.append(self.first_waiting)

    def part_of_slave(self, save_period_s: float) -> Part:
        """Return the tasks of a slave: it delivers nothing, and keeps what its master needs, as it may be next."""
        self._store.hold.needed_from.insert(0, self._needed_by_master)  # first, as it may bring `offsets` up to date
        return Part(
            chores=(Chore("save delay offsets", save_period_s, self._save_masters),), saves=(self._save_masters,)
        )

    def follow(self, progress: DelayOffsets) -> None:
        """Take over the master's progress, on a slave. Java's does not say what it needs."""
        if progress.needed is None:
            self._needed_from = self._awaited = None
            self._take(DelayOffsets(progress.offset_table))
        else:
            self._awaited = self._awaited or progress
            self._take_awaited()

    def leave_master(self) -> None:
        """Forget what waits for our log to be as long as the master's: another one may follow."""
        self._awaited = None

    async def save(self) -> None:
        if not self._is_found:
            return  # so nothing was delivered yet
        end, offsets, former = self._store.end, dict(self.offsets), self._saved
        has_changed = offsets != former.offset_table or bool(offsets and not former.log_offset)
        if has_changed or (end - (former.log_offset or 0) >= MAX_UNSAVED_BYTES and any(self._waiting())):
            await self._store.flushed.reached(end)
            self._saved = DelayOffsets(offsets, log_offset=end)
            self.file.touch()
        await self.file.save()

    def content(self) -> DelayOffsets:
        return DelayOffsets(dict(self._saved.offset_table), log_offset=self._saved.log_offset)

    def for_slave(self) -> DelayOffsets:
        """Return the answer to a slave: the content, and what this broker needs. Raises: BadStore."""
        content = self.content()
        needed = self._store.hold.begin()
        content.log_end = self._store.end
        content.needed = content.log_end if needed is None else needed
        return content

    def search_some(self) -> bool:
        """Read some of the log; return whether the search is complete. Raises: BadStore, the next call tries again."""
        if self._is_found:
            return True
        if self._search_offset is None:
            self._search_offset = self._search_from()
        if self._search_offset < self._search_end:
            self._search_offset = self._store.collect_prepared(
                self._search_offset, self._search_end, self._delivered_marks
            )
            return False
        self._take_marks()
        self._is_found = True
        return True

    def first_waiting(self) -> int | None:
        """Return the log offset of the first message that waits; None if none does."""
        entries = [queue.entry(offset) for queue, offset in self._waiting()]
        return min((0 if entry is None else entry.offset for entry in entries), default=None)

    def _waiting(self) -> Iterator[tuple[ConsumeQueue, int]]:
        """Yield each queue with messages that wait, and the offset of the first of them."""
        for queue in self._store.queues.of_topic(SCHEDULE_TOPIC):
            offset = max(self.offsets.get(level_of(queue.queue_id), 0), queue.min_offset)
            if offset < queue.max_offset:
                yield queue, offset

    def _search_from(self) -> int:
        begin = self.first_waiting()
        return self._search_end if begin is None else max(self._saved.log_offset or 0, begin, self._store.begin)

    def _take_marks(self) -> None:
        offsets = self.offsets
        for queue_id, queue_offset in filter(None, map(parse_delivered_mark, self._delivered_marks)):
            level = level_of(queue_id)
            offsets[level] = max(offsets.get(level, 0), queue_offset + 1)
        self._delivered_marks.clear()
        for level, offset in offsets.items():
            end = self._store.queues.max_offset(SCHEDULE_TOPIC, queue_of(level))
            if offset > end:
                log.warning("delay level %d was delivered up to %d, but ends at %d", level, offset, end)
                offsets[level] = end

    def _take(self, progress: DelayOffsets) -> None:
        former, distance = self._saved, (progress.log_offset or 0) - (self._saved.log_offset or 0)
        if progress.offset_table != former.offset_table or not 0 <= distance < MAX_UNSAVED_BYTES:
            self._saved = progress
            self.offsets = dict(progress.offset_table)
            self.file.touch()

    def _take_awaited(self) -> None:
        progress = self._awaited
        if progress is not None and self._store.flushed.value >= (progress.log_end or 0):
            self._needed_from, self._awaited = progress.needed, None
            if (progress.log_offset or 0) >= (self._saved.log_offset or 0):
                self._take(DelayOffsets(progress.offset_table, log_offset=progress.log_offset))

    async def _save_masters(self) -> None:
        self._take_awaited()
        await self.file.save()

    def _needed_by_master(self) -> int | None:
        """The log offset from which the master needs records. What it no longer needs is delivered in our log too."""
        self._take_awaited()
        return self._needed_from

    def _save_at_once(self, path: Path) -> None:
        """Empty the file before the log grows: later it would look as if it fitted."""
        try:
            snapshot.save(path, self.content(), encode=json.dumps)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)
