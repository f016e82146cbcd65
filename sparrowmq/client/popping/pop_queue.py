"""All queues of a topic at one broker, as a consumer with mode="pop" has them: the popped messages not settled yet.

    popped -> held -> handled -> acknowledged      by a request for each message; no offset is committed
               |
               +- its time is half over: extended, for as long as the message is held

A member pops only while it holds few messages, so that the others get their share: twice as many as it has handlers, or
as many as they have lately handled within AHEAD_S. So quick handlers find many messages with one request. A message
that is handled for long takes one of these places and stops nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sparrowmq.client.cluster.answers import Answers
from sparrowmq.client.consuming.consume_rate import Pace
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, FlowLimits
from sparrowmq.client.consuming.delivered import DeliveredMessage
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.received import ConsumeHooks
from sparrowmq.client.popping.ack_buffer import AckBuffer
from sparrowmq.client.popping.message_runs import unspent_of
from sparrowmq.client.popping.pop_requests import MOST_POPPED
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ProcessQueueState

_PER_HANDLER: Final = 2  # messages held for each handler
AHEAD_S: Final = 0.1  # of work that is held
# The share of what may be held up to which more is asked for. A whole answer of a broker of ours, 512 messages of 1000,
# leaves room, so the broker makes the next answer while this one is handled.
_ASK_AT: Final = 2 / 3
_GROWTH: Final = 2


class PopQueue(ProcessQueue):
    """The state of one topic at one broker.

    Args:
        acks: gets the messages to acknowledge.
        now: the time of the clock.
    """

    def __init__(
        self,
        queue: MessageQueue,
        settings: ConsumerSettings,
        answers: Answers | None,
        pace: Pace,
        hooks: Sequence[ConsumeHooks],
        acks: AckBuffer,
        now: Callable[[], float],
    ) -> None:
        most = min(settings.flow.messages, max(MOST_POPPED, settings.concurrency * _PER_HANDLER))
        limits = FlowLimits(most, settings.flow.size_bytes)
        super().__init__(queue, 0, limits, answers, pace, hooks, settings.rules)
        self._acks = acks
        self._now = now
        self._held: dict[Any, int] = {}  # bytes by message
        self._longest = settings.flow.messages
        self._most = most
        self._settled = 0
        self._held_at = now()

    @property
    def has_room(self) -> bool:
        return self.has_room_beside(0)

    def has_room_beside(self, coming: int) -> bool:
        """Return whether more may be popped, beside so many messages that are not held yet."""
        limits, count = self._limits, len(self._held) + coming
        is_few = count < limits.messages or count <= self._most * _ASK_AT
        return is_few and self.unsettled_bytes < limits.size_bytes

    def room_beside(self, coming: int) -> int:
        """Return the number of messages that the next pop asks for."""
        return max(MOST_POPPED, self._most - len(self._held) - coming)

    @property
    def unsettled(self) -> int:
        return len(self._held)

    @property
    def held(self) -> list[PoppedMessage]:
        return list(self._held)

    def hold(self, messages: Sequence[PoppedMessage]) -> None:
        self._adapt()
        sizes = [message.store_size for message in messages]
        self._held.update(zip(messages, sizes, strict=True))
        self.unsettled_bytes += sum(sizes)

    def _adapt(self) -> None:
        """Hold more or fewer messages from now on, as quickly as they were settled since the last pop."""
        now = self._now()
        wanted = int(self._settled * AHEAD_S / max(now - self._held_at, 1e-6))
        self._held_at, self._settled = now, 0
        self._most = max(self._limits.messages, min(wanted, self._most * _GROWTH, self._longest))

    def settle(self, message: DeliveredMessage) -> None:
        """Remove a message, and acknowledge it, unless it was given back."""
        size = self._held.get(message)
        if size is not None and not self._is_awaited:
            del self._held[message]
            self._settled += 1
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
        take = self._held.pop
        sizes = [size for message in messages if (size := take(message, None)) is not None]
        self._settled += len(sizes)
        self.unsettled_bytes -= sum(sizes)
        if self._is_awaited and (self.has_room or self.is_leaving):
            self._wake()

    def report(self, now: float) -> ProcessQueueState:
        """The state for an operator. There are no offsets."""
        return ProcessQueueState(
            cached_msg_count=len(self._held),
            cached_msg_size_in_mib=self.unsettled_bytes >> 20,
            dropped=not self.is_owned,
            last_pull_timestamp=self.last_pull_ms,
        )
