"""One pop: choose queues and messages for a consumer, and hide the messages from others.

    queue by queue, each time from another one on:
        messages that are visible again     one by one, the oldest first; their record says how often they were given
        new messages                        with one read, from the queue's next offset on

A message comes again in its place, and no retry topic has a copy. Unlike Java, where each try after the first one costs
a record in the log. The retry topics that Apache's broker has left in a store are popped with the topic.

An orderly pop gives a message only if no message of its message group is with a consumer. So it reads ahead:

    queue     a1 b1 a2 a3 b2      a1 is with a consumer
    pop       b1 b2               a2 and a3 wait: they are visible, and given to no consumer yet

Messages without a message group share one order. If `read_ahead` messages are not done, no new ones are read. With 0,
and after plain pops that gave more, all messages of a queue share one order, as in Java.

With the attempt id of an earlier pop, an orderly pop gives the same messages again: the answer may have been lost.

A consumer gets these records changed:

    comes again            the number of deliveries before (reconsumeTimes)
    of a retry topic       the topic itself, and the receipt handle in the property POP_CK: the client could not
                           make it from the answer

A pop that finds nothing may wait. Each topic and group has a watermark that rises when a pop may find a message:

    a queue of the topic grows   ── wakes the pops of all groups that wait for the topic
    a message is visible again   ── wakes the pops of its group

A queue is watched until it grows. A pop that then finds nothing watches it again. A queue that does not exist yet is
watched as soon as it does.

A message is given 1 + retryMaxTimes times; the tries that its record counts from before count too. When the time of
the last try is over, the message moves to %DLQ%group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress, islice
from time import perf_counter
from typing import Final

from sparrowmq.broker.delayed import retry_rules
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.pop.message_groups import NO_ATTEMPT, NO_GROUP, Lanes, key_of, number_of
from sparrowmq.broker.pop.pop_queue import Cell, PopQueue
from sparrowmq.broker.pop.pop_state import Pops, new_token
from sparrowmq.broker.redirect import readdress
from sparrowmq.broker.topics import Topics
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import InvalidMessage, RemoteError, StoreError
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import VALUE_END, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record_layout import (
    BODY_SIZE_BEHIND_RECONSUME_TIMES,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    HOST_BITS_AT,
    INT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
    PREFIX,
    SHORT,
    TOPIC_SIZE_FIELD_V1,
    TOPIC_SIZE_FIELD_V2,
)
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.receipt_handle import Kind, PoppedQueue, ReceiptHandle
from sparrowmq.protocol.requests.pop_headers import FROM_OLDEST
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_reading import Read

log = logging.getLogger(__name__)

# Messages of one pop. Java's clients ask for 32 at most. With 1024, usual messages leave a client's caches.
MOST: Final = 512
ONE_BY_ONE: Final = 256  # messages of one pop that are read or changed one by one, some 10 us for each
_MOST_BYTES: Final = 256 << 10
_LONGEST_S: Final = 0.001  # then the pop gives what it has, and its caller asks again
_MOST_QUEUES: Final = 1000  # whose messages are counted, or whose place on the disk matters
_SLICE_S: Final = 0.001
_GIVES_UP: Final = -1  # the delay level of a message that comes no more
_RECORD_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class QueueIds:
    """The ids of queues, from one on around to the one before it. No copy is made: there may be 65,535."""

    ids: Sequence[int]
    first: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        return chain(self.ids[self.first :], self.ids[: self.first])


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of a consumer. `queue_ids` are in the order in which the pop looks at them."""

    topic: str
    group: str
    queue_ids: QueueIds
    count: int
    invisible_ms: int = 0
    selector: Selector = ALL
    init_mode: int = FROM_OLDEST
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
    again: int = 0  # of these, messages that were given before
    size: int = 0
    is_cut: bool = False  # whether time ended before all was looked at, and nothing was found
    looked: int = 0  # the number of queues that need not be looked at again, if time ended
    until_s: float = field(default_factory=lambda: perf_counter() + _LONGEST_S)


