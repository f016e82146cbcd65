"""Delivery of messages to handlers: concurrent, or in order.

    concurrent    a free worker gets each message as soon as it arrives; a failed message comes again later
    ordered       one portion of each queue at a time, and the next one only when the last has succeeded:

    pending --offer--> handed out --all done--> next portion
       ^                    |
       +-- after a moment --+ one failed: the failed ones again, before any later message

Concurrent: a failed message is given back (`redelivery`). If no broker takes it, it is delivered here again after 5 s.
In a broadcast group a failure is only logged. Ordered: only the member that holds the broker's lock on a queue consumes
it. A failing message blocks its queue, by default without limit. With `max_reconsume_times` it then goes to the retry
topic, and the queue goes on. Source: ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import get_ident
from typing import Final, Generic, Protocol, TypeVar

from sparrowmq.client.consuming.consumer_settings import MAX_PAUSE_S, MIN_PAUSE_S
from sparrowmq.client.consuming.process_queue import ProcessQueue, QueueSettling
from sparrowmq.client.consuming.pulling import STALLED_S
from sparrowmq.client.consuming.received_message import Outcome, ReceivedMessage, deliver_from
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.loop_affinity import LoopAffinity, running_loop
from sparrowmq.errors import ClientClosed, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages.delay_fields import level_s

log = logging.getLogger(__name__)
T = TypeVar("T")
REDELIVER_AFTER_S: Final = 5.0
# Each taker wakes so many others if it leaves items: all in a few turns of the loop if they are slow, and few for
# nothing if one of them takes everything.
_TAKERS_PER_WAKE: Final = 2


class Redelivery(Protocol):
    """Gives failed messages back. Raises: SparrowError, no broker accepted the message."""

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later."""

    async def reject(self, message: ReceivedMessage) -> None:
        """Put the message into the dead-letter queue."""


