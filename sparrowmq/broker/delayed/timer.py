"""Timers: messages are delivered at the time that they ask for, to the millisecond, and can be recalled until then.

    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS    ── divert (`timer_redirect`) ──  rmq_sys_wheel_timer[0],
                                                             TIMER_OUT_MS, REAL_TOPIC, REAL_QID
    due ── restored, TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS added ── its real queue; the record says what it settles
    a recall (370) ── is a timer itself, with TIMER_DEL_UNIQKEY: topic+unique id, due with the message that it names
    access control ── both have TIMER_OWNER, the account that sent them, which no consumer gets
    retention wants the file of a timer ── stored again at the log's end, TIMER_ROLL_TIMES one more

The store knows the pending timers and their times, and explains why no timer is lost or doubled
(store/timers.py). One coroutine sleeps until the next slot of 16 ms is over or the queue grows. It delivers
`TIMERS_PER_TURN` messages, or about 1 MB, before the sockets get their turn. The recalls of a slot are read in such
turns too, once, before its first message. A message with a delay level, such as every retry, uses that level
and loses its timer properties, as in Java. A delivered message keeps all these properties; TIMER_OUT_MS shows that it
has waited already.

Source: TimerMessageStore, HookUtils.handleScheduleMessage and RecallMessageProcessor, Java 5.4. Unlike Java, times are
not rounded down to a second (timerPrecisionMs), and the timers of a second have no limit (timerCongestNumEachSlot).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparrowmq.broker.due_work import DueWork, Redelivery
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.part import Chore, Part, Task
from sparrowmq.broker.redirect import Redirect, move, restore
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import CorruptRecord, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import DELIVERY_LATE
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.properties import TIMERS, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import Recalls
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.timer_wheel import RECALL
from sparrowmq.store.timers import Timer, Timers, settling_offset

log = logging.getLogger(__name__)

SAVE_PERIOD_S: Final = 1.0

_OUT_MARK: Final = mark(Property.TIMER_OUT_MS)
_DAMAGE_PAUSE_MS: Final = 60_000
_MAX_DIGITS: Final = 19  # the longest Java long
_ROLL_DIGITS: Final = 9
TIMERS_PER_TURN: Final = 64
BYTES_PER_TURN: Final = 1 << 20  # of records that are read and stored in one turn
# Room for the properties that delivery adds: two times, and the number of repeated stores.
_ADDED_PROPERTY_BYTES: Final = sum(
    len(name) + 2 + digits
    for name, digits in (
        (Property.TIMER_ENQUEUE_MS, _MAX_DIGITS),
        (Property.TIMER_DEQUEUE_MS, _MAX_DIGITS),
        (Property.TIMER_ROLL_TIMES, _ROLL_DIGITS + 1),
    )
)


def timer_redirect(clock: Clock, max_delay_s: int, enabled: bool = True) -> Redirect:
    """Return the redirect of messages for a time. It comes before the redirect of the levels."""

    def divert(entry: Entry) -> bool:
        properties = entry.properties
        if (properties.get(Property.DELAY) or "0") != "0":
            for name in (Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS):
                properties.remove(name)
            return False
        is_half = entry.sys_flag & SysFlag.PREPARED  # a half message, or one that was rolled back
        now_ms = clock.now_ms()
        due_ms = None if is_half or properties.has(_OUT_MARK) else _due_ms(entry, now_ms)
        if due_ms is None:
            return False
        if not enabled:
            raise _illegal_timer(
                "this broker delivers at no other time than a delay level's: timerWheelEnable is false"
            )
        is_recall = properties.get(Property.TIMER_DEL_UNIQKEY) is not None
        if due_ms <= now_ms:
            if is_recall:
                raise _illegal_timer("the message to recall is due already")
            return False
        if due_ms - now_ms > max_delay_s * 1000:
            raise _illegal_timer(
                f"the delivery is {(due_ms - now_ms) // 1000} s away; timerMaxDelaySec allows {max_delay_s} s"
            )
        properties.put(Property.TIMER_OUT_MS, str(due_ms))
        if entry.owner is not None:
            properties.put(Property.TIMER_OWNER, entry.owner)
        move(entry, TIMER_TOPIC, 0)
        entry.deliver_at_ms = due_ms | RECALL if is_recall else due_ms
        return True

    return Redirect(TIMERS, divert, _restore, _ADDED_PROPERTY_BYTES)


def _due_ms(entry: Entry, now_ms: int) -> int | None:
    """Return the due time that a message asks for; None without one. Raises: RemoteError, it is not a number."""
    for name, unit_ms, start_ms in (
        (Property.TIMER_DELAY_SEC, 1000, now_ms),
        (Property.TIMER_DELAY_MS, 1, now_ms),
        (Property.TIMER_DELIVER_MS, 1, 0),
    ):
        text = entry.properties.get(name)
        if text is not None:
            if whole_number(text.removeprefix("-"), _MAX_DIGITS) is None:
                raise _illegal_timer(f"{name} is {text[:40]!r}, and not a number")
            return start_ms + int(text) * unit_ms
    return None


def _illegal_timer(reason: str) -> RemoteError:
    return RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {reason}")


def _restore(message: StoredMessage) -> Entry:
    entry = restore(message)
    entry.prepared_offset = settling_offset(message.physical_offset)
    return entry


class TimedDelivery:
    """The timers of one broker; the writer uses the same `redirect`. Raises: BadStore, DiskFull."""

    def __init__(self, store: MessageStore, writer: Writer, redirect: Redirect, clock: Clock, figures: Figures) -> None:
        self._store = store
        self._clock = clock
        self._timers = store.timers()
        self.delivery = DueWork("messages for a time", self._deliver_some, clock)
        self._redelivery = Redelivery("message for a time", store, writer, redirect)
        self._recalled_ids = RecalledIds(self._redelivery)
        self._save_lock = asyncio.Lock()
        self._delivered_counter = figures.counter("sparrowmq_timers_delivered_total", "timers delivered")
        self._recalled_counter = figures.counter("sparrowmq_timers_recalled_total", "timers recalled")
        self._rolled_counter = figures.counter("sparrowmq_timers_rolled_total", "timers moved to newer files")
        figures.gauge("sparrowmq_timers_pending", "timers waiting", lambda: len(self._timers))

    def part(self) -> Part:
        return Part(
            chores=(Chore("save timers", SAVE_PERIOD_S, self.save),),
            tasks=(Task("timed delivery", self.delivery.run),),
            saves=(self.close,),
            probes=((DELIVERY_LATE, self.delivery.late_condition),),
        )

    def is_over(self, due_ms: int) -> bool:
        return self._timers.is_over(due_ms, self._clock.now_ms())

    async def close(self) -> None:
        """Stop delivery, and save. Messages that become due now wait for the next start. Raises: as `save`."""
        self.delivery.close()
        self._store.flush()
        try:
            await self.save()
        finally:
            self._timers.close()

    async def save(self) -> None:
        """Write the settled timers, once the records that settle them are on disk. Raises: StoreFailed, OSError."""
        async with self._save_lock:
            saved = self._timers.collect_unsaved()
            if saved is not None:
                await self._store.flushed.reached(saved.log_offset)
                await asyncio.to_thread(self._timers.save, saved)
                self._timers.note_saved(saved)

    def _deliver_some(self) -> float:
        """Deliver at most one turn's worth; return the seconds to wait for the next timer."""
        timers = self._timers
        self._read_new_timers()
        due_timers = timers.due(self._clock.now_ms(), TIMERS_PER_TURN)
        for timer in turn_of(due_timers) if self._recalled_ids.are_known(timers) else ():
            try:
                self._deliver(timer)
            except CorruptRecord as damage:
                self.delivery.log_damage(f"the message for a time at log offset {damage.offset}", damage)
                timers.put_off_next(self._clock.now_ms() + _DAMAGE_PAUSE_MS)
            else:
                timers.settle_next()
        self._roll_some()
        return timers.wait_ms(self._clock.now_ms()) / 1000

    def _roll_some(self) -> None:
        timers = self._timers
        size, count = 0, 0
        while size < BYTES_PER_TURN and count < TIMERS_PER_TURN:
            timer_to_roll = timers.next_to_roll()
            if timer_to_roll is None:
                break
            size, count = size + timer_to_roll.size, count + 1
            try:
                self._roll(timer_to_roll)
            except CorruptRecord as damage:
                self.delivery.log_damage(f"the message for a time at log offset {damage.offset}", damage)
                timers.put_off_roll()
            else:
                timers.settle_rolled()

    def _read_new_timers(self) -> None:
        """Take over new timers, including those of this turn, so that every accepted recall takes effect."""
        self._store.publish()
        self._timers.read_new()
        self.delivery.wake_at(self._timers.queue.end, self._timers.next_offset + 1)

    def _deliver(self, timer: Timer) -> None:
        message = self._redelivery.message(timer.offset, timer.size)
        if message is None:
            return
        properties = message.properties
        if self._recalled_ids.include(properties):
            self._recalled_counter.value += 1
            return
        properties.pop(Property.TIMER_OWNER, None)
        properties[Property.TIMER_ENQUEUE_MS] = str(message.store_timestamp_ms)
        properties[Property.TIMER_DEQUEUE_MS] = str(self._clock.now_ms())
        if self._redelivery.put(message):
            self._delivered_counter.value += 1

    def _roll(self, timer: Timer) -> None:
        message = self._redelivery.message(timer.offset, timer.size)
        if message is None:
            return
        times = whole_number(message.properties.get(Property.TIMER_ROLL_TIMES), _ROLL_DIGITS) or 0
        message.properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
        if self._redelivery.put(message, again_at_ms=timer.due):
            self._rolled_counter.value += 1


