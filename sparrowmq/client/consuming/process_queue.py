"""One queue that this consumer owns: its pulled messages that are not settled, and the offset to commit.

    ... settled | unsettled  settled  unsettled | not pulled ...
                ^ commit_offset                 ^ next_offset

Messages are settled in any order, but only one number is committed: everything before it is settled. After a crash all
messages behind the first unsettled one are delivered again. Source: ProcessQueue, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from threading import get_ident
from typing import Any

from sparrowmq.client.cluster.replies import Answers
from sparrowmq.client.consuming.consume_rate import TopicStats
from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.client.consuming.delivered_message import DONE, DeliveredMessage, Outcome, Settling
from sparrowmq.client.consuming.received_message import ConsumeHooks, ReceivedMessage
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage
from sparrowmq.protocol.requests.client_bodies import ProcessQueueState


class State(Enum):
    """The state of a queue, which decides whether messages are handed out and settled."""

    OWNED = auto()
    LEAVING = auto()  # about to be given up: messages may be settled, but none is handed out
    DROPPED = auto()  # another member's, or reset: messages that are being handled are delivered again


class ProcessQueue:
    """The state of one owned queue.

    Attributes:
        is_owned: whether settled messages are committed: it is not dropped.
        has_begun: whether the broker has answered a pull; before that there is nothing to commit.
        is_cut_off: its broker was lost, and may come back without its last messages, so nothing is committed until a
            pull is answered.
        last_offset, stored_ms: of the last message that came: its offset, and when it was stored; 0 before the first.
        pull_commits: the offset that the pull under way commits; None if it commits none.
        pending: messages that are not offered: for ordered consumption those before their turn, otherwise withdrawn
            ones.
        handed_out, failed: for ordered consumption: messages that are being handled, and those to handle again.
        is_suspended: for ordered consumption: no message is handed out during the pause of a failed one.
        locked_until: for ordered consumption: the end of the broker's lock, unless it is renewed.
    """

    def __init__(
        self,
        queue: MessageQueue,
        next_offset: int,
        limits: FlowLimits,
        answers: Answers | None = None,
        stats: TopicStats | None = None,
        hooks: Sequence[ConsumeHooks] = (),
        rules: FailureRules | None = None,
    ) -> None:
        self.queue = queue
        self.hooks = hooks
        self.rules = rules or FailureRules()
        self.stats = stats or TopicStats()
        self.answers = answers
        self.next_offset = next_offset
        self.has_begun = False
        self.is_cut_off = False
        self.last_offset = 0
        self.stored_ms = 0
        self.broker_id = 0
        self.pull_commits: int | None = None
        self.state = State.OWNED
        self.is_owned = True
        self.unsettled_bytes = 0
        self.pending: deque[ReceivedMessage] = deque()
        self.handed_out: set[ReceivedMessage] = set()
        self.failed: list[ReceivedMessage] = []
        self.is_suspended = False
        self.is_paused = False
        self.locked_until = 0.0
        self.last_pull_ms = 0
        self.pull_task: asyncio.Task[None] | None = None
        self._limits = limits
        # Invariant: offsets rise, because pulls come in order; so the first key is the lowest.
        self._unsettled: dict[int, int] = {}
        self._room = asyncio.Event()
        self._has_waiters = False  # whether `_room` has waiters, perhaps cancelled ones
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_leaving(self) -> bool:
        return self.state is State.LEAVING

    @property
    def commit_offset(self) -> int:
        """The offset up to which everything is settled."""
        return next(iter(self._unsettled), self.next_offset)

    @property
    def unsettled_count(self) -> int:
        """The number of messages that are pulled and not settled."""
        return len(self._unsettled)

    @property
    def is_full(self) -> bool:
        """Whether messages that are not settled are what leaves no room."""
        return not self.has_room

    @property
    def has_room(self) -> bool:
        limits = self._limits
        return (
            len(self._unsettled) < limits.messages
            and self.unsettled_bytes < limits.size_bytes
            and self.next_offset - self.commit_offset <= limits.span
        )

    def add(self, messages: Sequence[StoredMessage | PulledMessage]) -> None:
        sizes = [message.store_size for message in messages]
        self._unsettled.update(zip([message.queue_offset for message in messages], sizes, strict=True))
        self.unsettled_bytes += sum(sizes)

    def settle(self, message: DeliveredMessage) -> None:
        """Remove a message that was acknowledged or given back."""
        self.unsettled_bytes -= self._unsettled.pop(message.offset, 0)
        if self._has_waiters and (self.has_room or self.is_leaving):
            self._wake()

    def settle_all(self, messages: Sequence[DeliveredMessage]) -> None:
        pop = self._unsettled.pop
        self.unsettled_bytes -= sum([pop(message.offset, 0) for message in messages])
        if self._has_waiters and (self.has_room or self.is_leaving):
            self._wake()

    def _wake(self) -> None:
        self._has_waiters = False
        self._room.set()

    def stop_pulling(self) -> None:
        """Cancel the task that pulls the queue, if there is one."""
        if self.pull_task is not None:
            self.pull_task.cancel()
            self.pull_task = None

    def leave(self) -> None:
        """Hand out nothing more, because another member is to have the queue."""
        self.state = State.LEAVING

    def stay(self) -> None:
        """Undo `leave`."""
        self.state = State.OWNED
        self.is_owned = True

    def drop(self) -> None:
        """Give the queue up, or forget what is being handled."""
        self.state = State.DROPPED
        self.is_owned = False

    def report(self, now: float) -> ProcessQueueState:
        """The state for an operator; `now` is the clock's monotonic time."""
        return ProcessQueueState(
            commit_offset=self.commit_offset,
            cached_msg_min_offset=self.commit_offset,
            cached_msg_max_offset=next(reversed(self._unsettled), self.next_offset),
            cached_msg_count=len(self._unsettled),
            cached_msg_size_in_mib=self.unsettled_bytes >> 20,
            locked=self.locked_until > now,
            dropped=not self.is_owned,
            last_pull_timestamp=self.last_pull_ms,
        )

    @property
    def is_settled(self) -> bool:
        """Whether every message that was handed out is settled."""
        return len(self._unsettled) <= len(self.pending)

    def wait_for_change(self) -> Coroutine[Any, Any, bool]:
        """Wait until a message is settled and there is room; if the queue is leaving, until one is settled."""
        self._has_waiters = True
        self._room.clear()
        return self._room.wait()

    def hand_out(self, portion: list[ReceivedMessage]) -> None:
        """Note messages that are being handled."""
        self.handed_out.update(portion)
        self._idle.clear()

    def take_back(self, message: ReceivedMessage) -> None:
        """Note that a message is not being handled any more."""
        self.handed_out.discard(message)
        if not self.handed_out:
            self._idle.set()

    def wait_until_idle(self) -> Coroutine[Any, Any, bool]:
        """Wait until no message of an ordered queue is being handled."""
        return self._idle.wait()


