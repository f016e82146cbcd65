"""The messages that a consumer with mode="pop" prefetches, and those that it handles, of all queues of a topic at one
broker.

    popped -> held -> handled -> acknowledged      by a request for each message; no offset is committed
               |
               +- its time is half over: extended, for as long as the message is held

A consumer pops what its idle handlers wait for, and PREFETCH messages more, so that other members get their share. A
message that is handled for long delays nothing else. For quick handlers it prefetches more messages, while the broker
has more: as many as were settled lately within PREFETCHED_WORK_S. So a request brings many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from sparrowmq.client.cluster.replies import Answers
from sparrowmq.client.consuming.consume_rate import TopicStats
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.delivery import Inbox
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.received_message import ConsumeHooks, ReceivedMessage
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.kernel.messages import unspent_of
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ProcessQueueState

PREFETCHED_WORK_S: Final = 0.1  # the work that waits for quick handlers
PREFETCH: Final = 1  # so that no handler waits for an answer
# The share of the messages ahead that is missing when more are asked for. A whole answer of a broker of ours, 512
# messages of 1000, leaves room, so the broker makes the next answer while this one is handled.
_MISSING_SHARE_TO_ASK: Final = 1 / 3
_MAX_GROWTH: Final = 2


class Prefetch:
    """The number of messages that a consumer may pop, of all its topics and at all brokers:

        what idle handlers wait for + messages ahead - messages that wait for a handler

    `has_waiting_queues` says whether a queue waits for room. `settled_count` counts messages since the last
    measurement. `min_ahead` is the number of messages ahead of slow handlers.
    """

    def __init__(self, settings: ConsumerSettings, now: Callable[[], float]) -> None:
        self.inbox: Inbox[ReceivedMessage] = Inbox(self.wake)
        self.queues: list[PopQueue] = []
        self.has_waiting_queues = False
        self.settled_count = 0
        self.portion = settings.batch or 1
        self._is_fixed = settings.prefetch is not None
        self.min_ahead = PREFETCH if settings.prefetch is None else settings.prefetch
        self._ahead = self.min_ahead
        self._max_ahead = settings.flow.messages
        self._now = now
        self._measured_at = now()
        self._held_before = 0  # messages held at the last measurement

    @property
    def is_quick(self) -> bool:
        """Whether handlers are quick enough for more messages ahead."""
        return self._ahead > self.min_ahead

    def ahead(self, queue: PopQueue) -> int:
        """Return the number of messages that may wait for handlers: few, unless the broker has more of the queue."""
        return self._ahead if queue.has_more else self.min_ahead

    def room(self, coming_count: int, ahead: int) -> int:
        """Return the room for messages besides those that come already."""
        inbox = self.inbox
        return inbox.waiting_takers * self.portion + ahead - len(inbox) - coming_count

    def total_requested_count(self) -> int:
        return sum([queue.requested_count for queue in self.queues])

    def measure(self, coming_count: int) -> None:
        """Hold more or fewer messages ahead from now on, as quickly as they were settled since the last time.

        Several slow handlers may end together. So a short time counts only if as many messages were settled as were
        held at its begin, and those that are handled count as held ahead. `coming_count` messages do not wait yet.
        """
        now = self._now()
        elapsed_s = now - self._measured_at
        if self._is_fixed or (self.settled_count < self._held_before and elapsed_s < PREFETCHED_WORK_S):
            return
        held_count = sum([queue.unsettled_count for queue in self.queues])
        handled_count = held_count - coming_count - len(self.inbox)
        wanted_count = int(self.settled_count * PREFETCHED_WORK_S / max(elapsed_s, 1e-6)) - handled_count
        self._ahead = max(self.min_ahead, min(wanted_count, self._held_before * _MAX_GROWTH, self._max_ahead))
        self._measured_at, self.settled_count, self._held_before = now, 0, held_count

    def wake(self) -> None:
        """Let the queues go on that wait for room, if there is some. The caller's handler may be idle soon."""
        if not self.has_waiting_queues:
            return
        self.has_waiting_queues = False
        for queue in self.queues:
            if not queue.wake_with_room(self.portion):
                self.has_waiting_queues = True


