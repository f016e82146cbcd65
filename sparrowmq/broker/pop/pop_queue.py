"""The state of one queue for one group: which messages are with consumers, and until when.

    0 ......... front ........................... next ........... end of the queue
      done        done, or given to a consumer          given to no consumer yet
                  (invisible, or visible again)

`front` is the group's committed offset: the first message that is not done. Messages between front and next are kept in
chunks of 64, 24 bytes for each. A chunk whose messages are all done is deleted.

Orderly pops give messages by their message group: then `message_groups` has the messages instead of `ready`
(message_groups.py). Messages that wait for others of their group are visible messages with attempt 0.

`PopTable` has the queues of all groups, as the steps of the journal have made them (pop_steps.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from struct import Struct
from typing import Final, NamedTuple

from sparrowmq.broker.pop.message_groups import MessageGroups
from sparrowmq.broker.pop.pop_steps import (
    AckStep,
    AnyStep,
    Changed,
    Dropped,
    PopStep,
    RestartStep,
    Restored,
    decoded,
    runs_of,
)

CHUNK: Final = 64  # messages
_CELL: Final = Struct("<qqIHH")  # pop_ms, due_ms, token, attempt, is_ready
_READY_AT: Final = 22  # the offset of is_ready within a cell
_READY: Final = Struct("<H")
_TOKEN: Final = Struct("<16xI4x")  # the token of a cell
NEVER_MS: Final = 1 << 62
_SPARE_ATTEMPTS: Final = 64  # attempts without messages that a queue may have, besides two for each message


class InFlight(NamedTuple):
    pop_ms: int  # when a consumer got it, or last changed its time
    due_ms: int  # when it becomes visible again
    token: int  # a part of its valid handle
    attempt: int  # the number of its deliveries
    is_ready: int  # whether it is visible again


class Chunk:
    """64 messages; `check_at_ms` says when to check for messages that become visible."""

    __slots__ = ("cells", "check_at_ms", "live")

    def __init__(self, live: int = 0, cells: bytes = b"") -> None:
        self.live = live
        self.cells = bytearray(cells or _CELL.size * CHUNK)
        self.check_at_ms = NEVER_MS


class PopQueue:
    """The state of one queue for one group.

    No consumer got `next_offset`, and `count` messages before it are not done. `ready` is a heap of the visible
    messages. It may have others too, and one message twice: `next_ready` looks at the cell, and takes each out once.
    Without `message_groups` all messages have one order, or pops are not orderly.
    """

    __slots__ = (
        "_number_heap",
        "attempts",
        "chunks",
        "count",
        "group",
        "is_orderly",
        "message_groups",
        "next_offset",
        "queue_id",
        "ready",
        "topic",
    )

    def __init__(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.count = 0
        self.chunks: dict[int, Chunk] = {}
        self.ready: list[int] = []
        # The token of an orderly pop and its messages, by the number of its attempt id. Another token: they are gone.
        self.attempts: dict[int, tuple[int, list[int]]] = {}
        self.is_orderly = False
        self.message_groups: MessageGroups | None = None
        self._number_heap: list[int] = []  # a heap of the chunks' numbers, and of some deleted ones

    @property
    def front(self) -> int:
        numbers = self._number_heap
        while numbers:
            chunk = self.chunks.get(numbers[0])
            if chunk is not None:
                return numbers[0] * CHUNK + (chunk.live & -chunk.live).bit_length() - 1
            heapq.heappop(numbers)
        return self.next_offset

    def in_flight(self) -> int:
        visible = 0
        for chunk in self.chunks.values():
            flags = chunk.cells[_READY_AT :: _CELL.size]
            if any(flags):
                visible += sum(1 for index in range(CHUNK) if flags[index] and chunk.live >> index & 1)
        return self.count - visible

    def cell(self, offset: int) -> InFlight | None:
        """Return the state of a message; None if it is done, or no consumer got it."""
        number, index = divmod(offset, CHUNK)
        chunk = self.chunks.get(number)
        if chunk is None or not chunk.live >> index & 1:
            return None
        return InFlight._make(_CELL.unpack_from(chunk.cells, index * _CELL.size))

    def is_done(self, offset: int) -> bool:
        return 0 <= offset < self.next_offset and self.cell(offset) is None

    def with_token(self, offsets: Sequence[int], token: int) -> Sequence[int]:
        """Return those of some messages that are not done and whose handle has this token."""
        if isinstance(offsets, range) and self._are_alike(offsets, token):
            return offsets
        matching, last_number, live = [], -1, 0
        tokens: list[tuple[int]] = []
        for offset in offsets:
            number = offset // CHUNK
            if number != last_number:
                chunk, last_number = self.chunks.get(number), number
                live = chunk.live if chunk is not None else 0
                tokens = list(_TOKEN.iter_unpack(chunk.cells)) if chunk is not None else []
            index = offset % CHUNK
            if live >> index & 1 and tokens[index][0] == token:
                matching.append(offset)
        return matching

    def _are_alike(self, offsets: range, token: int) -> bool:
        """Whether messages are not done, and each chunk got all of its own in one pop, with this token."""
        begin, end = offsets.start, offsets.stop
        while begin < end:
            number, index = divmod(begin, CHUNK)
            size = min(end - begin, CHUNK - index)
            chunk = self.chunks.get(number)
            if chunk is None or ~chunk.live & _bit_mask(index, size):
                return False
            cells = chunk.cells[index * _CELL.size : (index + size) * _CELL.size]
            if _TOKEN.unpack_from(cells)[0] != token or cells != cells[: _CELL.size] * size:
                return False
            begin += size
        return True

    def live_offsets(self) -> Iterator[int]:
        for number in sorted(self.chunks):
            live = self.chunks[number].live
            while live:
                yield number * CHUNK + (live & -live).bit_length() - 1
                live &= live - 1

    def next_ready(self, now_ms: int) -> int | None:
        """Take the first message that is visible again out of `ready`; None if there is none."""
        ready = self.ready
        while ready:
            offset = heapq.heappop(ready)
            while ready and ready[0] == offset:
                heapq.heappop(ready)
            cell = self.cell(offset)
            if cell is not None and cell.is_ready and cell.due_ms <= now_ms:
                return offset
        return None

    def put_back(self, offset: int) -> None:
        """Undo `next_ready`, or the last message of the groups."""
        if self.message_groups is not None:
            self.message_groups.put_back(offset)
        else:
            heapq.heappush(self.ready, offset)

    def visible(self, now_ms: int) -> Iterator[int]:
        """Yield the messages that are visible again, or wait, in their order."""
        for offset in self.live_offsets() if self.message_groups is not None else sorted(set(self.ready)):
            if self.is_visible(offset, now_ms):
                yield offset

    def is_visible(self, offset: int, now_ms: int) -> bool:
        cell = self.cell(offset)
        return cell is not None and bool(cell.is_ready) and cell.due_ms <= now_ms

    def may_give(self) -> bool:
        """Whether a waiting orderly pop may find messages."""
        return self.message_groups is None or self.message_groups.is_full or self.message_groups.has_ready()

    def begin_message_groups(self) -> MessageGroups:
        self.ready.clear()
        self.message_groups = MessageGroups(self.live_offsets())
        return self.message_groups

    def end_message_groups(self) -> None:
        if self.message_groups is not None:
            self.message_groups = None
            self.ready[:] = (offset for offset in self.live_offsets() if self._is_ready(offset))

    def of_attempt(self, attempt: int) -> Sequence[int]:
        token, offsets = self.attempts.get(attempt, (0, []))
        return self.with_token(sorted(set(offsets)), token)

    def messages_of(self, attempt: int) -> list[int]:
        """Return the messages of an attempt that may be given again, in the order of their groups."""
        some = list(self.of_attempt(attempt))
        if self.message_groups is not None:
            return self.message_groups.leading(some)
        return list(takewhile(frozenset(some).__contains__, self.live_offsets()))

    def apply(self, step: AnyStep) -> None:
        match step:
            case PopStep():
                self._take(step)
            case AckStep():
                for i in range(0, len(step.runs), 2):
                    self._clear_cells(step.runs[i], step.runs[i + 1])
            case Changed():
                cell = self.cell(step.offset)
                if cell is not None:
                    packed = _CELL.pack(step.pop_ms, step.due_ms, step.token, cell.attempt, 0)
                    self._set_cells(step.offset, 1, packed)
                    if self.message_groups is not None:
                        self.message_groups.hide(step.offset)
            case RestartStep():
                self._restart(step.next_offset)
            case Restored():
                self._restore(step)
            case Dropped():
                self._restart(self.next_offset)

    def check_chunk(self, number: int, now_ms: int) -> list[int]:
        """Find the messages of a chunk that are visible again now, and when to check again (`check_at_ms`)."""
        chunk = self.chunks.get(number)
        if chunk is None:
            return []
        visible_offsets, check_at_ms = [], NEVER_MS
        live = chunk.live
        for index, (_, due_ms, _, _, is_ready) in enumerate(_CELL.iter_unpack(chunk.cells)):
            if not live >> index & 1 or is_ready:
                continue
            if due_ms > now_ms:
                check_at_ms = min(check_at_ms, due_ms)
                continue
            _READY.pack_into(chunk.cells, index * _CELL.size + _READY_AT, 1)
            offset = number * CHUNK + index
            if self.message_groups is not None:
                self.message_groups.show(offset)
            else:
                heapq.heappush(self.ready, offset)
            visible_offsets.append(offset)
        chunk.check_at_ms = check_at_ms
        return visible_offsets

    def cut(self, end: int) -> None:
        """Forget messages from `end` on, which the log does not have."""
        for offset in [offset for offset in self.live_offsets() if offset >= end]:
            self._clear_cells(offset, 1)
        self.next_offset = min(self.next_offset, end)

    def snapshot(self) -> Iterator[AnyStep]:
        """Yield steps that make the present state. The state may change between them, by steps that are logged too."""
        place = (self.topic, self.group, self.queue_id)
        numbers, attempt_of = sorted(self.chunks), {token: attempt for attempt, (token, _) in self.attempts.items()}
        yield RestartStep(*place, self.next_offset)
        for number in numbers:
            chunk = self.chunks.get(number)
            if chunk is not None:
                pops: list[int] = []
                for index, (token,) in enumerate(_TOKEN.iter_unpack(chunk.cells)) if attempt_of else ():
                    if chunk.live >> index & 1 and token in attempt_of:
                        pops += (index, attempt_of[token])
                yield Restored(*place, number, chunk.live, bytes(chunk.cells), pops)

    def acknowledged(self, offsets: Sequence[int]) -> AckStep:
        sorted_offsets = offsets if isinstance(offsets, range) else sorted(offsets)
        return AckStep(self.topic, self.group, self.queue_id, runs_of(sorted_offsets))

    def _restart(self, next_offset: int) -> None:
        self.chunks.clear()
        self.ready.clear()
        self._number_heap.clear()
        self.count = 0
        self.attempts.clear()
        self.message_groups = None
        self.next_offset = next_offset

    def _set_cells(self, begin: int, count: int, cell: bytes) -> None:
        while count > 0:
            number, index = divmod(begin, CHUNK)
            size = min(count, CHUNK - index)
            chunk = self.chunks.get(number)
            if chunk is None:
                chunk = self.chunks[number] = Chunk()
                heapq.heappush(self._number_heap, number)
            bits = _bit_mask(index, size)
            self.count += (bits & ~chunk.live).bit_count()
            chunk.live |= bits
            chunk.cells[index * _CELL.size : (index + size) * _CELL.size] = cell * size
            begin, count = begin + size, count - size

    def _clear_cells(self, begin: int, count: int) -> None:
        while count > 0:
            number, index = divmod(begin, CHUNK)
            size = min(count, CHUNK - index)
            chunk = self.chunks.get(number)
            if chunk is not None:
                bits = _bit_mask(index, size) & chunk.live
                if self.message_groups is not None:
                    self._forget(self.message_groups, number, bits)
                chunk.live ^= bits
                self.count -= bits.bit_count()
                if not chunk.live:
                    del self.chunks[number]
            begin, count = begin + size, count - size

    def _take(self, step: PopStep) -> None:
        packed = _CELL.pack(step.pop_ms, step.due_ms, step.token, step.attempt, step.attempt == 0)
        for i in range(0, len(step.runs), 2):
            begin, count = step.runs[i : i + 2]
            self._set_cells(begin, count, packed)
            offsets = range(begin, begin + count)
            if step.pop:
                self._note_attempt(step.pop, step.token, offsets)
            if self.message_groups is not None:
                for offset in offsets if step.attempt else ():
                    self.message_groups.hide(offset)
            elif not step.attempt:
                for offset in offsets:
                    heapq.heappush(self.ready, offset)
        self.next_offset = max(self.next_offset, step.next_offset)

    def _note_attempt(self, attempt: int, token: int, offsets: Iterable[int]) -> None:
        if self.attempts.get(attempt, (0,))[0] != token:
            self.attempts[attempt] = token, []
        self.attempts[attempt][1].extend(offsets)
        if len(self.attempts) > 2 * self.count + _SPARE_ATTEMPTS:
            self.attempts = {number: pop for number, pop in self.attempts.items() if self.of_attempt(number)}

    def _forget(self, message_groups: MessageGroups, number: int, bits: int) -> None:
        while bits:
            message_groups.drop(number * CHUNK + (bits & -bits).bit_length() - 1)
            bits &= bits - 1

    def _is_ready(self, offset: int) -> bool:
        cell = self.cell(offset)
        return cell is not None and bool(cell.is_ready)

    def _restore(self, step: Restored) -> None:
        number, live, cells = step.number, step.live, step.cells
        former = self.chunks.pop(number, None)
        self.count += live.bit_count() - (former.live.bit_count() if former is not None else 0)
        self.chunks[number] = Chunk(live, cells)
        heapq.heappush(self._number_heap, number)
        for index, cell in enumerate(_CELL.iter_unpack(cells)):
            if live >> index & 1 and cell[4]:
                heapq.heappush(self.ready, number * CHUNK + index)
        for index, attempt in zip(step.pops[::2], step.pops[1::2], strict=True):
            [token] = _TOKEN.unpack_from(cells, index * _CELL.size)
            self._note_attempt(attempt, token, (number * CHUNK + index,))


def _bit_mask(index: int, size: int) -> int:
    return ((1 << size) - 1) << index


class PopTable:
    def __init__(self) -> None:
        self.groups: dict[tuple[str, str], dict[int, PopQueue]] = {}

    def __iter__(self) -> Iterator[PopQueue]:
        for queues in list(self.groups.values()):
            yield from list(queues.values())

    def get(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        queues = self.groups.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def apply(self, step: AnyStep) -> PopQueue:
        queue = self.get(step.topic, step.group, step.queue_id)
        if queue is None:
            queue = PopQueue(step.topic, step.group, step.queue_id, 0)
            self.groups.setdefault((step.topic, step.group), {})[step.queue_id] = queue
        queue.apply(step)
        if isinstance(step, Dropped):
            queues = self.groups[step.topic, step.group]
            del queues[step.queue_id]
            if not queues:
                del self.groups[step.topic, step.group]
        return queue

    def apply_all(self, encoded_steps: list[bytes]) -> None:
        for step in decoded(encoded_steps):
            self.apply(step)

    def drop_topic(self, topic: str) -> None:
        for key in [key for key in self.groups if key[0] == topic]:
            del self.groups[key]

    def drop_group(self, group: str) -> None:
        for key in [key for key in self.groups if key[1] == group]:
            del self.groups[key]
