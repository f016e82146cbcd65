"""All queues of a topic at one broker, as a consumer with mode="pop" has them: the popped messages not settled yet.

    popped -> held -> handled -> acknowledged      by a request for each message; no offset is committed
               |
               +- its time is half over: extended, for as long as the message is held

A consumer pops what its idle handlers wait for, and a few messages more, so that other members get their share. A
message that is handled for long delays nothing else. Quick handlers find more messages here, while the broker has more:
as many as were settled lately within AHEAD_S. So a request brings many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from sparrowmq.client.cluster.replies import Answers
from sparrowmq.client.consuming.consume_rate import TopicStats
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.delivered_message import DeliveredMessage, unspent_of
from sparrowmq.client.consuming.delivery import Inbox
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.received_message import ConsumeHooks, ReceivedMessage
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ProcessQueueState

AHEAD_S: Final = 0.1  # the work that waits for quick handlers
PREFETCH: Final = 1  # so that no handler waits for an answer
# The share of the messages ahead that is missing when more are asked for. A whole answer of a broker of ours, 512
# messages of 1000, leaves room, so the broker makes the next answer while this one is handled.
_ASK_AT: Final = 1 / 3
_GROWTH: Final = 2


class PopCredit:
    """The number of messages that a consumer may pop, of all its topics and at all brokers:

        what idle handlers wait for + messages ahead - messages that wait for a handler

    Attributes:
        is_awaited: whether one of them waits for credit.
        settled_count: messages since the last measurement.
        least: messages ahead of slow handlers.
    """

    def __init__(self, settings: ConsumerSettings, now: Callable[[], float]) -> None:
        self.inbox: Inbox[ReceivedMessage] = Inbox(self.wake)
        self.queues: list[PopQueue] = []
        self.is_awaited = False
        self.settled_count = 0
        self.portion = settings.batch or 1
        self._is_fixed = settings.prefetch is not None
        self.least = PREFETCH if settings.prefetch is None else settings.prefetch
        self._ahead = self.least
        self._longest = settings.flow.messages
        self._now = now
        self._measured_at = now()
        self._held_before = 0  # messages held at the last measurement

    @property
    def is_quick(self) -> bool:
        """Whether handlers are quick enough for more messages ahead."""
        return self._ahead > self.least

    def ahead(self, queue: PopQueue) -> int:
        """Return the number of messages that may wait for handlers: few, unless the broker has more of the queue."""
        return self._ahead if queue.has_more else self.least

    def beside(self, coming: int, ahead: int) -> int:
        """Return the credit beside so many messages that come."""
        inbox = self.inbox
        return inbox.idle * self.portion + ahead - len(inbox) - coming

    def asked_for(self) -> int:
        """Return the number of messages that pops in flight ask for."""
        return sum([queue.asked_for for queue in self.queues])

    def measure(self, come: int) -> None:
        """Hold more or fewer messages ahead from now on, as quickly as they were settled since the last time.

        Several slow handlers may end together. So a short time counts only if as many messages were settled as were
        held at its begin, and those that are handled count as held ahead.
        """
        now = self._now()
        passed_s = now - self._measured_at
        if self._is_fixed or (self.settled_count < self._held_before and passed_s < AHEAD_S):
            return
        held = sum([queue.unsettled for queue in self.queues])
        handled = held - come - len(self.inbox)
        wanted = int(self.settled_count * AHEAD_S / max(passed_s, 1e-6)) - handled
        self._ahead = max(self.least, min(wanted, self._held_before * _GROWTH, self._longest))
        self._measured_at, self.settled_count, self._held_before = now, 0, held

    def wake(self) -> None:
        """Let the queues go on that wait for credit, if there is some. The caller's handler may be idle soon."""
        if not self.is_awaited:
            return
        self.is_awaited = False
        for queue in self.queues:
            if not queue.wake_with_room(self.portion):
                self.is_awaited = True