class Popping:
    """Pops of one broker.

    Attributes:
        read_ahead: the messages of a queue that may be with consumers, or wait for others of their message group; 0:
            orderly pops do not regard message groups.
    """

    def __init__(self, store: MessageStore, pops: Pops, broker_name: str, read_ahead: int) -> None:
        self.read_ahead = read_ahead
        self._store = store
        self._pops = pops
        self._broker_name = broker_name

    def pop(self, wish: Wish, now_ms: int, before: Popped | None = None) -> Popped:
        """Give messages to a consumer. They come behind those of the pop `before`."""
        popped = before or Popped(now_ms, new_token())
        until_s = popped.until_s
        for popped.looked, queue_id in enumerate(self._attempt_first(wish)):
            queue = self._pops.queue(wish.topic, wish.group, queue_id, wish.init_mode)
            taking, was = QueuePop(self._store, queue, wish, popped), _read_part(queue)
            if wish.is_orderly:
                self._in_order(taking, until_s)
            else:
                self._any(taking, until_s)
            if popped.count >= wish.count or popped.size >= _MOST_BYTES:
                break
            if perf_counter() > until_s:
                popped.is_cut = popped.count == 0
                popped.looked += was == _read_part(queue)
                break
        return popped

    def take_back(self, topic: str, group: str, popped: Popped) -> None:
        """Undo an orderly pop whose answer does not leave. Messages that another pop has got since stay with it."""
        for part in popped.queues:
            queue = self._pops.current(topic, group, part.queue_id)
            if queue is not None:
                self._pops.take_back(queue, queue.valid(part.offsets, popped.token), popped.pop_ms)

    def cold_read(self, wish: Wish) -> Callable[[], None] | None:
        """The function to call in a thread before a pop, if the pop would wait for the disk."""
        for queue_id in islice(wish.queue_ids, _MOST_QUEUES):
            queue = self._pops.table.get(wish.topic, wish.group, queue_id)
            if queue is None:
                continue
            begin = self._first_unread(queue) if wish.is_orderly else queue.next_offset
            if begin < self._store.queues.max_offset(wish.topic, queue_id):
                return self._store.cold_read(wish.topic, queue_id, begin, _MOST_BYTES)
        return None

    def peek(self, wish: Wish, now_ms: int) -> Popped:
        """Show the messages that a pop would give: those that are visible again, or else new ones."""
        popped = Popped(now_ms, 0)
        for popped.looked, queue_id in enumerate(wish.queue_ids):
            queue = self._pops.queue(wish.topic, wish.group, queue_id, wish.init_mode)
            taking = QueuePop(self._store, queue, wish, popped)
            taking.again(queue.visible(now_ms))
            taking.new(popped.until_s)
            taking.show()
            if popped.count >= wish.count:
                break
            if perf_counter() > popped.until_s:
                popped.is_cut = popped.count == 0
                popped.looked += 1
                break
        return popped

    def has_any(self, wish: Wish, now_ms: int) -> Popped:
        """Look whether a pop would find a message, then the count is 1. A filter does not count."""
        popped = Popped(now_ms, 0)
        for popped.looked, queue_id in enumerate(wish.queue_ids):
            popped.count = self._may_give(wish, queue_id, now_ms)
            if popped.count:
                break
            if perf_counter() > popped.until_s:
                popped.is_cut = True
                popped.looked += 1
                break
        return popped

    def _may_give(self, wish: Wish, queue_id: int, now_ms: int) -> bool:
        queue = self._pops.queue(wish.topic, wish.group, queue_id, wish.init_mode)
        if wish.is_orderly and queue.messages_of(number_of(wish.attempt_id)):
            return True
        lanes = queue.lanes
        is_blocked = wish.is_orderly and lanes is None and _is_blocked(queue, now_ms)
        is_full = lanes is not None and queue.count >= self.read_ahead
        has_new = not is_full and queue.next_offset < self._store.queues.max_offset(wish.topic, queue_id)
        has_ready = _has_ready(queue, now_ms) if lanes is None else lanes.has_ready()
        return not is_blocked and (has_new or has_ready)

    def rest(self, topic: str, group: str, queue_ids: Iterable[int]) -> int:
        """Return the number of messages that no consumer of the group got, without those that wait.

        Unlike Java, which looks at all queues, this looks at the first thousand.
        """
        total = 0
        for queue_id in islice(queue_ids, _MOST_QUEUES):
            queue = self._pops.table.get(topic, group, queue_id)
            if queue is not None:
                total += max(0, self._store.queues.max_offset(topic, queue_id) - queue.next_offset)
        return total

    def _any(self, taking: QueuePop, until_s: float) -> None:
        taking.queue.is_orderly = False
        taking.queue.end_lanes()
        taking.again(_ready(taking.queue, taking.popped.pop_ms))
        taking.new(until_s)
        self._give(taking)

    def _in_order(self, taking: QueuePop, until_s: float) -> None:
        queue, now_ms = taking.queue, taking.popped.pop_ms
        queue.is_orderly = True
        if not self._has_lanes(queue, now_ms, until_s):
            return
        same = queue.messages_of(number_of(taking.wish.attempt_id))
        if same:
            taking.again(iter(same), is_same=True)
        elif queue.lanes is not None:
            self._by_lane(taking, queue.lanes, until_s)
        elif not _is_blocked(queue, now_ms):
            taking.again(_ready(queue, now_ms))
            taking.new(until_s)
        self._give(taking, is_same=bool(same))

    def _by_lane(self, taking: QueuePop, lanes: Lanes, until_s: float) -> None:
        try:
            taking.again(lanes.ready())
            taking.new_of_free(lanes, self.read_ahead, until_s)
        except BaseException:
            taking.queue.end_lanes()  # they are read again
            raise

    def _has_lanes(self, queue: PopQueue, now_ms: int, until_s: float) -> bool:
        """Let a queue have lanes, if it should. Returns False if time ends before all messages are read."""
        lanes = queue.lanes
        if not self.read_ahead:
            queue.end_lanes()
            return True
        if lanes is None:
            if queue.count > self.read_ahead:
                return True
            lanes = queue.begin_lanes()
        while lanes.unread:
            if perf_counter() > until_s:
                return False
            offset = lanes.unread.pop()
            if queue.cell(offset) is not None:
                found = self._store.read(queue.topic, queue.queue_id, offset, 1, _MOST_BYTES)
                is_there = found.count and record.queue_offset(found.views[0]) == offset
                key = key_of(found.views[0]) if is_there else NO_GROUP
                lanes.add(offset, key, not queue.is_visible(offset, now_ms))
        return True

    def _first_unread(self, queue: PopQueue) -> int:
        """The first message that an orderly pop has to read."""
        lanes = queue.lanes
        if lanes is None:
            return queue.front if self.read_ahead else queue.next_offset
        return lanes.unread[-1] if lanes.unread else queue.next_offset

    def _attempt_first(self, wish: Wish) -> Iterable[int]:
        """The queues of a wish; before others those whose messages its attempt has got already."""
        number = number_of(wish.attempt_id) if wish.is_orderly else NO_ATTEMPT
        if number == NO_ATTEMPT:
            return wish.queue_ids
        queues = self._pops.table.groups.get((wish.topic, wish.group), {})
        first = {id for id, queue in queues.items() if queue.attempts and queue.attempts.messages(number)}
        if not first:
            return wish.queue_ids
        return chain(
            (each for each in wish.queue_ids if each in first),
            (each for each in wish.queue_ids if each not in first),
        )

    def _give(self, taking: QueuePop, is_same: bool = False) -> None:
        queue, wish, popped = taking.queue, taking.wish, taking.popped
        if taking.gone_offsets:
            self._pops.settle(queue, taking.gone_offsets)
        pop = number_of(wish.attempt_id) if wish.is_orderly else NO_ATTEMPT
        self._enter(taking)
        until = Cell(popped.pop_ms, popped.pop_ms + wish.invisible_ms, popped.token, 0, 0)
        if is_same:
            for offset in taking.offsets:
                cell = queue.cell(offset)
                assert cell is not None
                self._pops.take(queue, [offset], queue.next_offset, until, cell.attempt, pop)
        elif taking.offsets or taking.next_offset > queue.next_offset:
            self._pops.take(queue, taking.offsets, taking.next_offset, until, pop=pop)
        if wish.shown_topic:
            taking.seal(wish.shown_topic, self._broker_name)
        taking.show()

    def _enter(self, taking: QueuePop) -> None:
        """Put new messages into the lanes, and let some wait."""
        queue, fresh = taking.queue, taking.fresh
        if queue.lanes is None or not fresh:
            return
        for offset, key, is_given in fresh:
            queue.lanes.add(offset, key, is_given)
        if not all(is_given for _, _, is_given in fresh):
            # Those that are given are with the others first: a power cut may keep only this step.
            offsets = [offset for offset, _, _ in fresh]
            self._pops.hold_back(queue, offsets, taking.next_offset, taking.popped.pop_ms)