class PopQueue(ProcessQueue):
    """The state of one topic at one broker. `has_more`: the broker's last answer left new messages."""

    def __init__(
        self,
        queue: MessageQueue,
        settings: ConsumerSettings,
        answers: Answers | None,
        stats: TopicStats,
        hooks: Sequence[ConsumeHooks],
        acks: AckBuffer,
        prefetch: Prefetch,
    ) -> None:
        super().__init__(queue, 0, settings.flow, answers, stats, hooks, settings.rules)
        self.requested_count = 0
        self.has_more = False
        self._acks = acks
        self._prefetch = prefetch
        prefetch.queues.append(self)

    def drop(self) -> None:
        super().drop()
        if self in self._prefetch.queues:
            self._prefetch.queues.remove(self)

    @property
    def is_full(self) -> bool:
        limits = self._limits
        return self.unsettled_count >= limits.messages or self.unsettled_bytes >= limits.size_bytes

    @property
    def has_room(self) -> bool:
        return self.has_room_beside(0)

    def has_room_beside(self, coming_count: int) -> bool:
        """Return whether more may be popped, beside so many messages that are not held yet."""
        ahead = self._prefetch.ahead(self)
        is_wanted = self._prefetch.room(coming_count, ahead) > ahead * _MISSING_SHARE_TO_ASK
        return is_wanted and not self.is_full and self.unsettled_count + coming_count < self._limits.messages

    def room_beside(self, coming_count: int) -> int:
        """Return the number of messages that the next pop asks for: one, if those in flight may use up the credit."""
        prefetch, ahead = self._prefetch, self._prefetch.ahead(self)
        count = prefetch.room(coming_count, ahead)
        if ahead == prefetch.min_ahead:
            count -= prefetch.total_requested_count() - self.requested_count
        return max(1, min(count, self._limits.messages - self.unsettled_count - coming_count))

    def wake_with_room(self, freed_count: int) -> bool:
        """Let a waiting queue go on if it has room, once so many messages more are wanted. Return if none waits."""
        if self.is_watched and (self.has_room_beside(-freed_count) or self.is_leaving):
            self._wake()
        return not self.is_watched

    def wait_for_change(self) -> Coroutine[Any, Any, bool]:
        self._prefetch.has_waiting_queues = True
        return super().wait_for_change()

    def add_popped(self, messages: Sequence[PoppedMessage]) -> None:
        self.add(messages)
        self._prefetch.measure(len(messages))

    def settle(self, message: ReceivedMessage) -> None:
        """Remove a message, and acknowledge it, unless it was given back."""
        if not self._prefetch.has_waiting_queues and self.remove(message):
            self._prefetch.settled_count += 1
            if not message._is_spent:
                self._acks.add(message)
        else:
            self.settle_all((message,))

    def settle_all(self, messages: Sequence[ReceivedMessage]) -> None:
        """Remove messages, and acknowledge those that were not given back."""
        self.forget(messages)
        self._acks.extend(unspent_of(messages))

    def forget(self, messages: Sequence[ReceivedMessage]) -> None:
        """Remove those of messages that are held: the time of some may be over."""
        self._prefetch.settled_count += self.remove_all(messages)
        self._prefetch.wake()

    def report(self, now: float) -> ProcessQueueState:
        return ProcessQueueState(
            cached_msg_count=self.unsettled_count,
            cached_msg_size_in_mib=self.unsettled_bytes >> 20,
            dropped=not self.is_owned,
            last_pull_timestamp=self.last_pull_ms,
        )


class AckBuffer:
    """Popped messages whose acknowledgements are not sent yet. The first calls `begin`, unless that raises."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin_sending = begin
        self._messages: list[Any] = []

    def add(self, message: object) -> None:
        if not self._messages:
            self._begin_sending()
        self._messages.append(message)

    def extend(self, messages: Sequence[object]) -> None:
        if messages and not self._messages:
            self._begin_sending()
        self._messages += messages

    def take(self) -> list[Any]:
        """Remove all messages, and return them."""
        messages, self._messages = self._messages, []
        return messages