class RecalledIds:
    def __init__(self, redelivery: Redelivery) -> None:
        self._redelivery = redelivery
        self._slot = 0
        self._read_count = 0  # recalls of the slot that have been read
        self._recalls = Recalls()
        self._damage: CorruptRecord | None = None

    def are_known(self, timers: Timers) -> bool:
        """Read one batch of recalls; return whether the current slot has no more, or a damaged one."""
        if self._slot != timers.slot:
            self._slot, self._read_count, self._recalls, self._damage = timers.slot, 0, Recalls(), None
        for recall in turn_of(timers.recalls(self._read_count, TIMERS_PER_TURN)):
            try:
                self._add_recall(recall)
            except CorruptRecord as damage:
                self._damage, self._read_count = damage, timers.recall_count
                return True
            self._read_count += 1
        return self._read_count >= timers.recall_count

    def include(self, properties: Mapping[str, str]) -> bool:
        """Whether a message of the slot was recalled. Raises: CorruptRecord, a recall is damaged."""
        if self._damage is not None:
            raise self._damage.with_traceback(None)  # it would grow with each message
        return self._recalls.include(
            properties.get(Property.REAL_TOPIC, ""),
            properties.get(Property.UNIQ_KEY, ""),
            properties.get(Property.TIMER_OWNER),
        )

    def _add_recall(self, timer: Timer) -> None:
        recall = self._redelivery.message(timer.offset, timer.size)
        if recall is not None:
            self._recalls.add(recall.properties)


def turn_of(timers: Sequence[Timer]) -> Iterator[Timer]:
    """Yield timers whose records together have about `BYTES_PER_TURN`, at least one."""
    size = 0
    for timer in timers:
        if size >= BYTES_PER_TURN:
            break
        size += timer.size
        yield timer
