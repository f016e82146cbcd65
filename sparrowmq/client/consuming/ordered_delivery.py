"""Orderly delivery: one portion of each queue at a time, and the next one only when the last has succeeded.

    pending --offer--> handed out --all done--> next portion
       ^                    |
       +-- after a moment --+ one failed: the failed ones again, before any later message

Only the member that holds the broker's lock on a queue consumes it. A failing message blocks its queue. By default it
is retried without limit; with `max_reconsume_times` it then goes to the retry topic, and the queue continues.
Source: ConsumeMessageOrderlyService, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from threading import get_ident

from sparrowmq.client.consuming.consumer_settings import LONGEST_PAUSE_S, SHORTEST_PAUSE_S
from sparrowmq.client.consuming.delivered import DONE, Outcome
from sparrowmq.client.consuming.inbox import Inbox
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.pulling import STALLED_S
from sparrowmq.client.consuming.received import ReceivedMessage, received
from sparrowmq.client.consuming.sending_back import Retries
from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages.delay_fields import level_s
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage

log = logging.getLogger(__name__)


class OrderedDelivery:
    """Delivers portions of each queue, one at a time, and handles their outcome.

    Args:
        batch: the size of a portion.
        retries: takes messages that failed too often; None in a broadcast group.
        max_reconsume_times: failures of one message before that; None for no limit.
        suspend_s: the pause of a queue after a failure, unless its message has one.
        is_iterated: the program takes the messages itself, so it may forget to settle them.
        needs_lock: whether a queue may only be consumed under the broker's lock.
        namespace: the client's; messages leave it out of names.
    """

    def __init__(
        self,
        batch: int,
        retries: Retries | None,
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
        """Warn a program that waits for messages, and may have forgotten to settle the last ones."""
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
            owned.pace.done += 1
            owned.settle(message)
            self._put_down(owned, message)
            return
        owned.pace.failed += 1
        is_rejected = outcome is Outcome.REJECTED
        if is_rejected and self._retries is None:
            log.warning("dropping %r, which was rejected: a broadcast group has no dead letters", message)
            owned.settle(message)
            self._put_down(owned, message)
        elif self._retries is not None and (is_rejected or (outcome is Outcome.RETRY and self._is_exhausted(message))):
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
        wish = failed._wish
        if wish.suspend_s is None and wish.delay_s is not None:
            return wish.delay_s
        if wish.suspend_s is None and wish.delay_level:
            return level_s(wish.delay_level)
        pause_s = self._suspend_s if wish.suspend_s is None else wish.suspend_s
        return min(max(pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def _resume(self, owned: ProcessQueue) -> None:
        owned.is_suspended = False
        self._offer(owned)

    def _is_exhausted(self, message: ReceivedMessage) -> bool:
        limit = self._max_reconsume_times
        return limit is not None and message.reconsume_times >= limit

    async def _set_aside(
        self, retries: Retries, owned: ProcessQueue, message: ReceivedMessage, is_rejected: bool
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
