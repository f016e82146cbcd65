"""Timers: messages are delivered at the time that they ask for, to the millisecond, and can be recalled until then.

    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS    ── divert (`timer_redirect`) ──  rmq_sys_wheel_timer[0],
                                                             TIMER_OUT_MS, REAL_TOPIC, REAL_QID
    due ── restored, TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS added ── its real queue; the record says what it settles
    a recall (370) ── is a timer itself, with TIMER_DEL_UNIQKEY: topic+unique id, due with the message that it names
    access control ── both have TIMER_OWNER, the account that sent them, which no consumer gets
    retention wants the file of a timer ── stored again at the log's end, TIMER_ROLL_TIMES one more

The store knows the pending timers and their times, and explains why no timer is lost or doubled
(store/timers.py). One coroutine sleeps until the next slot of 16 ms is over or the queue grows. It delivers
`TURN` messages, or about 1 MB, before the sockets get their turn. The recalls of a slot are read in such turns too,
once, before its first message. A message with a delay level, such as every retry, uses that level
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

from sparrowmq.broker.delayed.delivery import DamageLog, Delivery, Redelivery
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

_OUT: Final = mark(Property.TIMER_OUT_MS)
_DAMAGE_PAUSE_MS: Final = 60_000
_DIGITS: Final = 19  # the longest Java long
_ROLL_DIGITS: Final = 9
TURN: Final = 64
TURN_BYTES: Final = 1 << 20  # of records that are read and stored in one turn
# Room for the properties that delivery adds: two times, and the number of repeated stores.
_ROOM: Final = sum(
    len(name) + 2 + digits
    for name, digits in (
        (Property.TIMER_ENQUEUE_MS, _DIGITS),
        (Property.TIMER_DEQUEUE_MS, _DIGITS),
        (Property.TIMER_ROLL_TIMES, _ROLL_DIGITS + 1),
    )
)


def timer_redirect(clock: Clock, max_delay_s: int, enabled: bool = True) -> Redirect:
    """Return the redirect of messages for a time. It comes before the redirect of the levels.

    Args:
        max_delay_s: longer delays are refused.
    """

    def divert(entry: Entry) -> bool:
        properties = entry.properties
        if (properties.get(Property.DELAY) or "0") != "0":
            for name in (Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS):
                properties.remove(name)
            return False
        is_half = entry.sys_flag & SysFlag.PREPARED  # a half message, or one that was rolled back
        now_ms = clock.now_ms()
        due_ms = None if is_half or properties.has(_OUT) else _due_ms(entry, now_ms)
        if due_ms is None:
            return False
        if not enabled:
            raise _illegal("this broker delivers at no other time than a delay level's: timerWheelEnable is false")
        is_recall = properties.get(Property.TIMER_DEL_UNIQKEY) is not None
        if due_ms <= now_ms:
            if is_recall:
                raise _illegal("the message to recall is due already")
            return False
        if due_ms - now_ms > max_delay_s * 1000:
            raise _illegal(
                f"the delivery is {(due_ms - now_ms) // 1000} s away; timerMaxDelaySec allows {max_delay_s} s"
            )
        properties.put(Property.TIMER_OUT_MS, str(due_ms))
        if entry.owner is not None:
            properties.put(Property.TIMER_OWNER, entry.owner)
        move(entry, TIMER_TOPIC, 0)
        entry.deliver_at_ms = due_ms | RECALL if is_recall else due_ms
        return True

    return Redirect(TIMERS, divert, _restore, _ROOM)


def _due_ms(entry: Entry, now_ms: int) -> int | None:
    """Return the due time that a message asks for; None without one. Raises: RemoteError, it is not a number."""
    for name, unit_ms, start_ms in (
        (Property.TIMER_DELAY_SEC, 1000, now_ms),
        (Property.TIMER_DELAY_MS, 1, now_ms),
        (Property.TIMER_DELIVER_MS, 1, 0),
    ):
        text = entry.properties.get(name)
        if text is not None:
            if whole_number(text.removeprefix("-"), _DIGITS) is None:
                raise _illegal(f"{name} is {text[:40]!r}, and not a number")
            return start_ms + int(text) * unit_ms
    return None


def _illegal(reason: str) -> RemoteError:
    return RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {reason}")


def _restore(message: StoredMessage) -> Entry:
    entry = restore(message)
    entry.prepared_offset = settling_offset(message.physical_offset)
    return entry


class TimedDelivery:
    """The timers of one broker.

    Args:
        redirect: `timer_redirect`, the same object that the writer uses.
    Attributes:
        delivery: delivers due messages to their queues while it runs.
    Raises:
        BadStore, DiskFull: the pending timers cannot be determined.
    """

    def __init__(self, store: MessageStore, writer: Writer, redirect: Redirect, clock: Clock, figures: Figures) -> None:
        self._store = store
        self._clock = clock
        self._timers = store.timers()
        self.delivery = Delivery("messages for a time", self._deliver_some, clock)
        self._damage_log = DamageLog()
        self._redelivery = Redelivery("message for a time", store, writer, redirect)
        self._recalled_ids = RecalledIds(self._redelivery)
        self._one_save = asyncio.Lock()
        self._delivered = figures.counter("sparrowmq_timers_delivered_total", "timers delivered")
        self._recalled = figures.counter("sparrowmq_timers_recalled_total", "timers recalled")
        self._rolled = figures.counter("sparrowmq_timers_rolled_total", "timers moved to newer files")
        figures.gauge("sparrowmq_timers_pending", "timers waiting", lambda: len(self._timers))

    def part(self) -> Part:
        return Part(
            chores=(Chore("save timers", SAVE_PERIOD_S, self.save),),
            tasks=(Task("timed delivery", self.delivery.run),),
            saves=(self.close,),
            probes=((DELIVERY_LATE, self.delivery.late),),
        )

    def is_over(self, due_ms: int) -> bool:
        """Whether it is too late to recall a message with this due time."""
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
        """Write the settled timers, once the records that settle them are on disk.

        Raises:
            StoreFailed: they never will be.
            OSError: the file could not be written.
        """
        async with self._one_save:
            saved = self._timers.unsaved()
            if saved is not None:
                await self._store.flushed.reached(saved.log_offset)
                await asyncio.to_thread(self._timers.save, saved)
                self._timers.note_saved(saved)

    def _deliver_some(self) -> float:
        """Deliver at most one turn's worth; return the seconds to wait for the next timer."""
        timers = self._timers
        self._learn()
        due = timers.due(self._clock.now_ms(), TURN)
        for timer in turn_of(due) if self._recalled_ids.are_known(timers) else ():
            try:
                self._deliver(timer)
            except CorruptRecord as bad:
                self._damage_log.tell(f"the message for a time at log offset {bad.offset}", bad)
                timers.put_off_next(self._clock.now_ms() + _DAMAGE_PAUSE_MS)
            else:
                timers.settle_next()
        self._roll_some()
        return timers.wait_ms(self._clock.now_ms()) / 1000

    def _roll_some(self) -> None:
        timers = self._timers
        size, count = 0, 0
        while size < TURN_BYTES and count < TURN:
            timer_to_roll = timers.to_roll()
            if timer_to_roll is None:
                break
            size, count = size + timer_to_roll.size, count + 1
            try:
                self._roll(timer_to_roll)
            except CorruptRecord as bad:
                self._damage_log.tell(f"the message for a time at log offset {bad.offset}", bad)
                timers.put_off_roll()
            else:
                timers.rolled()

    def _learn(self) -> None:
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
            self._recalled.value += 1
            return
        properties.pop(Property.TIMER_OWNER, None)
        properties[Property.TIMER_ENQUEUE_MS] = str(message.store_timestamp_ms)
        properties[Property.TIMER_DEQUEUE_MS] = str(self._clock.now_ms())
        if self._redelivery.put(message):
            self._delivered.value += 1

    def _roll(self, timer: Timer) -> None:
        message = self._redelivery.message(timer.offset, timer.size)
        if message is None:
            return
        times = whole_number(message.properties.get(Property.TIMER_ROLL_TIMES), _ROLL_DIGITS) or 0
        message.properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
        if self._redelivery.put(message, again_at_ms=timer.due):
            self._rolled.value += 1