class QueueSettling(Settling):
    """Settles messages that are delivered concurrently; `settle_otherwise` does all but acks in the client's loop."""

    __slots__ = ("_loop_affinity", "_process_queue", "_settle_otherwise")

    def __init__(
        self,
        process_queue: ProcessQueue,
        loop_affinity: LoopAffinity,
        settle_otherwise: Callable[[ProcessQueue, Sequence[Any], Outcome], None],
    ) -> None:
        self._process_queue = process_queue
        self._loop_affinity = loop_affinity
        self._settle_otherwise = settle_otherwise

    def __call__(self, message: DeliveredMessage, outcome: Outcome) -> None:
        self._settle_otherwise(self._process_queue, (message,), outcome)

    def ack(self, message: DeliveredMessage) -> None:
        process_queue = self._process_queue
        if process_queue.is_owned and get_ident() == self._loop_affinity.thread:
            process_queue.stats.done += 1
            process_queue.settle(message)
        else:
            self._settle_otherwise(process_queue, (message,), DONE)

    def ack_together(self, messages: Sequence[DeliveredMessage]) -> None:
        process_queue = self._process_queue
        if process_queue.is_owned and get_ident() == self._loop_affinity.thread:
            process_queue.stats.done += len(messages)
            process_queue.settle_all(messages)
        else:
            self._settle_otherwise(process_queue, messages, DONE)