class QueuePop:
    """The messages of one queue that a pop takes.

    Attributes:
        offsets: of the messages; `gone_offsets`: of messages that come no more, because they are deleted or not wanted.
        fresh: new messages of an orderly pop: the offset, the key of the lane, and whether the message is given.
        next_offset: the first message that is not looked at.
    """

    def __init__(self, store: MessageStore, queue: PopQueue, wish: Wish, popped: Popped) -> None:
        self.queue = queue
        self.wish = wish
        self.popped = popped
        self.offsets: Sequence[int] = ()
        self.gone_offsets: list[int] = []
        self.fresh: list[tuple[int, int, bool]] = []
        self.next_offset = queue.next_offset
        self._store = store
        self._is_full = False
        self._views: list[memoryview] = []

    @property
    def _left(self) -> int:
        return self.wish.count - self.popped.count

    def again(self, offsets: Iterator[int], is_same: bool = False) -> None:
        """Take messages that were given before. The one that finds no room is put back."""
        queue, wish, popped = self.queue, self.wish, self.popped
        while self._left > 0 and not self._is_full:
            offset = next(offsets, None)
            if offset is None:
                return
            found = self._store.read(queue.topic, queue.queue_id, offset, 1, _MOST_BYTES, wish.selector)
            cell = queue.cell(offset)
            if cell is None or not found.count or record.queue_offset(found.views[0]) != offset:
                self.gone_offsets.append(offset)
            elif popped.again >= ONE_BY_ONE or (popped.count and popped.size + found.size > _MOST_BYTES):
                self._is_full = True
                queue.put_back(offset)
            else:
                popped.again += 1
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
                self._add(_offsets_of(found.views, found.count, begin, found.next_offset), found.views, found.size)
            if found.count or self.next_offset == begin or perf_counter() > until_s:
                return

    def new_of_free(self, lanes: Lanes, read_ahead: int, until_s: float) -> None:
        """Take new messages of free lanes. All messages that the queue has in these lanes are taken already."""
        queue, wish = self.queue, self.wish
        end = self._store.queues.max_offset(queue.topic, queue.queue_id)
        lanes.is_full = False
        while self._left > 0 and not self._is_full and self.next_offset < end:
            count = min(self._left, read_ahead - queue.count - len(self.fresh))
            if count <= 0:
                lanes.is_full = True
                return
            room = max(1, _MOST_BYTES - self.popped.size)
            begin = self.next_offset
            found = self._store.read(queue.topic, queue.queue_id, begin, count, room, wish.selector)
            if self.popped.count and found.size > room:
                return
            self.next_offset = max(begin, found.next_offset)
            offsets = _offsets_of(found.views, found.count, begin, found.next_offset)
            is_all = self._add_free(lanes, offsets, found)
            if (found.count and is_all) or self.next_offset == begin or perf_counter() > until_s:
                return

    def _add_free(self, lanes: Lanes, offsets: Sequence[int], read: Read) -> bool:
        """Add the messages of free lanes. Returns whether these are all."""
        records = [each for view in read.views for each in record.walk(view)]
        keys = list(map(key_of, records))
        are_free = list(map(lanes.is_free, keys))
        self.fresh += zip(offsets, keys, are_free, strict=True)
        if all(are_free):
            self._add(offsets, read.views, read.size)
            return True
        free = list(compress(records, are_free))
        self._add(list(compress(offsets, are_free)), free, sum(map(len, free)))
        return False

    def show(self) -> None:
        """Add the queue to the answer."""
        if self.offsets:
            kind = Kind.of(self.queue.topic)
            self.popped.queues.append(PoppedQueue(kind, self.queue.queue_id, self.offsets[0], self.offsets))

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

    def _add(self, offsets: Sequence[int], views: list[memoryview], size: int) -> None:
        self.offsets = [*self.offsets, *offsets] if self.offsets else offsets
        self.popped.views += views
        self._views += views
        self.popped.count += len(offsets)
        self.popped.size += size