class RecalledIds:
    """The messages that the recalls of one slot of the timer wheel name.

    A slot may contain tens of thousands of recalls. Each is read once, some in each turn, before the slot's first
    message is delivered.
    """

    def __init__(self, redelivery: Redelivery) -> None:
        self._redelivery = redelivery
        self._slot = 0
        self._read = 0  # recalls of the slot that have been read
        self._recalls = Recalls()
        self._damage: CorruptRecord | None = None

    def are_known(self, timers: Timers) -> bool:
        """Read one batch of recalls; return whether all recalls of the current slot have been read.

        A slot with a damaged recall is known too: none of its messages can be delivered.
        """
        if self._slot != timers.slot:
            self._slot, self._read, self._recalls, self._damage = timers.slot, 0, Recalls(), None
        for recall in turn_of(timers.recalls(self._read, TURN)):
            try:
                self._add(recall)
            except CorruptRecord as bad:
                self._damage, self._read = bad, timers.recall_count
                return True
            self._read += 1
        return self._read >= timers.recall_count

    def include(self, properties: Mapping[str, str]) -> bool:
        """Whether a message of the slot was recalled. Raises: CorruptRecord, a recall is damaged."""
        if self._damage is not None:
            raise self._damage.with_traceback(None)  # it would grow with each message
        return self._recalls.include(
            properties.get(Property.REAL_TOPIC, ""),
            properties.get(Property.UNIQ_KEY, ""),
            properties.get(Property.TIMER_OWNER),
        )

    def _add(self, timer: Timer) -> None:
        recall = self._redelivery.message(timer.offset, timer.size)
        if recall is not None:
            self._recalls.add(recall.properties)


def turn_of(timers: Sequence[Timer]) -> Iterator[Timer]:
    """Yield timers whose records together have about `TURN_BYTES`, at least one."""
    size = 0
    for timer in timers:
        if size >= TURN_BYTES:
            break
        size += timer.size
        yield timer
