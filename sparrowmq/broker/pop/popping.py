"""One pop: choose queues and messages for a consumer, and hide the messages from others.

    queue by queue, each time from another one on:
        messages that are visible again     one by one, the oldest first; their record says how often they were given
        new messages                        with one read, from the queue's next offset on

A message comes again in its place, and no retry topic has a copy. Unlike Java, where each try after the first one costs
a record in the log. The retry topics that Apache's broker has left in a store are popped with the topic.

An orderly pop gives messages of a queue only if no message of it is with a consumer. With the attempt id of the last
one it gives the same messages again, because the answer may have been lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from sparrowmq.broker.pop.pop_queue import Cell, PopQueue
from sparrowmq.broker.pop.pops import Pops, new_token
from sparrowmq.broker.pop.shown_records import given_again, shown_as
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.receipt_handle import Kind, PoppedQueue, ReceiptHandle
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.store.message_store import MessageStore

MOST: Final = 256  # messages of one pop; Java's clients ask for 32 at most
_MOST_BYTES: Final = 256 << 10
_LONGEST_S: Final = 0.002  # then the pop gives what it has, and its caller asks again


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of a consumer. `queue_ids` are in the order in which the pop looks at them."""

    topic: str
    group: str
    queue_ids: Iterable[int]
    count: int
    invisible_ms: int = 0
    selector: Selector = ALL
    from_end: bool = False
    is_orderly: bool = False
    attempt_id: str = ""
    # The topic that the consumer sees, of messages in a retry topic of Apache's broker.
    shown_topic: str = ""


@dataclass(slots=True)
class Popped:
    """The messages of one pop."""

    pop_ms: int
    token: int  # of their handles
    queues: list[PoppedQueue] = field(default_factory=list)
    views: list[memoryview] = field(default_factory=list)
    count: int = 0
    size: int = 0
    is_cut: bool = False  # whether time ended before all was looked at, and nothing was found


class Popping:
    def __init__(self, store: MessageStore, pops: Pops, broker_name: str) -> None:
        self._store = store
        self._pops = pops
        self._broker_name = broker_name

    def pop(self, wish: Wish, now_ms: int, before: Popped | None = None) -> Popped:
        """Give messages to a consumer. They come behind those of the pop `before`."""
        popped = before or Popped(now_ms, new_token())
        until_s = perf_counter() + _LONGEST_S
        for queue_id in wish.queue_ids:
            queue = self._pops.queue(wish.topic, wish.group, queue_id, wish.from_end)
            taking = _Taking(self._store, queue, wish, popped)
            if wish.is_orderly:
                self._in_order(taking, until_s)
            else:
                self._any(taking, until_s)
            if popped.count >= wish.count or popped.size >= _MOST_BYTES:
                break
            if perf_counter() > until_s:
                popped.is_cut = popped.count == 0
                break
        return popped

    def cold_read(self, wish: Wish) -> Callable[[], None] | None:
        """The function to call in a thread before a pop, if the pop would wait for the disk."""
        for queue_id in wish.queue_ids:
            queue = self._pops.table.get(wish.topic, wish.group, queue_id)
            if queue is not None and queue.next_offset < self._store.queues.max_offset(wish.topic, queue_id):
                return self._store.cold_read(wish.topic, queue_id, queue.next_offset, _MOST_BYTES)
        return None

    def peek(self, wish: Wish, now_ms: int) -> Popped:
        """Show the messages that a pop would give: those that are visible again, or else new ones."""
        popped = Popped(now_ms, 0)
        for queue_id in wish.queue_ids:
            queue = self._pops.queue(wish.topic, wish.group, queue_id, wish.from_end)
            taking = _Taking(self._store, queue, wish, popped)
            ready = sorted(set(queue.ready))
            taking.again(offset for offset in ready if _is_visible(queue, offset, now_ms))
            taking.new(perf_counter() + _LONGEST_S)
            taking.show()
            if popped.count >= wish.count:
                break
        return popped

    def has_any(self, wish: Wish, now_ms: int) -> bool:
        """Whether a pop would find a message. A filter does not count."""
        for queue_id in wish.queue_ids:
            queue = self._pops.queue(wish.topic, wish.group, queue_id, wish.from_end)
            is_blocked = wish.is_orderly and _is_blocked(queue, now_ms)
            end = self._store.queues.max_offset(wish.topic, queue_id)
            if not is_blocked and (queue.next_offset < end or _has_ready(queue, now_ms)):
                return True
        return False

    def rest(self, topic: str, group: str, queue_ids: Iterable[int]) -> int:
        """Return the number of messages that no consumer of the group got."""
        total = 0
        for queue_id in queue_ids:
            queue = self._pops.table.get(topic, group, queue_id)
            if queue is not None:
                total += max(0, self._store.queues.max_offset(topic, queue_id) - queue.next_offset)
        return total

    def _any(self, taking: _Taking, until_s: float) -> None:
        taking.again(_ready(taking.queue, taking.popped.pop_ms))
        taking.new(until_s)
        self._give(taking)

    def _in_order(self, taking: _Taking, until_s: float) -> None:
        queue, wish = taking.queue, taking.wish
        if wish.attempt_id and wish.attempt_id == queue.attempt_id:
            same = [offset for offset in queue.attempted if queue.cell(offset) is not None]
            if same:
                taking.again(iter(same), is_same=True)
                self._give(taking, is_same=True)
                return
        if _is_blocked(queue, taking.popped.pop_ms):
            return
        taking.again(_ready(queue, taking.popped.pop_ms))
        taking.new(until_s)
        self._give(taking)
        queue.attempt_id, queue.attempted = wish.attempt_id, taking.offsets

    def _give(self, taking: _Taking, is_same: bool = False) -> None:
        queue, wish, popped = taking.queue, taking.wish, taking.popped
        if taking.gone:
            self._pops.settle(queue, taking.gone)
        until = Cell(popped.pop_ms, popped.pop_ms + wish.invisible_ms, popped.token, 0, 0)
        if is_same:
            for offset in taking.offsets:
                cell = queue.cell(offset)
                assert cell is not None
                self._pops.take(queue, [offset], queue.next_offset, until, cell.attempt)
        elif taking.offsets or taking.next_offset > queue.next_offset:
            self._pops.take(queue, taking.offsets, taking.next_offset, until)
        if wish.shown_topic:
            taking.seal(wish.shown_topic, self._broker_name)
        taking.show()


