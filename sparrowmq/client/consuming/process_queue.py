"""One queue that this consumer owns: what was pulled and is not settled yet, and where the group stands.

    ... settled | unsettled  settled  unsettled | not pulled ...
                ^ commit_offset                 ^ next_offset

Messages are settled in any order, but only one number is committed: everything before it is settled. After a
crash what lies behind the first unsettled message is delivered again, settled or not. Source: ProcessQueue, Java
4.9.8.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sparrowmq.client.arguments import check_count
from sparrowmq.client.cluster.answers import Answers
from sparrowmq.client.consuming.consume_rate import Pace
from sparrowmq.client.consuming.received import ConsumeHooks, ReceivedMessage
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import ProcessQueueState


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much of one queue may be unsettled before it is not pulled any further.

    Attributes:
        span: between the first unsettled message and the next to pull; bounds what a crash delivers again.
    Raises:
        ConfigError: one is no whole number above 0: nothing would ever come.
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span"):
            check_count(name, getattr(self, name))


class State(Enum):
    """Whether messages are handed out, and whether settling them still matters."""

    OWNED = auto()
    LEAVING = auto()  # about to be given up: what is being handled may be settled, nothing more is handed out
    DROPPED = auto()  # another member's, or reset: whatever is still being handled is delivered again


class ProcessQueue:
    """The state of one owned queue.

    Attributes:
        next_offset: what to pull next.
        begun: whether the broker has answered a pull; before that there is nothing to commit.
        pull_commits: what the pull under way commits; None when there is none that does.
        broker_id: the replica that the broker told us to pull from.
        pending: what waits here and is not offered to anybody: for orderly consumption all that has no turn yet,
            else what was withdrawn.
        handed_out, failed: for orderly consumption: what is being handled, and is to be handled again.
        is_suspended: for orderly consumption: nothing more is handed out until a failed message had its pause.
        is_paused: the program wants nothing of it now.
        locked_until: for orderly consumption: when the broker's lock must have been renewed.
        answers: where answers to its messages go.
        pace: how fast its topic is consumed.
        hooks: see its messages when they are handled.
    """

    def __init__(
        self,
        queue: MessageQueue,
        next_offset: int,
        limits: FlowLimits,
        answers: Answers | None = None,
        pace: Pace | None = None,
        hooks: Sequence[ConsumeHooks] = (),
    ) -> None:
        self.queue = queue
        self.hooks = hooks
        self.pace = pace or Pace()
        self.answers = answers
        self.next_offset = next_offset
        self.begun = False
        self.broker_id = 0
        self.pull_commits: int | None = None
        self.state = State.OWNED
        self.unsettled_bytes = 0
        self.pending: deque[ReceivedMessage] = deque()
        self.handed_out: set[ReceivedMessage] = set()
        self.failed: list[ReceivedMessage] = []
        self.is_suspended = False
        self.is_paused = False
        self.locked_until = 0.0
        self.last_pull_ms = 0
        self._limits = limits
        # Invariant: offsets rise, for pulls come in order; so the first key is the lowest.
        self._unsettled: dict[int, int] = {}
        self._room = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def is_owned(self) -> bool:
        """Whether settling still matters."""
        return self.state is not State.DROPPED

    @property
    def is_leaving(self) -> bool:
        return self.state is State.LEAVING

    @property
    def commit_offset(self) -> int:
        """Everything before it is settled."""
        return next(iter(self._unsettled), self.next_offset)

    @property
    def unsettled(self) -> int:
        """How many messages are pulled and not settled."""
        return len(self._unsettled)

    @property
    def has_room(self) -> bool:
        limits = self._limits
        return (
            len(self._unsettled) < limits.messages
            and self.unsettled_bytes < limits.size_bytes
            and self.next_offset - self.commit_offset <= limits.span
        )

    def add(self, message: ReceivedMessage) -> None:
        """A message was pulled."""
        size = message.stored.store_size
        self._unsettled[message.stored.queue_offset] = size
        self.unsettled_bytes += size

    def settle(self, message: ReceivedMessage) -> None:
        """A message is dealt with."""
        self.unsettled_bytes -= self._unsettled.pop(message.stored.queue_offset, 0)
        if not self._room.is_set() and (self.has_room or self.is_leaving):
            self._room.set()

    def leave(self) -> None:
        """Hand out nothing more, because another member is to have the queue."""
        self.state = State.LEAVING

    def stay(self) -> None:
        """Undo `leave`."""
        self.state = State.OWNED

    def drop(self) -> None:
        """Give the queue up, or forget what is being handled."""
        self.state = State.DROPPED

    def report(self, now: float) -> ProcessQueueState:
        """What an operator sees of it; `now` is the clock's monotonic time."""
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

    async def room(self) -> None:
        """Return when it may be pulled further. Cancelling leaves nothing behind."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    async def settled(self) -> None:
        """Return when everything is settled that somebody has got; for a queue that is being given up."""
        while len(self._unsettled) > len(self.pending):
            self._room.clear()
            await self._room.wait()

    def hand_out(self, portion: list[ReceivedMessage]) -> None:
        """Somebody handles these now."""
        self.handed_out.update(portion)
        self._idle.clear()

    def take_back(self, message: ReceivedMessage) -> None:
        """Nobody handles it any more."""
        self.handed_out.discard(message)
        if not self.handed_out:
            self._idle.set()

    async def idle(self) -> None:
        """Return when nothing of an orderly queue is being handled."""
        if self.handed_out:
            await self._idle.wait()