class PopQueue(ProcessQueue):
    """The state of one topic at one broker.

    Attributes:
        asked_for: messages, by the pop in flight.
        has_more: whether the broker's last answer left new messages.
    """

    def __init__(
        self,
        queue: MessageQueue,
        settings: ConsumerSettings,
        answers: Answers | None,
        stats: TopicStats,
        hooks: Sequence[ConsumeHooks],
        acks: AckBuffer,
        credit: PopCredit,
    ) -> None:
        super().__init__(queue, 0, settings.flow, answers, stats, hooks, settings.rules)
        self.asked_for = 0
        self.has_more = False
        self._acks = acks
        self._credit = credit
        self._sizes: dict[Any, int] = {}  # bytes by message
        credit.queues.append(self)

    def drop(self) -> None:
        super().drop()
        if self in self._credit.queues:
            self._credit.queues.remove(self)

    @property
    def is_full(self) -> bool:
        limits = self._limits
        return len(self._sizes) >= limits.messages or self.unsettled_bytes >= limits.size_bytes

    @property
    def has_room(self) -> bool:
        return self.has_room_beside(0)

    def has_room_beside(self, coming: int) -> bool:
        """Return whether more may be popped, beside so many messages that are not held yet."""
        ahead = self._credit.ahead(self)
        is_credited = self._credit.beside(coming, ahead) > ahead * _ASK_AT
        return is_credited and not self.is_full and len(self._sizes) + coming < self._limits.messages

    def room_beside(self, coming: int) -> int:
        """Return the number of messages that the next pop asks for: one, if those in flight may use up the credit."""
        credit, ahead = self._credit, self._credit.ahead(self)
        room = credit.beside(coming, ahead)
        if ahead == credit.least:
            room -= credit.asked_for() - self.asked_for
        return max(1, min(room, self._limits.messages - len(self._sizes) - coming))

    def wake_with_room(self, freed: int) -> bool:
        """Let a waiting queue go on if it has room, once so many messages more are wanted. Return if none waits."""
        if self._is_awaited and (self.has_room_beside(-freed) or self.is_leaving):
            self._wake()
        return not self._is_awaited

    def changed(self) -> Coroutine[Any, Any, bool]:
        self._credit.is_awaited = True
        return super().changed()

    @property
    def unsettled(self) -> int:
        return len(self._sizes)

    @property
    def unsettled_messages(self) -> list[PoppedMessage]:
        return list(self._sizes)

    def hold(self, messages: Sequence[PoppedMessage]) -> None:
        sizes = [message.store_size for message in messages]
        self._sizes.update(zip(messages, sizes, strict=True))
        self.unsettled_bytes += sum(sizes)
        self._credit.measure(len(messages))

    def settle(self, message: DeliveredMessage) -> None:
        """Remove a message, and acknowledge it, unless it was given back."""
        size = self._sizes.get(message)
        if size is not None and not self._credit.is_awaited:
            del self._sizes[message]
            self._credit.settled_count += 1
            self.unsettled_bytes -= size
            if not message._is_spent:
                self._acks.add(message)
        else:
            self.settle_all((message,))

    def settle_all(self, messages: Sequence[DeliveredMessage]) -> None:
        """Remove messages, and acknowledge those that were not given back."""
        self.forget(messages)
        self._acks.extend(unspent_of(messages))

    def forget(self, messages: Iterable[DeliveredMessage]) -> None:
        """Remove those of messages that are held: the time of some may be over."""
        take = self._sizes.pop
        sizes = [size for message in messages if (size := take(message, None)) is not None]
        self._credit.settled_count += len(sizes)
        self.unsettled_bytes -= sum(sizes)
        self._credit.wake()

    def report(self, now: float) -> ProcessQueueState:
        """The state for an operator. There are no offsets."""
        return ProcessQueueState(
            cached_msg_count=len(self._sizes),
            cached_msg_size_in_mib=self.unsettled_bytes >> 20,
            dropped=not self.is_owned,
            last_pull_timestamp=self.last_pull_ms,
        )


class AckBuffer:
    """Popped messages whose acknowledgements are not sent yet.

    Args:
        begin: starts the task that takes them, when the first one comes. If it raises, none is taken.
    """

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin
        self._messages: list[Any] = []

    def add(self, message: object) -> None:
        if not self._messages:
            self._begin()
        self._messages.append(message)

    def extend(self, messages: Sequence[object]) -> None:
        if messages and not self._messages:
            self._begin()
        self._messages += messages

    def take(self) -> list[Any]:
        """Remove all messages, and return them."""
        messages, self._messages = self._messages, []
        return messages
