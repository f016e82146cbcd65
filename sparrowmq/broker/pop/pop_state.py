"""Pop consumption of one master: every change of the pop state, its way to the log, and messages that come back.

    pop, ack, change ── a step ── the state in memory ── the group's offset
                          └────── the journal, at the end of the turn (journal.py)
    time is over     ── ready ── waiting consumers wake; after too many deliveries: %DLQ%group

The journal has each step before the offset that follows from it. So after a crash the steps decide. Another commit,
such as an operator's reset, begins the queue again; that is a step too. A slave ignores the steps in its log. When it
becomes the master, its start reads them.

Due times are kept for chunks of 64 messages, so an acknowledged message leaves no timer behind.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from time import perf_counter
from typing import Final, Protocol

from sparrowmq.broker.due_work import MAX_WAIT_S, DueWork
from sparrowmq.broker.offsets import Offsets, is_young
from sparrowmq.broker.pop.message_groups import NO_ATTEMPT
from sparrowmq.broker.pop.pop_queue import CHUNK, NEVER_MS, InFlight, PopQueue, PopTable
from sparrowmq.broker.pop.pop_steps import AnyStep, Changed, Dropped, PopStep, RestartStep, encoded, runs_of
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import SLICE_S
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.pop_headers import AFTER_NEWEST, FROM_OLDEST
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_MIN_WAIT_S: Final = 0.01  # messages that are due within this time are checked together
_TOKENS: Final = (1 << 31) - 1000  # from 1000 on: Java reads the token as an int, and gives 999 a meaning
_MIN_HEAP: Final = 1000  # a heap of fewer times is not cleaned

_Times = list[tuple[int, int, PopQueue, int]]  # a heap: time, a number, the queue and its chunk


class PopJournal(Protocol):
    """The journal's part for pops."""

    def note_pops(self) -> None:
        """Write the steps since the last call."""


