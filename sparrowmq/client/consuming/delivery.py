"""Delivery of messages to handlers: concurrent, or in order.

    concurrent    a free worker gets each message as soon as it arrives; a failed message comes again later
    ordered       one portion of each queue at a time, and the next one only when the last has succeeded:

    pending --offer--> handed out --all done--> next portion
       ^                    |
       +-- after a moment --+ one failed: the failed ones again, before any later message

Concurrent: a failed message is given back to the broker (36), which delivers it to the group again after a delay that
grows with each failure. After the last failure the message goes to the dead-letter queue. If the broker does not accept
the message, the client sends a copy to the group's retry topic. If that fails too, the message is delivered here again
after 5 s. In a broadcast group a failure is only logged. Source: ConsumeMessageConcurrentlyService, Java 4.9.8.

Ordered: only the member that holds the broker's lock on a queue consumes it. A failing message blocks its queue. By
default it is retried without limit. With `max_reconsume_times` it then goes to the retry topic, and the queue goes on.
Source: ConsumeMessageOrderlyService, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import get_ident
from typing import Final, Generic, Protocol, TypeVar

from sparrowmq.client.consuming.consumer_settings import LONGEST_PAUSE_S, MIN_PAUSE_S
from sparrowmq.client.consuming.delivered_message import DONE, Outcome, set_settle
from sparrowmq.client.consuming.process_queue import ProcessQueue, QueueSettling
from sparrowmq.client.consuming.pulling import STALLED_S
from sparrowmq.client.consuming.received_message import ReceivedMessage, received
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.loop_affinity import LoopAffinity, running_loop
from sparrowmq.errors import ClientClosed, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages.delay_fields import level_s
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage

log = logging.getLogger(__name__)
T = TypeVar("T")
AGAIN_S: Final = 5.0
# Each taker wakes so many others if it leaves items: all in a few turns of the loop if they are slow, and few for
# nothing if one of them takes everything.
_WOKEN: Final = 2


class Redelivery(Protocol):
    """Gives failed messages back: `BrokerRedelivery`."""

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later. Raises: SparrowError."""

    async def reject(self, message: ReceivedMessage) -> None:
        """Put the message into the dead-letter queue. Raises: SparrowError."""


