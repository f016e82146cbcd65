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
from sparrowmq.client.consuming.received_message import ConsumeHooks, Outcome, ReceivedMessage, Settling
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.kernel.messages import UnsettledMessages
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ProcessQueueState


class State(Enum):
    """The state of a queue, which decides whether messages are handed out and settled."""

    OWNED = auto()
    LEAVING = auto()  # about to be given up: messages may be settled, but none is handed out
    DROPPED = auto()  # another member's, or reset: messages that are being handled are delivered again


class ProcessQueue(UnsettledMessages):
    """The state of one owned queue.

    Attributes:
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
        super().__init__(next_offset, stats or TopicStats())
        self.queue = queue
        self.hooks = hooks
        self.rules = rules or FailureRules()
        self.answers = answers
        self.has_begun = False
        self.is_cut_off = False
        self.last_offset = 0
        self.stored_ms = 0
        self.broker_id = 0
        self.pull_commits: int | None = None
        self.state = State.OWNED
        self.pending: deque[ReceivedMessage] = deque()
        self.handed_out: set[ReceivedMessage] = set()
        self.failed: list[ReceivedMessage] = []
        self.is_suspended = False
        self.is_paused = False
        self.locked_until = 0.0
        self.last_pull_ms = 0
        self.pull_task: asyncio.Task[None] | None = None
        self._limits = limits
        self._room = asyncio.Event()  # `is_watched` says whether it has waiters, perhaps cancelled ones
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_leaving(self) -> bool:
        return self.state is State.LEAVING

    @property
    def is_full(self) -> bool:
        """Whether messages that are not settled are what leaves no room."""
        return not self.has_room

    @property
    def has_room(self) -> bool:
        limits = self._limits
        return (
            self.unsettled_count < limits.messages
            and self.unsettled_bytes < limits.size_bytes
            and self.next_offset - self.commit_offset <= limits.span
        )

    def settle(self, message: ReceivedMessage) -> None:
        """Remove a message that was acknowledged or given back."""
        self.settle_all((message,))

    def settle_all(self, messages: Sequence[ReceivedMessage]) -> None:
        self.remove_all(messages)
        if self.is_watched and (self.has_room or self.is_leaving):
            self._wake()

    def _wake(self) -> None:
        self.is_watched = False
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
            cached_msg_max_offset=self.last_unsettled_offset,
            cached_msg_count=self.unsettled_count,
            cached_msg_size_in_mib=self.unsettled_bytes >> 20,
            locked=self.locked_until > now,
            dropped=not self.is_owned,
            last_pull_timestamp=self.last_pull_ms,
        )

    @property
    def is_settled(self) -> bool:
        """Whether every message that was handed out is settled."""
        return self.unsettled_count <= len(self.pending)

    def wait_for_change(self) -> Coroutine[Any, Any, bool]:
        """Wait until a message is settled and there is room; if the queue is leaving, until one is settled."""
        self.is_watched = True
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

    def __call__(self, message: ReceivedMessage, outcome: Outcome) -> None:
        process_queue = self._process_queue
        if outcome is Outcome.DONE and self._is_at_home(process_queue):
            process_queue.stats.done += 1
            process_queue.settle(message)
        else:
            self._settle_otherwise(process_queue, (message,), outcome)

    def ack_together(self, messages: Sequence[ReceivedMessage]) -> None:
        process_queue = self._process_queue
        if self._is_at_home(process_queue):
            process_queue.stats.done += len(messages)
            process_queue.settle_all(messages)
        else:
            self._settle_otherwise(process_queue, messages, Outcome.DONE)

    def _is_at_home(self, process_queue: ProcessQueue) -> bool:
        return process_queue.is_owned and get_ident() == self._loop_affinity.thread