def _ready(queue: PopQueue, now_ms: int) -> Iterator[int]:
    while (offset := queue.next_ready(now_ms)) is not None:
        yield offset


def _has_ready(queue: PopQueue, now_ms: int) -> bool:
    offset = queue.next_ready(now_ms)
    if offset is None:
        return False
    queue.put_back(offset)
    return True


def _read_part(queue: PopQueue) -> tuple[int, int]:
    """Return how far the messages of a queue are read. If a look changes nothing, it has nothing to give."""
    return queue.next_offset, -1 if queue.lanes is None else len(queue.lanes.unread)


def _is_blocked(queue: PopQueue, now_ms: int) -> bool:
    return any(not queue.is_visible(offset, now_ms) for offset in queue.live_offsets())


def _offsets_of(views: list[memoryview], count: int, begin: int, end: int) -> Sequence[int]:
    if end - begin == count:
        return range(begin, end)
    return [record.queue_offset(each) for view in views for each in record.walk(view)]


def given_again(view: memoryview, times: int) -> memoryview:
    """Return the record with so many deliveries more."""
    if times <= 0:
        return view
    raw = bytearray(view)
    at = _body_size_at(raw) - BODY_SIZE_BEHIND_RECONSUME_TIMES
    INT.pack_into(raw, at, INT.unpack_from(raw, at)[0] + times)
    return memoryview(bytes(raw))


