"""Pop consumption of one master: every change of the pop state, its way to the log, and messages that come back.

    pop, ack, change ── a step ── the state in memory ── the group's offset
                          └────── the journal, at the end of the turn (state/journal.py)
    time is over     ── ready ── waiting consumers wake; after too many deliveries: %DLQ%group

The journal has each step before the offset that follows from it. So an offset in the log is never newer than the
steps, and after a crash the steps decide. Another commit, such as an operator's reset, begins the queue again; that is
a step too. A slave ignores the steps in its log. When it becomes the master, its start reads them.

Due times are kept for chunks of 64 messages, so an acknowledged message leaves no timer behind.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from time import perf_counter
from typing import Final, Protocol

from sparrowmq.broker.offsets import Offsets, is_young
from sparrowmq.broker.pop.message_groups import NO_ATTEMPT
from sparrowmq.broker.pop.pop_queue import CHUNK, NEVER_MS, InFlight, PopQueue, PopTable
from sparrowmq.broker.pop.pop_steps import AnyStep, Changed, Dropped, PopStep, RestartStep, encoded, runs_of
from sparrowmq.loop.clock import Clock, Timer
from sparrowmq.loop.slices import SLICE_S
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.pop_headers import AFTER_NEWEST, FROM_OLDEST
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_MIN_WAIT_S: Final = 0.01  # messages that are due within this time share a timer
_TOKENS: Final = (1 << 31) - 1000  # from 1000 on: Java reads the token as an int, and gives 999 a meaning
_MIN_HEAP: Final = 1000  # a heap of fewer times is not cleaned

_Times = list[tuple[int, int, PopQueue, int]]  # a heap: time, a number, the queue and its chunk


class PopJournal(Protocol):
    """The journal's part for pops."""

    def note_pops(self) -> None:
        """Write the steps since the last call."""