class ConcurrentDelivery:
    """Delivers messages and handles their outcome."""

    def __init__(
        self,
        retries: Redelivery | None,
        clock: Clock,
        spawn: Spawn,
        *,
        inbox: Inbox[ReceivedMessage] | None = None,
        namespace: str = "",
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._spawn = spawn
        self._namespace = namespace
        self._home = LoopAffinity()
        self._inbox: Inbox[ReceivedMessage] = Inbox() if inbox is None else inbox
        self.take_here = self._inbox.take_here
        self.next_here = self._inbox.next_here  # a call less for each message
        self._returning: set[asyncio.Task[None]] = set()

    async def take(self, max_count: int) -> list[ReceivedMessage]:
        """The next messages. Cancelling takes none. Raises: InboxClosed."""
        first = await self._inbox.take()
        return [first, *self._inbox.take_here(max_count - 1)] if max_count > 1 else [first]

    def open(self) -> None:
        self._home.enter()
        self._inbox.open()

    def close(self) -> None:
        self._inbox.close()

    def renewed(self, owned: ProcessQueue) -> None:
        """Offer withdrawn messages again, because the queue may be consumed. Concurrent delivery has no locks."""
        if not owned.is_paused:
            self._inbox.extend(owned.pending)
            owned.pending.clear()

    def withdraw(self, owned: ProcessQueue) -> None:
        """Keep back the messages that no worker has taken."""
        owned.pending.extend(self._inbox.withdraw(lambda message: message._is_from(owned)))

    async def given_back(self) -> None:
        """Wait until every failed message is back at the broker, or could not be given back."""
        if self._returning:
            await asyncio.wait(self._returning)

    def arrived(self, owned: ProcessQueue, pulled: Sequence[StoredMessage | PulledMessage]) -> None:
        owned.add(pulled)
        self._inbox.extend(received(pulled, owned.queue, self._settling(owned), owned, self._namespace))

    def popped(self, owned: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        set_settle(messages, self._settling(owned))
        self._inbox.extend(messages)

    def _settling(self, owned: ProcessQueue) -> QueueSettling:
        return QueueSettling(owned, self._home, self._settle)

    def _settle(self, owned: ProcessQueue, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        if not owned.is_owned:
            return  # They are not committed, so the new owner gets them.
        if get_ident() != self._home.thread:
            self._check_home(owned, messages)
        if outcome is DONE:
            owned.stats.done += len(messages)
            owned.settle_all(messages)
        else:
            for message in messages:
                self._failed(owned, message, outcome)

    def _failed(self, owned: ProcessQueue, message: ReceivedMessage, outcome: Outcome) -> None:
        if outcome is Outcome.CANCELLED and self._inbox.is_closed:
            return  # The consumer is being left, and does not commit it.
        owned.stats.failed += 1
        if self._retries is None:
            log.warning("dropping %r, which failed: broadcast messages are not retried", message)
            owned.settle(message)
            return
        try:
            task = self._spawn(self._give_back(self._retries, owned, message, outcome), "give back")
        except ClientClosed:
            if outcome is Outcome.CANCELLED:
                return  # The consumer is ending, because another task of it has failed.
            raise
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def _check_home(self, owned: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Refuse another thread or loop. The messages can still be settled where they belong."""
        if running_loop() is not self._home.loop:
            settling = self._settling(owned)
            for message in messages:
                message._deliver_to(settling)
            raise self._home.refusal()

    async def _give_back(
        self, retries: Redelivery, owned: ProcessQueue, message: ReceivedMessage, outcome: Outcome
    ) -> None:
        # A cancellation that leaves the consumer reaches the message first, and the consumer in the same turn.
        if outcome is Outcome.CANCELLED and self._inbox.is_closed:
            return
        try:
            await (retries.reject(message) if outcome is Outcome.REJECTED else retries.give_back(message))
        except SparrowError as error:
            log.warning("cannot give back %r, delivering it here again: %s", message, error)
            message.reconsume_times += 1
            self._clock.call_later(AGAIN_S, self._deliver_again, owned, message)
            return
        if owned.is_owned:
            owned.settle(message)

    def _deliver_again(self, owned: ProcessQueue, message: ReceivedMessage) -> None:
        if owned.is_owned:
            message._deliver_to(self._settling(owned))
            owned.pending.append(message)
            if not owned.is_leaving:
                self.renewed(owned)


class OrderedDelivery:
    """Delivers portions of each queue, one at a time, and handles their outcome.

    Args:
        retries: takes messages that failed too often; None in a broadcast group.
        max_reconsume_times: failures of one message before that; None for no limit.
        is_iterated: the program takes the messages itself, so it may forget to settle them.
    """

    def __init__(
        self,
        batch: int,
        retries: BrokerRedelivery | None,
        max_reconsume_times: int | None,
        needs_lock: bool,
        clock: Clock,
        spawn: Spawn,
        *,
        suspend_s: float = 1.0,
        is_iterated: bool = False,
        namespace: str = "",
    ) -> None:
        self._batch = batch
        self._is_iterated = is_iterated
        self._last_portion: list[ReceivedMessage] = []  # the portion that the program took last
        self._suspend_s = suspend_s
        self._retries = retries
        self._max_reconsume_times = max_reconsume_times
        self._needs_lock = needs_lock
        self._clock = clock
        self._spawn = spawn
        self._namespace = namespace
        self._home = LoopAffinity()
        self._inbox: Inbox[list[ReceivedMessage]] = Inbox()
        self._leaving: set[asyncio.Task[None]] = set()

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

    def take_here(self, max_count: int) -> list[ReceivedMessage]:
        """The next portion if there is one."""
        portions = self._inbox.take_here(1)
        if not portions:
            return []
        self._last_portion = portions[0]
        return portions[0]

    def next_here(self) -> None:
        """None: messages come in portions only."""

    def _warn_of_unsettled(self) -> None:
        left = [each for each in self._last_portion if each.is_unsettled and each.is_current]
        if left:
            log.warning(
                "%s waits: %d messages are delivered and not settled, the first is %r; use `async with msg.process()`, "
                "or call msg.ack()",
                left[0].queue,
                len(left),
                left[0],
            )

    def open(self) -> None:
        self._home.enter()
        self._inbox.open()

    def close(self) -> None:
        self._inbox.close()

    def withdraw(self, owned: ProcessQueue) -> None:
        """Keep back the portion that no worker has taken."""
        for portion in self._inbox.withdraw(lambda portion: portion[0]._is_from(owned)):
            owned.pending.extendleft(reversed(portion))
            for message in portion:
                owned.take_back(message)

    async def given_back(self) -> None:
        """Wait until every message that failed too often is in the retry topic, or could not be sent there."""
        if self._leaving:
            await asyncio.wait(self._leaving)

    def arrived(self, owned: ProcessQueue, pulled: Sequence[StoredMessage | PulledMessage]) -> None:
        owned.add(pulled)
        owned.pending.extend(received(pulled, owned.queue, None, owned, self._namespace))
        self._offer(owned)

    def renewed(self, owned: ProcessQueue) -> None:
        """Offer messages again: the broker's lock is ours, or the program resumes the queue."""
        self._offer(owned)

    def _offer(self, owned: ProcessQueue) -> None:
        """Deliver the next portion, if none is being handled and the lock is ours."""
        if owned.handed_out or owned.is_suspended or not owned.is_owned:
            return
        if owned.is_leaving or owned.is_paused:
            return  # `renewed` comes back here.
        if self._needs_lock and self._clock.monotonic() >= owned.locked_until:
            return  # `renewed` comes back here.
        settle = partial(self._settle, owned)
        portion = [owned.pending.popleft() for _ in range(min(self._batch, len(owned.pending)))]
        if not portion:
            return
        owned.hand_out(portion)
        for message in portion:
            message._deliver_to(settle)
        self._inbox.extend([portion])

    def _settle(self, owned: ProcessQueue, message: ReceivedMessage, outcome: Outcome) -> None:
        if not owned.is_owned:
            return
        if get_ident() != self._home.thread:
            message._deliver_to(partial(self._settle, owned))  # It can still be settled where it belongs.
            raise self._home.refusal()
        if outcome is DONE:
            owned.stats.done += 1
            owned.settle(message)
            self._put_down(owned, message)
            return
        owned.stats.failed += 1
        is_rejected = outcome is Outcome.REJECTED
        if is_rejected and self._retries is None:
            log.warning("dropping %r, which was rejected: a broadcast group has no dead letters", message)
            owned.settle(message)
            self._put_down(owned, message)
        elif self._retries is not None and (
            is_rejected
            or (
                outcome is Outcome.RETRY
                and self._max_reconsume_times is not None
                and message.reconsume_times >= self._max_reconsume_times
            )
        ):
            task = self._spawn(self._set_aside(self._retries, owned, message, is_rejected), "set aside")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        else:
            self._fail(owned, message)

    def _fail(self, owned: ProcessQueue, message: ReceivedMessage) -> None:
        message.reconsume_times += 1
        owned.failed.append(message)
        self._put_down(owned, message)

    def _put_down(self, owned: ProcessQueue, message: ReceivedMessage) -> None:
        """Note that a message is not being handled. After the last of its portion the queue goes on, or pauses."""
        owned.take_back(message)
        if owned.handed_out:
            return
        if owned.failed:
            pause_s = max(self._pause_s(each) for each in owned.failed)
            owned.failed.sort(key=lambda each: each.offset, reverse=True)
            owned.pending.extendleft(owned.failed)
            owned.failed.clear()
            owned.is_suspended = True
            self._clock.call_later(pause_s, self._resume, owned)
        else:
            self._offer(owned)

    def _pause_s(self, failed: ReceivedMessage) -> float:
        options = failed._settle_options
        if options.suspend_s is None and options.delay_s is not None:
            return options.delay_s
        if options.suspend_s is None and options.delay_level:
            return level_s(options.delay_level)
        pause_s = self._suspend_s if options.suspend_s is None else options.suspend_s
        return min(max(pause_s, MIN_PAUSE_S), LONGEST_PAUSE_S)

    def _resume(self, owned: ProcessQueue) -> None:
        owned.is_suspended = False
        self._offer(owned)

    async def _set_aside(
        self, retries: BrokerRedelivery, owned: ProcessQueue, message: ReceivedMessage, is_rejected: bool
    ) -> None:
        """Send a message that failed too often to the group's retry topic, and at last to the dead-letter queue."""
        try:
            if is_rejected:
                await retries.reject(message)
            else:
                await retries.send_copy(message, message.reconsume_times)
        except SparrowError as error:
            log.warning("cannot set %r aside, trying it again: %s", message, error)
            self._fail(owned, message)
            return
        owned.settle(message)
        self._put_down(owned, message)


class InboxClosed(Exception):
    """There will be no more messages."""


class Inbox(Generic[T]):
    """A closable queue of one event loop.

    Args:
        on_idle: called when a taker begins to wait, or takes the last item.
    Attributes:
        idle: the number of takers that wait.
    """

    def __init__(self, on_idle: Callable[[], object] = lambda: None) -> None:
        self.idle = 0
        self._on_idle = on_idle
        self._items: deque[T] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def extend(self, items: Iterable[T]) -> None:
        """Add items behind the others and wake takers for them."""
        self._items.extend(items)
        self._wake(min(len(self._items), _WOKEN))

    async def take(self) -> T:
        """The next item. Cancelling takes none.

        Raises: InboxClosed, closed, even if items are left: they were never acknowledged, so they come again.
        """
        while not self._items or self._closed:
            if self._closed:
                raise InboxClosed
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            self.idle += 1
            self._on_idle()
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake(1)  # Another taker may have the item for which this one was woken.
                else:
                    self.idle -= 1
                raise
        return self.take_here(1)[0]

    def next_here(self) -> T | None:
        """The next item; None if there is none, or it is closed. A taker was woken for the rest when they came."""
        items = self._items
        if not items or self._closed:
            return None
        item = items.popleft()
        if not items:
            self._on_idle()
        return item

    def take_here(self, count: int) -> list[T]:
        """Up to `count` items that are there; none if it is closed. Wakes takers for the rest."""
        items = self._items
        if not items or self._closed:
            return []
        taken = [items.popleft()] if count == 1 else [items.popleft() for _ in range(min(count, len(items)))]
        if not items:
            self._on_idle()
        elif self._takers:
            self._wake(min(len(items), _WOKEN))
        return taken

    def withdraw(self, is_wanted: Callable[[T], bool]) -> list[T]:
        """Take out the items that fulfil a condition."""
        withdrawn = [item for item in self._items if is_wanted(item)]
        if withdrawn:
            self._items = deque(item for item in self._items if not is_wanted(item))
        return withdrawn

    @property
    def is_closed(self) -> bool:
        return self._closed

    def open(self) -> None:
        """Undo `close`."""
        self._closed = False

    def close(self) -> None:
        """Let every taker end."""
        self._closed = True
        self._wake(len(self._takers))

    def __len__(self) -> int:
        return len(self._items)

    def _wake(self, count: int) -> None:
        while self._takers and count > 0:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self.idle -= 1
                count -= 1