def shown_as(view: memoryview, topic: str, handle: str) -> memoryview:
    """Return the record with another topic, and with a handle."""
    raw = bytearray(view)
    size_at = _body_size_at(raw)
    topic_at = size_at + BODY_SIZE_FIELD + INT.unpack_from(raw, size_at)[0]
    if PREFIX.unpack_from(raw)[1] == MAGIC_V1:
        properties_at = topic_at + TOPIC_SIZE_FIELD_V1 + raw[topic_at]
    else:
        properties_at = topic_at + TOPIC_SIZE_FIELD_V2 + SHORT.unpack_from(raw, topic_at)[0]
    properties = bytes(raw[properties_at + SHORT.size :])
    if properties and not properties.endswith(VALUE_END.encode()):
        properties += VALUE_END.encode()
    properties += f"{mark(Property.POP_CK)[1:]}{handle}{VALUE_END}".encode()
    name = topic.encode()
    is_short = len(name) <= MAX_TOPIC_BYTES_V1
    size = bytes((len(name),)) if is_short else SHORT.pack(len(name))
    del raw[topic_at:]
    raw += size + name + SHORT.pack(len(properties)) + properties
    PREFIX.pack_into(raw, 0, len(raw), MAGIC_V1 if is_short else MAGIC_V2)
    return memoryview(bytes(raw))


def _body_size_at(raw: bytearray) -> int:
    return BODY_SIZE_BY_HOSTS[raw[HOST_BITS_AT] >> 4 & 3]