class PopState:
    """The pop state of a master, which begins with the state that the log had at the start (`table`).

    `on_ready` gets the topic and group whose messages are visible again. `move_to_dlq` gets a message whose time is
    over, and returns whether it is a dead letter now, because it has no tries left.
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
        self._chunk_times: _Times = []
        self._max_chunk_times = _MIN_HEAP
        self._sequence = 0
        self._next_check_ms = NEVER_MS
        self.work = DueWork("popped messages", self._check_some, clock)
        if journal is not None:
            self._adjust_to_offsets()

    @property
    def invisible(self) -> int:
        return sum(queue.count for queue in self.table)

    def queue(self, topic: str, group: str, queue_id: int, init_mode: int) -> PopQueue:
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
        in_flight: InFlight,
        attempt: int | None = None,
        pop: int = NO_ATTEMPT,
    ) -> None:
        """Give messages to a consumer. `attempt` is the number of this delivery; None: one more than before."""
        by_attempt = _group_by_attempt(queue, offsets, attempt)
        queue_key = (queue.topic, queue.group, queue.queue_id)
        times = (in_flight.pop_ms, in_flight.due_ms, in_flight.token)
        # New messages go first: each step moves `next_offset` past them, and a power cut may keep only the first.
        attempts = sorted(by_attempt, key=lambda number: number != (attempt or 1)) or (1,)
        for number in attempts:
            attempt_offsets = by_attempt.get(number, ())
            self.step(PopStep(*queue_key, runs_of(attempt_offsets), next_offset, *times, number, pop))
        self.count_popped += len(offsets)
        for number in _chunks_of(offsets):
            self._schedule(queue, number, in_flight.due_ms)

    def hold_back(self, queue: PopQueue, offsets: Sequence[int], next_offset: int, now_ms: int) -> None:
        """Keep new messages for a later pop: they are visible, and no consumer has got them yet."""
        queue_key = (queue.topic, queue.group, queue.queue_id)
        self.step(PopStep(*queue_key, runs_of(offsets), next_offset, now_ms, now_ms, new_token(), 0))

    def take_back(self, queue: PopQueue, offsets: Sequence[int], pop_ms: int) -> None:
        """Make messages of an orderly pop visible again that no consumer got. The delivery does not count."""
        if self.work.is_closed:
            return
        queue_key, due_ms = (queue.topic, queue.group, queue.queue_id), self._clock.now_ms()
        for offset in offsets:
            cell = queue.cell(offset)
            if cell is None:
                continue
            former_attempt = max(cell.attempt - 1, 0)
            times = (pop_ms, due_ms, new_token())
            self.step(PopStep(*queue_key, runs_of([offset]), queue.next_offset, *times, former_attempt))
            if former_attempt:
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
        token = new_token()
        self.step(Changed(queue.topic, queue.group, queue.queue_id, offset, pop_ms, due_ms, token))
        self._schedule(queue, offset // CHUNK, due_ms)
        return token

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Begin a queue again at an offset, if the group pops it: such members keep no offsets. Returns whether."""
        if self.current(topic, group, queue_id) is None:
            return False
        self._restart(group, topic, queue_id, offset)
        return True

    def _on_offset_moved(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queue = self.table.get(topic, group, queue_id)
        if queue is not None and queue.front != offset:
            self._restart(group, topic, queue_id, offset)

    def _restart(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.step(RestartStep(topic, group, queue_id, offset))
        self.on_ready(topic, group)

    def _adjust_to_offsets(self) -> None:
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
        steps, self._steps = self._steps, []
        return encoded(steps)

    def snapshot(self) -> Iterator[list[bytes]]:
        """Yield the present state, as records of the journal. Log each before anything else happens.

        The journal may then repeat a step that a record contains: the replay still ends in the same state.
        """
        return encoded(chain.from_iterable(map(PopQueue.snapshot, self.table)))

    def _write_steps(self) -> None:
        self._is_write_due = False
        if self._journal is not None:
            self._journal.note_pops()

    def _schedule(self, queue: PopQueue, number: int, at_ms: int) -> None:
        chunk = queue.chunks.get(number)
        if chunk is None or chunk.check_at_ms <= at_ms:
            return
        chunk.check_at_ms = at_ms
        self._sequence += 1
        heapq.heappush(self._chunk_times, (at_ms, self._sequence, queue, number))
        if len(self._chunk_times) > self._max_chunk_times:
            self._chunk_times = [due for due in self._chunk_times if _is_valid(due)]
            heapq.heapify(self._chunk_times)
            self._max_chunk_times = max(_MIN_HEAP, 2 * len(self._chunk_times))
        if at_ms < self._next_check_ms:
            self._next_check_ms = at_ms
            self.work.wake()

    def _check_some(self) -> float:
        """Show messages whose time is over, and return the seconds until the next ones are due."""
        now_ms, until_s = self._clock.now_ms(), perf_counter() + SLICE_S
        woken_groups: dict[tuple[str, str], bool] = {}
        while self._chunk_times and self._chunk_times[0][0] <= now_ms and perf_counter() < until_s:
            due = heapq.heappop(self._chunk_times)
            _, _, queue, number = due
            if _is_valid(due):
                visible_offsets = queue.check_chunk(number, now_ms)
                self._reschedule(queue, number)
                if visible_offsets and self._expire(queue, visible_offsets):
                    woken_groups[queue.topic, queue.group] = True
        for topic, group in woken_groups:
            self.on_ready(topic, group)
        self._next_check_ms = self._chunk_times[0][0] if self._chunk_times else NEVER_MS
        wait_s = min((self._next_check_ms - now_ms) / 1000, MAX_WAIT_S)
        return max(wait_s, _MIN_WAIT_S) if wait_s > 0 else 0

    def _reschedule(self, queue: PopQueue, number: int) -> None:
        chunk = queue.chunks[number]
        at_ms, chunk.check_at_ms = chunk.check_at_ms, NEVER_MS
        if at_ms < NEVER_MS:
            self._schedule(queue, number, at_ms)

    def _expire(self, queue: PopQueue, offsets: list[int]) -> bool:
        """Count messages whose time is over, and move the dead ones. Returns whether a pop may find a message."""
        dead_offsets = []
        for offset in offsets:
            cell = queue.cell(offset)
            if cell is not None and self.move_to_dlq(queue, offset, cell):
                dead_offsets.append(offset)
        self.expired += len(offsets)
        if dead_offsets:
            self.moved_to_dlq += len(dead_offsets)
            self.step(queue.acknowledged(dead_offsets))
        return queue.may_give() if queue.is_orderly else len(dead_offsets) < len(offsets)


def new_token() -> int:
    return int.from_bytes(os.urandom(8)) % _TOKENS + 1000


def _group_by_attempt(queue: PopQueue, offsets: Sequence[int], attempt: int | None) -> Mapping[int, Sequence[int]]:
    if not offsets:
        return {}
    if (offsets[0] if isinstance(offsets, range) else min(offsets)) >= queue.next_offset:  # new ones
        return {attempt or 1: offsets}
    by_attempt: dict[int, list[int]] = {}
    for offset in offsets:
        former_cell = queue.cell(offset) if offset < queue.next_offset else None
        number = attempt or (1 if former_cell is None else min(former_cell.attempt + 1, 0xFFFF))
        by_attempt.setdefault(number, []).append(offset)
    return by_attempt


def _chunks_of(offsets: Sequence[int]) -> Iterable[int]:
    if isinstance(offsets, range):
        return range(offsets.start // CHUNK, (offsets.stop - 1) // CHUNK + 1)
    return dict.fromkeys(offset // CHUNK for offset in offsets)


def _is_valid(due: tuple[int, int, PopQueue, int]) -> bool:
    """Whether the chunk still has this time; an entry with an older time is left in the heap."""
    at_ms, _, queue, number = due
    chunk = queue.chunks.get(number)
    return chunk is not None and chunk.check_at_ms == at_ms