class ConcurrentDelivery:
    """Delivers messages and handles their outcome."""

    def __init__(
        self,
        redelivery: Redelivery | None,
        clock: Clock,
        spawn: Spawn,
        *,
        inbox: Inbox[ReceivedMessage] | None = None,
        namespace: str = "",
    ) -> None:
        self._redelivery = redelivery
        self._clock = clock
        self._spawn = spawn
        self._namespace = namespace
        self._loop_affinity = LoopAffinity()
        self._inbox: Inbox[ReceivedMessage] = Inbox() if inbox is None else inbox
        self.take_nowait = self._inbox.take_nowait
        self.next_nowait = self._inbox.next_nowait  # a call less for each message
        self._give_back_tasks: set[asyncio.Task[None]] = set()

    async def take(self, max_count: int) -> list[ReceivedMessage]:
        """The next messages. Cancelling takes none. Raises: InboxClosed."""
        first = await self._inbox.take()
        return [first, *self._inbox.take_nowait(max_count - 1)] if max_count > 1 else [first]

    def open(self) -> None:
        self._loop_affinity.enter()
        self._inbox.open()

    def close(self) -> None:
        self._inbox.close()

    def offer_withdrawn(self, process_queue: ProcessQueue) -> None:
        """Offer withdrawn messages again, because the queue may be consumed. Concurrent delivery has no locks."""
        if not process_queue.is_paused:
            self._inbox.extend(process_queue.pending)
            process_queue.pending.clear()

    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Keep back the messages that no worker has taken."""
        process_queue.pending.extend(self._inbox.withdraw(lambda message: message._owner is process_queue))

    async def wait_until_given_back(self) -> None:
        """Wait until every failed message is back at the broker, or could not be given back."""
        if self._give_back_tasks:
            await asyncio.wait(self._give_back_tasks)

    def add_pulled(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        process_queue.home = self._loop_affinity
        process_queue.add(messages)
        settling = self._make_settling(process_queue)
        deliver_from(messages, process_queue.queue, settling, process_queue, self._namespace)
        self._inbox.extend(messages)

    def add_popped(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        settling = self._make_settling(process_queue)
        for message in messages:
            message._settle = settling
        self._inbox.extend(messages)

    def _make_settling(self, process_queue: ProcessQueue) -> QueueSettling:
        return QueueSettling(process_queue, self._loop_affinity, self._settle)

    def _settle(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        if not process_queue.is_owned:
            return  # They are not committed, so the new owner gets them.
        if get_ident() != self._loop_affinity.thread:
            self._check_loop(process_queue, messages)
        if outcome is Outcome.DONE:
            process_queue.stats.done += len(messages)
            process_queue.settle_all(messages)
        else:
            for message in messages:
                self._handle_failure(process_queue, message, outcome)

    def _handle_failure(self, process_queue: ProcessQueue, message: ReceivedMessage, outcome: Outcome) -> None:
        if outcome is Outcome.CANCELLED and self._inbox.is_closed:
            return  # The consumer is being left, and does not commit it.
        process_queue.stats.failed += 1
        if self._redelivery is None:
            log.warning("dropping %r, which failed: broadcast messages are not retried", message)
            process_queue.settle(message)
            return
        try:
            task = self._spawn(self._give_back(self._redelivery, process_queue, message, outcome), "give back")
        except ClientClosed:
            if outcome is Outcome.CANCELLED:
                return  # The consumer is ending, because another task of it has failed.
            raise
        self._give_back_tasks.add(task)
        task.add_done_callback(self._give_back_tasks.discard)

    def _check_loop(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Refuse another thread or loop. The messages can still be settled where they belong."""
        if running_loop() is not self._loop_affinity.loop:
            settling = self._make_settling(process_queue)
            for message in messages:
                message._deliver_to(settling)
            raise self._loop_affinity.refusal()

    async def _give_back(
        self, redelivery: Redelivery, process_queue: ProcessQueue, message: ReceivedMessage, outcome: Outcome
    ) -> None:
        # A cancellation that leaves the consumer reaches the message first, and the consumer in the same turn.
        if outcome is Outcome.CANCELLED and self._inbox.is_closed:
            return
        try:
            await (redelivery.reject(message) if outcome is Outcome.REJECTED else redelivery.give_back(message))
        except SparrowError as error:
            log.warning("cannot give back %r, delivering it here again: %s", message, error)
            message.reconsume_times += 1
            self._clock.call_later(REDELIVER_AFTER_S, self._deliver_again, process_queue, message)
            return
        if process_queue.is_owned:
            process_queue.settle(message)

    def _deliver_again(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        if process_queue.is_owned:
            message._deliver_to(self._make_settling(process_queue))
            process_queue.pending.append(message)
            if not process_queue.is_leaving:
                self.offer_withdrawn(process_queue)


class OrderedDelivery:
    """Delivers portions of each queue, one at a time, and handles their outcome.

    Args:
        redelivery: takes messages that failed `max_reconsume_times`; None in a broadcast group.
        is_iterated: the program takes the messages itself, so it may forget to settle them.
    """

    def __init__(
        self,
        portion_size: int,
        redelivery: BrokerRedelivery | None,
        max_reconsume_times: int | None,
        needs_lock: bool,
        clock: Clock,
        spawn: Spawn,
        *,
        suspend_s: float = 1.0,
        is_iterated: bool = False,
        namespace: str = "",
    ) -> None:
        self._portion_size = portion_size
        self._is_iterated = is_iterated
        self._last_portion: list[ReceivedMessage] = []  # the portion that the program took last
        self._suspend_s = suspend_s
        self._redelivery = redelivery
        self._max_reconsume_times = max_reconsume_times
        self._needs_lock = needs_lock
        self._clock = clock
        self._spawn = spawn
        self._namespace = namespace
        self._loop_affinity = LoopAffinity()
        self._inbox: Inbox[list[ReceivedMessage]] = Inbox()
        self._set_aside_tasks: set[asyncio.Task[None]] = set()

    async def take(self, max_count: int) -> list[ReceivedMessage]:
        """The next portion of some queue. Cancelling takes none. Raises: InboxClosed."""
        if not self._is_iterated:
            return await self._inbox.take()
        try:
            portion = await self._clock.wait_for(self._inbox.take(), STALLED_S)
        except TimeoutError:
            self._warn_of_unsettled()
            portion = await self._inbox.take()
        self._last_portion = portion
        return portion

    def take_nowait(self, max_count: int) -> list[ReceivedMessage]:
        """The next portion if there is one."""
        portions = self._inbox.take_nowait(1)
        if not portions:
            return []
        self._last_portion = portions[0]
        return portions[0]

    def next_nowait(self) -> None:
        """None: messages come in portions only."""

    def _warn_of_unsettled(self) -> None:
        unsettled = [message for message in self._last_portion if message.is_unsettled and message.is_current]
        if unsettled:
            log.warning(
                "%s waits: %d messages are delivered and not settled, the first is %r; use `async with msg.process()`, "
                "or call msg.ack()",
                unsettled[0].queue,
                len(unsettled),
                unsettled[0],
            )

    def open(self) -> None:
        self._loop_affinity.enter()
        self._inbox.open()

    def close(self) -> None:
        self._inbox.close()

    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Keep back the portion that no worker has taken."""
        for portion in self._inbox.withdraw(lambda portion: portion[0]._owner is process_queue):
            process_queue.pending.extendleft(reversed(portion))
            for message in portion:
                process_queue.take_back(message)

    async def wait_until_given_back(self) -> None:
        """Wait until every message that failed too often is in the retry topic, or could not be sent there."""
        if self._set_aside_tasks:
            await asyncio.wait(self._set_aside_tasks)

    def add_pulled(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        process_queue.add(messages)
        deliver_from(messages, process_queue.queue, None, process_queue, self._namespace)
        process_queue.pending.extend(messages)
        self.offer_withdrawn(process_queue)

    def offer_withdrawn(self, process_queue: ProcessQueue) -> None:
        if (
            process_queue.handed_out
            or process_queue.is_suspended
            or not process_queue.is_owned
            or process_queue.is_leaving
            or process_queue.is_paused
        ):
            return
        if self._needs_lock and self._clock.monotonic() >= process_queue.locked_until:
            return  # The renewal of the lock calls this again.
        settle = partial(self._settle, process_queue)
        portion = [process_queue.pending.popleft() for _ in range(min(self._portion_size, len(process_queue.pending)))]
        if not portion:
            return
        process_queue.hand_out(portion)
        for message in portion:
            message._deliver_to(settle)
        self._inbox.extend([portion])

    def _settle(self, process_queue: ProcessQueue, message: ReceivedMessage, outcome: Outcome) -> None:
        if not process_queue.is_owned:
            return
        if get_ident() != self._loop_affinity.thread:
            message._deliver_to(partial(self._settle, process_queue))  # It can still be settled where it belongs.
            raise self._loop_affinity.refusal()
        if outcome is Outcome.DONE:
            process_queue.stats.done += 1
            process_queue.settle(message)
            self._end_handling(process_queue, message)
            return
        process_queue.stats.failed += 1
        is_rejected = outcome is Outcome.REJECTED
        if is_rejected and self._redelivery is None:
            log.warning("dropping %r, which was rejected: a broadcast group has no dead letters", message)
            process_queue.settle(message)
            self._end_handling(process_queue, message)
        elif self._redelivery is not None and (
            is_rejected
            or (
                outcome is Outcome.RETRY
                and self._max_reconsume_times is not None
                and message.reconsume_times >= self._max_reconsume_times
            )
        ):
            task = self._spawn(self._set_aside(self._redelivery, process_queue, message, is_rejected), "set aside")
            self._set_aside_tasks.add(task)
            task.add_done_callback(self._set_aside_tasks.discard)
        else:
            self._fail(process_queue, message)

    def _fail(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        message.reconsume_times += 1
        process_queue.failed.append(message)
        self._end_handling(process_queue, message)

    def _end_handling(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Note that a message is not being handled. After the last of its portion the queue goes on, or pauses."""
        process_queue.take_back(message)
        if process_queue.handed_out:
            return
        if process_queue.failed:
            pause_s = max(self._pause_s(message) for message in process_queue.failed)
            process_queue.failed.sort(key=lambda message: message.offset, reverse=True)
            process_queue.pending.extendleft(process_queue.failed)
            process_queue.failed.clear()
            process_queue.is_suspended = True
            self._clock.call_later(pause_s, self._resume, process_queue)
        else:
            self.offer_withdrawn(process_queue)

    def _pause_s(self, message: ReceivedMessage) -> float:
        options = message._settle_options
        if options.suspend_s is None and options.delay_s is not None:
            return options.delay_s
        if options.suspend_s is None and options.delay_level:
            return level_s(options.delay_level)
        pause_s = self._suspend_s if options.suspend_s is None else options.suspend_s
        return min(max(pause_s, MIN_PAUSE_S), MAX_PAUSE_S)

    def _resume(self, process_queue: ProcessQueue) -> None:
        process_queue.is_suspended = False
        self.offer_withdrawn(process_queue)

    async def _set_aside(
        self, redelivery: BrokerRedelivery, process_queue: ProcessQueue, message: ReceivedMessage, is_rejected: bool
    ) -> None:
        """Send a message that failed too often to the group's retry topic, and at last to the dead-letter queue."""
        try:
            if is_rejected:
                await redelivery.reject(message)
            else:
                await redelivery.send_copy(message, message.reconsume_times)
        except SparrowError as error:
            log.warning("cannot set %r aside, trying it again: %s", message, error)
            self._fail(process_queue, message)
            return
        process_queue.settle(message)
        self._end_handling(process_queue, message)


class InboxClosed(Exception):
    """There will be no more messages."""


class Inbox(Generic[T]):
    """A closable queue of one event loop. `on_idle` is called when a taker begins to wait, or takes the last item."""

    def __init__(self, on_idle: Callable[[], object] = lambda: None) -> None:
        self.waiting_takers = 0
        self._on_idle = on_idle
        self._items: deque[T] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def extend(self, items: Iterable[T]) -> None:
        """Add items behind the others and wake takers for them."""
        self._items.extend(items)
        self._wake(min(len(self._items), _TAKERS_PER_WAKE))

    async def take(self) -> T:
        """The next item. Cancelling takes none. Raises: InboxClosed, also if unacknowledged items are left."""
        while not self._items or self._is_closed:
            if self._is_closed:
                raise InboxClosed
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            self.waiting_takers += 1
            self._on_idle()
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake(1)  # Another taker may have the item for which this one was woken.
                else:
                    self.waiting_takers -= 1
                raise
        return self.take_nowait(1)[0]

    def next_nowait(self) -> T | None:
        """The next item; None if there is none, or it is closed. A taker was woken for the rest when they came."""
        items = self._items
        if not items or self._is_closed:
            return None
        item = items.popleft()
        if not items:
            self._on_idle()
        return item

    def take_nowait(self, count: int) -> list[T]:
        """Up to `count` items that are there; none if it is closed. Wakes takers for the rest."""
        items = self._items
        if not items or self._is_closed:
            return []
        items_taken = [items.popleft()] if count == 1 else [items.popleft() for _ in range(min(count, len(items)))]
        if not items:
            self._on_idle()
        elif self._takers:
            self._wake(min(len(items), _TAKERS_PER_WAKE))
        return items_taken

    def withdraw(self, is_wanted: Callable[[T], bool]) -> list[T]:
        """Take out the items that fulfil a condition."""
        withdrawn = [item for item in self._items if is_wanted(item)]
        if withdrawn:
            self._items = deque(item for item in self._items if not is_wanted(item))
        return withdrawn

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def open(self) -> None:
        """Undo `close`."""
        self._is_closed = False

    def close(self) -> None:
        """Let every taker end."""
        self._is_closed = True
        self._wake(len(self._takers))

    def __len__(self) -> int:
        return len(self._items)

    def _wake(self, count: int) -> None:
        while self._takers and count > 0:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self.waiting_takers -= 1
                count -= 1