class _Taking:
    """The messages of one queue that a pop takes.

    Attributes:
        offsets: of the messages; `gone`: of messages that come no more, because they are deleted or not wanted.
        next_offset: the first message that is not looked at.
    """

    def __init__(self, store: MessageStore, queue: PopQueue, wish: Wish, popped: Popped) -> None:
        self.queue = queue
        self.wish = wish
        self.popped = popped
        self.offsets: list[int] = []
        self.gone: list[int] = []
        self.next_offset = queue.next_offset
        self._store = store
        self._is_full = False
        self._views: list[memoryview] = []

    @property
    def _left(self) -> int:
        return self.wish.count - self.popped.count

    def again(self, offsets: Iterator[int], is_same: bool = False) -> None:
        """Take messages that were given before. The one that finds no room is put back."""
        queue, wish = self.queue, self.wish
        while self._left > 0 and not self._is_full:
            offset = next(offsets, None)
            if offset is None:
                return
            found = self._store.read(queue.topic, queue.queue_id, offset, 1, _MOST_BYTES, wish.selector)
            cell = queue.cell(offset)
            if cell is None or not found.count or record.queue_offset(found.views[0]) != offset:
                self.gone.append(offset)
            elif self.popped.count and self.popped.size + found.size > _MOST_BYTES:
                self._is_full = True
                queue.put_back(offset)
            else:
                self._add([offset], [given_again(found.views[0], cell.attempt - is_same)], found.size)

    def new(self, until_s: float) -> None:
        """Take messages that no consumer got."""
        queue, wish = self.queue, self.wish
        end = self._store.queues.max_offset(queue.topic, queue.queue_id)
        while self._left > 0 and not self._is_full and self.next_offset < end:
            room = max(1, _MOST_BYTES - self.popped.size)
            begin = self.next_offset
            found = self._store.read(queue.topic, queue.queue_id, begin, self._left, room, wish.selector)
            if self.popped.count and found.size > room:
                return
            self.next_offset = max(begin, found.next_offset)
            if found.count:
                self._add(
                    _offsets_of(found.views, found.count, begin, found.next_offset), found.views, found.size
                )
            if found.count or self.next_offset == begin or perf_counter() > until_s:
                return

    def show(self) -> None:
        """Add the queue to the answer."""
        if self.offsets:
            kind = Kind.of(self.queue.topic)
            self.popped.queues.append(
                PoppedQueue(kind, self.queue.queue_id, self.offsets[0], tuple(self.offsets))
            )

    def seal(self, topic: str, broker_name: str) -> None:
        """Put the handles into the records, and let them be of another topic."""
        queue, wish, popped = self.queue, self.wish, self.popped
        if not self.offsets:
            return
        shown = []
        handle = ReceiptHandle(
            self.offsets[0],
            popped.pop_ms,
            wish.invisible_ms,
            popped.token,
            Kind.of(queue.topic),
            broker_name,
            queue.queue_id,
            0,
        )
        for view in self._views:
            for each in record.walk(view):
                offset = record.queue_offset(each)
                shown.append(shown_as(each, topic, str(handle._replace(queue_offset=offset))))
        del popped.views[len(popped.views) - len(self._views) :]
        popped.views += shown

    def _add(self, offsets: list[int], views: list[memoryview], size: int) -> None:
        self.offsets += offsets
        self.popped.views += views
        self._views += views
        self.popped.count += len(offsets)
        self.popped.size += size


def _ready(queue: PopQueue, now_ms: int) -> Iterator[int]:
    while (offset := queue.next_ready(now_ms)) is not None:
        yield offset


def _is_visible(queue: PopQueue, offset: int, now_ms: int) -> bool:
    cell = queue.cell(offset)
    return cell is not None and bool(cell.is_ready) and cell.due_ms <= now_ms


def _has_ready(queue: PopQueue, now_ms: int) -> bool:
    offset = queue.next_ready(now_ms)
    if offset is None:
        return False
    queue.put_back(offset)
    return True


def _is_blocked(queue: PopQueue, now_ms: int) -> bool:
    return any(not _is_visible(queue, offset, now_ms) for offset in queue.live_offsets())


def _offsets_of(views: list[memoryview], count: int, begin: int, end: int) -> list[int]:
    if end - begin == count:
        return list(range(begin, end))
    return [record.queue_offset(each) for view in views for each in record.walk(view)]