class PopState:
    """The pop state of a master.

    Args:
        table: the state that the log had at the start.
        journal: writes the steps; None at a slave, which makes no steps.
        young_bytes: see `is_young`.
    Attributes:
        on_ready: called with the topic and group whose messages are visible again.
        move_to_dlq: called with the queue, offset and state of a message whose time is over. Returns whether the
            message is a dead letter now, because it has no tries left.
        count_popped, count_acknowledged, expired, moved_to_dlq: the numbers of messages since the start.
    """

    def __init__(
        self,
        table: PopTable,
        store: MessageStore,
        offsets: Offsets,
        clock: Clock,
        turn: Turn,
        journal: PopJournal | None,
        young_bytes: int,
    ) -> None:
        self.table = table
        self.on_ready: Callable[[str, str], object] = lambda topic, group: None
        self.move_to_dlq: Callable[[PopQueue, int, InFlight], bool] = lambda queue, offset, cell: False
        self.count_popped = self.count_acknowledged = self.expired = self.moved_to_dlq = 0
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._turn = turn
        self._journal = journal
        self._young_bytes = young_bytes
        self._steps: list[AnyStep] = []
        self._is_write_due = False
        self._times: _Times = []
        self._most_times = _MIN_HEAP
        self._sequence = 0
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_closed = False
        if journal is not None:
            self._adjust_to_offsets()

    @property
    def invisible(self) -> int:
        """The number of messages that are with consumers, visible again, or waiting."""
        return sum(queue.count for queue in self.table)

    def queue(self, topic: str, group: str, queue_id: int, init_mode: int) -> PopQueue:
        """Return a queue's state. A new one begins at the group's offset, or else where the mode says."""
        current = self.current(topic, group, queue_id)
        if current is not None:
            return current
        offset = self._offsets.query(group, topic, queue_id)
        if offset is None:
            offset = self._first_offset(topic, queue_id, init_mode)
        self.step(RestartStep(topic, group, queue_id, offset))
        self._offsets.on_move = self._on_offset_moved
        queue = self.table.get(topic, group, queue_id)
        assert queue is not None
        return queue

    def _first_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        stored = self._store.queues.get(topic, queue_id)
        low, high = (stored.min_offset, stored.max_offset) if stored is not None else (0, 0)
        if init_mode == AFTER_NEWEST:
            return high
        if init_mode == FROM_OLDEST or is_young(self._store, topic, queue_id, self._young_bytes):
            return low
        return max(low, high - 1)  # As in Java, the last message is the first that a new group gets.

    def current(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return a queue's state; None without one. Drop the state of deleted offsets or messages."""
        queue = self.table.get(topic, group, queue_id)
        if queue is None:
            return None
        if self._offsets.query(group, topic, queue_id) is None or queue.next_offset > self._end(queue):
            self.step(Dropped(topic, group, queue_id))
            return None
        return queue

    def step(self, step: AnyStep) -> None:
        """Apply a change to the state and to the group's offset, and write it to the journal at the turn's end."""
        queue = self.table.apply(step)
        self._steps.append(step)
        if not self._is_write_due and self._journal is not None:
            self._is_write_due = True
            self._turn.write(self._write_steps)
        if not isinstance(step, Dropped):
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, queue.front)

    def take(
        self,
        queue: PopQueue,
        offsets: Sequence[int],
        next_offset: int,
        until: InFlight,
        attempt: int | None = None,
        pop: int = NO_ATTEMPT,
    ) -> None:
        """Give messages to a consumer.

        Args:
            until: has the times and the token; its attempt is not used.
            attempt: the number of this delivery; None: one more than before.
            pop: the number of the attempt id of an orderly pop.
        """
        by_attempt = _by_attempt(queue, offsets, attempt)
        place = (queue.topic, queue.group, queue.queue_id)
        times = (until.pop_ms, until.due_ms, until.token)
        # New messages go first: each step moves `next_offset` past them, and a power cut may keep only the first.
        new_first = sorted(by_attempt, key=lambda number: number != (attempt or 1)) or (1,)
        for number in new_first:
            some = by_attempt.get(number, ())
            self.step(PopStep(*place, runs_of(some), next_offset, *times, number, pop))
        self.count_popped += len(offsets)
        for number in _chunks_of(offsets):
            self._schedule(queue, number, until.due_ms)

    def hold_back(self, queue: PopQueue, offsets: Sequence[int], next_offset: int, now_ms: int) -> None:
        """Keep new messages for a later pop: they are visible, and no consumer has got them yet."""
        place = (queue.topic, queue.group, queue.queue_id)
        self.step(PopStep(*place, runs_of(offsets), next_offset, now_ms, now_ms, new_token(), 0))

    def take_back(self, queue: PopQueue, offsets: Sequence[int], pop_ms: int) -> None:
        """Make messages of an orderly pop visible again that no consumer got. The delivery does not count."""
        if self._is_closed:
            return
        place, due_ms = (queue.topic, queue.group, queue.queue_id), self._clock.now_ms()
        for offset in offsets:
            cell = queue.cell(offset)
            if cell is None:
                continue
            before = max(cell.attempt - 1, 0)
            times = (pop_ms, due_ms, new_token())
            self.step(PopStep(*place, runs_of([offset]), queue.next_offset, *times, before))
            if before:
                self._schedule(queue, offset // CHUNK, due_ms)
            elif queue.message_groups is not None:
                queue.message_groups.show(offset)
        if offsets:
            self.on_ready(queue.topic, queue.group)

    def settle(self, queue: PopQueue, offsets: Sequence[int]) -> None:
        """End the delivery of messages: a consumer acknowledged them, or they are stored elsewhere."""
        self.count_acknowledged += len(offsets)
        self.step(queue.acknowledged(offsets))
        if queue.is_orderly and queue.may_give():
            self.on_ready(queue.topic, queue.group)

    def change(self, queue: PopQueue, offset: int, pop_ms: int, due_ms: int) -> int:
        """Change the time at which a message becomes visible. Returns the token of its new handle."""
        token = new_token()
        self.step(Changed(queue.topic, queue.group, queue.queue_id, offset, pop_ms, due_ms, token))
        self._schedule(queue, offset // CHUNK, due_ms)
        return token

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Begin a queue again at an offset, if the group pops the queue. Returns whether the group does.

        Members that pop keep no offsets, so only the broker can move them.
        """
        if self.current(topic, group, queue_id) is None:
            return False
        self._begin(group, topic, queue_id, offset)
        return True

    def close(self) -> None:
        """Stop the timer: no message becomes visible again."""
        self._is_closed = True
        self._times.clear()
        self._set_timer()

    def _on_offset_moved(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Begin a queue again after a commit that was not made by `step`."""
        queue = self.table.get(topic, group, queue_id)
        if queue is not None and queue.front != offset:
            self._begin(group, topic, queue_id, offset)

    def _begin(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.step(RestartStep(topic, group, queue_id, offset))
        self.on_ready(topic, group)

    def _adjust_to_offsets(self) -> None:
        """Adjust the state from the log to the ends of the queues and to the groups' offsets."""
        for queue in self.table:
            committed, end = self._offsets.query(queue.group, queue.topic, queue.queue_id), self._end(queue)
            if queue.next_offset > end:
                queue.cut(end)
            if committed is not None and queue.front < committed <= end:
                self.step(RestartStep(queue.topic, queue.group, queue.queue_id, committed))
            self._offsets.commit(queue.group, queue.topic, queue.queue_id, queue.front)
            for number in queue.chunks:
                self._schedule(queue, number, 0)
        if self.table.groups:
            self._offsets.on_move = self._on_offset_moved

    def _end(self, queue: PopQueue) -> int:
        return self._store.queues.max_offset(queue.topic, queue.queue_id)

    def take_steps(self) -> Iterator[list[bytes]]:
        """Yield the steps since the last call, as records of the journal."""
        steps, self._steps = self._steps, []
        return encoded(steps)

    def snapshot(self) -> Iterator[list[bytes]]:
        """Yield the present state, as records of the journal.

        The state may change between two records, so log each before anything else happens. After a
        record, the journal may repeat a step that the record contains: the replay still ends in the same state.
        """
        return encoded(chain.from_iterable(map(PopQueue.snapshot, self.table)))

    def _write_steps(self) -> None:
        self._is_write_due = False
        if self._journal is not None:
            self._journal.note_pops()

    def _schedule(self, queue: PopQueue, number: int, at_ms: int) -> None:
        """Look at a chunk at this time or before."""
        chunk = queue.chunks.get(number)
        if chunk is None or chunk.at_ms <= at_ms:
            return
        chunk.at_ms = at_ms
        self._sequence += 1
        heapq.heappush(self._times, (at_ms, self._sequence, queue, number))
        if len(self._times) > self._most_times:
            self._drop_old_times()
        if self._timer is None or at_ms < self._timer_ms:
            self._set_timer()

    def _drop_old_times(self) -> None:
        self._times = [each for each in self._times if _is_valid(each)]
        heapq.heapify(self._times)
        self._most_times = max(_MIN_HEAP, 2 * len(self._times))

    def _set_timer(self, is_cut: bool = False) -> None:
        """Set the timer to the next time. `is_cut`: `_check_due` may have left due times for the next turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._times:
            self._timer_ms = self._times[0][0]
            wait_s = (self._timer_ms - self._clock.now_ms()) / 1000
            if wait_s <= 0 and is_cut:
                asyncio.get_running_loop().call_soon(self._check_due)
            else:
                self._timer = self._clock.call_later(max(_MIN_WAIT_S, wait_s), self._check_due)

    def _check_due(self) -> None:
        """Look at the due chunks, for SLICE_S at most."""
        now_ms, until_s = self._clock.now_ms(), perf_counter() + SLICE_S
        woken: dict[tuple[str, str], bool] = {}
        while self._times and self._times[0][0] <= now_ms and perf_counter() < until_s:
            due = heapq.heappop(self._times)
            _, _, queue, number = due
            if _is_valid(due):
                found = queue.check_chunk(number, now_ms)
                self._reschedule(queue, number)
                if found and self._expire(queue, found):
                    woken[queue.topic, queue.group] = True
        self._set_timer(is_cut=True)
        for topic, group in woken:
            self.on_ready(topic, group)

    def _reschedule(self, queue: PopQueue, number: int) -> None:
        chunk = queue.chunks[number]
        at_ms, chunk.at_ms = chunk.at_ms, NEVER_MS
        if at_ms < NEVER_MS:
            self._schedule(queue, number, at_ms)

    def _expire(self, queue: PopQueue, offsets: list[int]) -> bool:
        """Count messages whose time is over, and move the dead ones. Returns whether a pop may find a message."""
        dead = []
        for offset in offsets:
            cell = queue.cell(offset)
            if cell is not None and self.move_to_dlq(queue, offset, cell):
                dead.append(offset)
        self.expired += len(offsets)
        if dead:
            self.moved_to_dlq += len(dead)
            self.step(queue.acknowledged(dead))
        return queue.may_give() if queue.is_orderly else len(dead) < len(offsets)


def new_token() -> int:
    """Return a random token for a handle, so that no client can guess it."""
    return int.from_bytes(os.urandom(8)) % _TOKENS + 1000


def _by_attempt(queue: PopQueue, offsets: Sequence[int], attempt: int | None) -> Mapping[int, Sequence[int]]:
    """Group messages by the number of the delivery that begins now."""
    if not offsets:
        return {}
    if (offsets[0] if isinstance(offsets, range) else min(offsets)) >= queue.next_offset:  # new ones
        return {attempt or 1: offsets}
    found: dict[int, list[int]] = {}
    for offset in offsets:
        before = queue.cell(offset) if offset < queue.next_offset else None
        number = attempt or (1 if before is None else min(before.attempt + 1, 0xFFFF))
        found.setdefault(number, []).append(offset)
    return found


def _chunks_of(offsets: Sequence[int]) -> Iterable[int]:
    if isinstance(offsets, range):
        return range(offsets.start // CHUNK, (offsets.stop - 1) // CHUNK + 1)
    return dict.fromkeys(offset // CHUNK for offset in offsets)


def _is_valid(due: tuple[int, int, PopQueue, int]) -> bool:
    """Whether the chunk still has this time; an entry with an older time is left in the heap."""
    at_ms, _, queue, number = due
    chunk = queue.chunks.get(number)
    return chunk is not None and chunk.at_ms == at_ms
