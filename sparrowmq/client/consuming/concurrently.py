"""Concurrent delivery: a free worker gets each message as soon as it arrives; a failed message comes again later.

A failed message is given back to the broker (36), which delivers it to the group again after a delay that grows
with each failure. After the last failure the message goes to the dead-letter queue. If the broker does not accept the
message, the client sends a copy to the group's retry topic. If that fails too, the message is delivered here again
after 5 s. In a broadcast group a failure is only logged. Source: ConsumeMessageConcurrentlyService, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from threading import get_ident
from typing import Final, Protocol

from sparrowmq.client.consuming.delivered import DONE, Outcome, let_settle
from sparrowmq.client.consuming.inbox import Inbox
from sparrowmq.client.consuming.process_queue import ProcessQueue, QueueSettling
from sparrowmq.client.consuming.received import ReceivedMessage, received
from sparrowmq.client.loop_affinity import LoopAffinity, running_loop
from sparrowmq.errors import ClientClosed, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage

log = logging.getLogger(__name__)

AGAIN_S: Final = 5.0


class Redelivery(Protocol):
    """Gives failed messages back: `Retries`."""

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later. Raises: SparrowError."""

    async def reject(self, message: ReceivedMessage) -> None:
        """Put the message into the dead-letter queue. Raises: SparrowError."""


class ConcurrentDelivery:
    """Delivers messages and handles their outcome.

    Args:
        retries: gives failed messages back; None in a broadcast group.
        inbox: gets the messages that wait for a handler.
        namespace: the client's; messages leave it out of names.
    Attributes:
        take_here: returns the next messages that are here, at most so many, perhaps none.
        next_here: returns the next message that is here, or None.
    """

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
        let_settle(messages, self._settling(owned))
        self._inbox.extend(messages)

    def _settling(self, owned: ProcessQueue) -> QueueSettling:
        return QueueSettling(owned, self._home, self._settle)

    def _settle(self, owned: ProcessQueue, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        if not owned.is_owned:
            return  # They are not committed, so the new owner gets them.
        if get_ident() != self._home.thread:
            self._check_home(owned, messages)
        if outcome is DONE:
            owned.pace.done += len(messages)
            owned.settle_all(messages)
        else:
            for message in messages:
                self._failed(owned, message, outcome)

    def _failed(self, owned: ProcessQueue, message: ReceivedMessage, outcome: Outcome) -> None:
        if outcome is Outcome.CANCELLED and self._inbox.is_closed:
            return  # The consumer is being left, and does not commit it.
        owned.pace.failed += 1
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