class PopWaits:
    """The bells of one broker. A bell is a `Watermark`, for `HeldPulls`.

    Attributes:
        in_vain: by topic and group, the queues in a row in which a pop found nothing since the last ring.
    """

    def __init__(self, store: MessageStore) -> None:
        self.in_vain: Counter[tuple[str, str]] = Counter()
        self._store = store
        self._bells: dict[str, dict[str, Watermark]] = {}  # by topic and group
        # The queues that exist and will not ring, by topic. All others will.
        self._unwatched: dict[str, list[int]] = {}
        self._busy: set[str] = set()  # topics of which the next turn of the loop watches more queues
        store.queues.on_new = self._made

    def bell(self, topic: str, group: str) -> Watermark:
        bells = self._bells.setdefault(topic, {})
        bell = bells.get(group)
        if bell is None:
            bell = bells[group] = Watermark()
        return bell

    def queues_of(self, topic: str, count: int) -> list[int]:
        """Return the ids below `count` of the topic's queues that exist."""
        ids = self._store.queues.ids(topic)
        return ids if max(ids, default=0) < count else [each for each in ids if each < count]

    def watch(self, topic: str) -> None:
        """Let the next message of each queue ring. If many queues have to be watched, the bells ring at the end."""
        if topic not in self._unwatched:
            self._unwatched[topic] = self._store.queues.ids(topic)
        if self._unwatched[topic] and topic not in self._busy:
            self._watch_some(topic)

    def ring(self, topic: str, group: str) -> None:
        self.in_vain.pop((topic, group), None)
        self._go_on(topic, group)

    def ring_soon(self, topic: str, group: str) -> None:
        """Wake the pops of a group after other work, so that they go on with the next queues."""
        asyncio.get_running_loop().call_soon(self._go_on, topic, group)

    def _go_on(self, topic: str, group: str) -> None:
        bell = self._bells.get(topic, {}).get(group)
        if bell is not None:
            bell.advance(bell.value + 1)

    def _watch_some(self, topic: str) -> None:
        unwatched, end_s = self._unwatched[topic], perf_counter() + _SLICE_S
        while unwatched:
            queue = self._store.queues.get(topic, unwatched.pop())
            if queue is not None:  # else it is deleted
                self._watch(queue)
            if perf_counter() > end_s and unwatched:
                self._busy.add(topic)
                asyncio.get_running_loop().call_soon(self._watch_some, topic)
                return
        if topic in self._busy:  # a queue may have grown before it was watched
            self._busy.discard(topic)
            self._ring_all(topic)

    def _watch(self, queue: ConsumeQueue) -> None:
        end = queue.end
        end.when(end.value + 1, partial(self._grown, queue.topic, queue.queue_id))

    def _made(self, queue: ConsumeQueue) -> None:
        if queue.topic in self._unwatched:
            self._watch(queue)

    def _grown(self, topic: str, queue_id: int, error: BaseException | None) -> None:
        self._unwatched[topic].append(queue_id)
        self._ring_all(topic)

    def _ring_all(self, topic: str) -> None:
        for group in list(self._bells.get(topic, ())):
            self.ring(topic, group)


class PopDeadLetters:
    """Moves messages to the dead-letter queues of their groups."""

    def __init__(self, store: MessageStore, writer: Writer, topics: Topics, groups: Groups) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups

    def bury(self, queue: PopQueue, offset: int, cell: Cell) -> bool:
        """Move a message whose time is over, if it has no tries left. Returns whether it was moved."""
        most = self._most_retries(queue.group)
        # Records of other topics count no tries from before.
        if cell.attempt <= most and not queue.topic.startswith(RETRY):
            return False
        message = self._message(queue, offset)
        if message is None or message.reconsume_times + cell.attempt <= most:
            return False
        back = retry_rules.send_back(message, queue.group, _GIVES_UP, most)
        try:
            topic = self._topics.ensure_dlq(queue.group)
            tries = message.reconsume_times + cell.attempt
            self._writer.put(readdress(message, topic.topic_name, 0, back.properties, tries))
        except (StoreError, InvalidMessage, RemoteError) as error:
            log.warning("a dead letter of group %s cannot be stored, so it comes again: %s", queue.group, error)
            return False
        log.warning(
            "message %s is a dead letter of group %s after %d tries",
            shown(message.message_id),
            queue.group,
            tries,
        )
        return True

    def _most_retries(self, group: str) -> int:
        known = self._groups.get(group)
        return known.retry_max_times if known is not None else 16

    def _message(self, queue: PopQueue, offset: int) -> StoredMessage | None:
        found = self._store.read(queue.topic, queue.queue_id, offset, 1, _RECORD_BYTES)
        if not found.count:
            return None
        message = record.decode(found.views[0])
        return message if message.queue_offset == offset else None
