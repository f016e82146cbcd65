"""One pop: choose queues and messages for a consumer, and hide the messages from others.

    queue by queue, each time from another one on:
        messages that are visible again     one by one, the oldest first; their record says how often they were given
        new messages                        with one read, from the queue's next offset on

A message comes again in its place. Unlike Java, where each try after the first one costs a record in the log. The retry
topics that Apache's broker has left in a store are popped with the topic.

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

A queue is watched until it grows. A pop that then finds nothing watches it again.

A message is given 1 + retryMaxTimes times; the tries that its record counts from before count too. Then it moves to
%DLQ%group.
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
from sparrowmq.broker.pop.message_groups import NO_ATTEMPT, NO_GROUP, MessageGroups, key_of, number_of
from sparrowmq.broker.pop.pop_queue import InFlight, PopQueue
from sparrowmq.broker.pop.pop_state import PopState, new_token
from sparrowmq.broker.redirect import readdress
from sparrowmq.broker.topics import Topics
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import InvalidMessage, RemoteError, StoreError
from sparrowmq.kernel.record_layout import (
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
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import VALUE_END, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.receipt_handle import Kind, PoppedQueue, ReceiptHandle
from sparrowmq.protocol.requests.pop_headers import FROM_OLDEST
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_reading import Read

log = logging.getLogger(__name__)

# Messages of one pop. Java's clients ask for 32 at most. With 1024, usual messages leave a client's caches.
MAX_MESSAGES: Final = 512
MAX_SINGLE_READS: Final = 256  # messages of one pop that are read or changed one by one, some 10 us for each
_MAX_BYTES: Final = 256 << 10
_TIME_LIMIT_S: Final = 0.001  # then the pop gives what it has, and its caller asks again
_MAX_QUEUES: Final = 1000  # whose messages are counted, or whose place on the disk matters
_SLICE_S: Final = 0.001
_GIVE_UP_LEVEL: Final = -1  # the delay level of a message that comes no more
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
class PopRequest:
    """The request of a consumer. `queue_ids` are in the order in which the pop looks at them."""

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
    visible_topic: str = ""


@dataclass(slots=True)
class PopResult:
    pop_ms: int
    token: int  # a part of the messages' handles
    queues: list[PoppedQueue] = field(default_factory=list)
    views: list[memoryview] = field(default_factory=list)
    count: int = 0
    redelivered: int = 0  # of these, messages that a consumer got before
    size: int = 0
    is_out_of_time: bool = False  # whether time ended before all queues were checked, and nothing was found
    checked_queues: int = 0  # the number of queues that need no other check, if time ended
    until_s: float = field(default_factory=lambda: perf_counter() + _TIME_LIMIT_S)


class Popper:
    """Pops of one broker.

    `read_ahead` messages of a queue may be with consumers, or wait; with 0, orderly pops do not regard message groups.
    """

    def __init__(self, store: MessageStore, pops: PopState, broker_name: str, read_ahead: int) -> None:
        self.read_ahead = read_ahead
        self._store = store
        self._pops = pops
        self._broker_name = broker_name

    def pop(self, request: PopRequest, now_ms: int, earlier_result: PopResult | None = None) -> PopResult:
        """Give messages to a consumer. They come behind those of the pop `earlier_result`."""
        result = earlier_result or PopResult(now_ms, new_token())
        until_s = result.until_s
        for result.checked_queues, queue_id in enumerate(self._queues_of_attempt_first(request)):
            queue = self._pops.queue(request.topic, request.group, queue_id, request.init_mode)
            queue_pop, position_before = QueuePop(self._store, queue, request, result), _read_position(queue)
            if request.is_orderly:
                self._pop_in_order(queue_pop, until_s)
            else:
                self._pop_any(queue_pop, until_s)
            if result.count >= request.count or result.size >= _MAX_BYTES:
                break
            if perf_counter() > until_s:
                result.is_out_of_time = result.count == 0
                result.checked_queues += position_before == _read_position(queue)
                break
        return result

    def take_back(self, topic: str, group: str, result: PopResult) -> None:
        """Undo an orderly pop whose answer does not leave. Messages that another pop has got since stay with it."""
        for part in result.queues:
            queue = self._pops.current(topic, group, part.queue_id)
            if queue is not None:
                self._pops.take_back(queue, queue.with_token(part.offsets, result.token), result.pop_ms)

    def cold_read(self, request: PopRequest) -> Callable[[], None] | None:
        for queue_id in islice(request.queue_ids, _MAX_QUEUES):
            queue = self._pops.table.get(request.topic, request.group, queue_id)
            if queue is None:
                continue
            begin = self._first_unread(queue) if request.is_orderly else queue.next_offset
            if begin < self._store.queues.max_offset(request.topic, queue_id):
                return self._store.cold_read(request.topic, queue_id, begin, _MAX_BYTES)
        return None

    def peek(self, request: PopRequest, now_ms: int) -> PopResult:
        """Show the messages that a pop would give: those that are visible again, or else new ones."""
        result = PopResult(now_ms, 0)
        for queue in self._queues(request, result):
            queue_pop = QueuePop(self._store, queue, request, result)
            queue_pop.add_visible(queue.visible(now_ms))
            queue_pop.add_new(result.until_s)
            queue_pop.add_to_result()
            if result.count >= request.count:
                break
        return result

    def has_any(self, request: PopRequest, now_ms: int) -> PopResult:
        """Check whether a pop would find a message: then the count is 1. A filter does not count."""
        result = PopResult(now_ms, 0)
        for queue in self._queues(request, result):
            result.count = self._may_give(request, queue, now_ms)
            if result.count:
                break
        return result

    def _queues(self, request: PopRequest, result: PopResult) -> Iterator[PopQueue]:
        """Yield the queues to look at, until time ends. Note in the result how many of them there were."""
        for result.checked_queues, queue_id in enumerate(request.queue_ids):
            yield self._pops.queue(request.topic, request.group, queue_id, request.init_mode)
            if perf_counter() > result.until_s:
                result.is_out_of_time = result.count == 0
                result.checked_queues += 1
                break

    def _may_give(self, request: PopRequest, queue: PopQueue, now_ms: int) -> bool:
        if request.is_orderly and queue.messages_of(number_of(request.attempt_id)):
            return True
        message_groups = queue.message_groups
        is_blocked = request.is_orderly and message_groups is None and _is_blocked(queue, now_ms)
        is_full = message_groups is not None and queue.count >= self.read_ahead
        has_new = not is_full and queue.next_offset < self._store.queues.max_offset(request.topic, queue.queue_id)
        has_ready = _has_ready(queue, now_ms) if message_groups is None else message_groups.has_ready()
        return not is_blocked and (has_new or has_ready)

    def count_unread(self, topic: str, group: str, queue_ids: Iterable[int]) -> int:
        """Return the number of messages that no consumer of the group got. Unlike Java, of 1000 queues at most."""
        total = 0
        for queue_id in islice(queue_ids, _MAX_QUEUES):
            queue = self._pops.table.get(topic, group, queue_id)
            if queue is not None:
                total += max(0, self._store.queues.max_offset(topic, queue_id) - queue.next_offset)
        return total

    def _pop_any(self, queue_pop: QueuePop, until_s: float) -> None:
        queue_pop.queue.is_orderly = False
        queue_pop.queue.end_message_groups()
        queue_pop.add_visible(_ready(queue_pop.queue, queue_pop.result.pop_ms))
        queue_pop.add_new(until_s)
        self._deliver(queue_pop)

    def _pop_in_order(self, queue_pop: QueuePop, until_s: float) -> None:
        queue, now_ms = queue_pop.queue, queue_pop.result.pop_ms
        queue.is_orderly = True
        if not self._has_message_groups(queue, now_ms, until_s):
            return
        attempt_offsets = queue.messages_of(number_of(queue_pop.request.attempt_id))
        if attempt_offsets:
            queue_pop.add_visible(iter(attempt_offsets), is_same=True)
        elif queue.message_groups is not None:
            self._pop_by_message_group(queue_pop, queue.message_groups, until_s)
        elif not _is_blocked(queue, now_ms):
            queue_pop.add_visible(_ready(queue, now_ms))
            queue_pop.add_new(until_s)
        self._deliver(queue_pop, is_same=bool(attempt_offsets))

    def _pop_by_message_group(self, queue_pop: QueuePop, message_groups: MessageGroups, until_s: float) -> None:
        try:
            queue_pop.add_visible(message_groups.ready())
            queue_pop.add_new(until_s, message_groups, self.read_ahead)
        except BaseException:
            queue_pop.queue.end_message_groups()  # they are read again
            raise

    def _has_message_groups(self, queue: PopQueue, now_ms: int, until_s: float) -> bool:
        """Order a queue by message groups, if it should be. Returns False if time ends before all messages are read."""
        message_groups = queue.message_groups
        if not self.read_ahead:
            queue.end_message_groups()
            return True
        if message_groups is None:
            if queue.count > self.read_ahead:
                return True
            message_groups = queue.begin_message_groups()
        while message_groups.unread:
            if perf_counter() > until_s:
                return False
            offset = message_groups.unread.pop()
            if queue.cell(offset) is not None:
                read = self._store.read(queue.topic, queue.queue_id, offset, 1, _MAX_BYTES)
                is_there = read.count and record.queue_offset(read.views[0]) == offset
                key = key_of(read.views[0]) if is_there else NO_GROUP
                message_groups.add(offset, key, not queue.is_visible(offset, now_ms))
        return True

    def _first_unread(self, queue: PopQueue) -> int:
        message_groups = queue.message_groups
        if message_groups is None:
            return queue.front if self.read_ahead else queue.next_offset
        return message_groups.unread[-1] if message_groups.unread else queue.next_offset

    def _queues_of_attempt_first(self, request: PopRequest) -> Iterable[int]:
        number = number_of(request.attempt_id) if request.is_orderly else NO_ATTEMPT
        if number == NO_ATTEMPT:
            return request.queue_ids
        queues = self._pops.table.groups.get((request.topic, request.group), {})
        own_ids = {queue_id for queue_id, queue in queues.items() if queue.of_attempt(number)}
        if not own_ids:
            return request.queue_ids
        return chain(
            (queue_id for queue_id in request.queue_ids if queue_id in own_ids),
            (queue_id for queue_id in request.queue_ids if queue_id not in own_ids),
        )

    def _deliver(self, queue_pop: QueuePop, is_same: bool = False) -> None:
        queue, request, result = queue_pop.queue, queue_pop.request, queue_pop.result
        if queue_pop.dropped_offsets:
            self._pops.settle(queue, queue_pop.dropped_offsets)
        pop = number_of(request.attempt_id) if request.is_orderly else NO_ATTEMPT
        self._add_to_groups(queue_pop)
        until = InFlight(result.pop_ms, result.pop_ms + request.invisible_ms, result.token, 0, 0)
        if is_same:
            for offset in queue_pop.offsets:
                cell = queue.cell(offset)
                assert cell is not None
                self._pops.take(queue, [offset], queue.next_offset, until, cell.attempt, pop)
        elif queue_pop.offsets or queue_pop.next_offset > queue.next_offset:
            self._pops.take(queue, queue_pop.offsets, queue_pop.next_offset, until, pop=pop)
        if request.visible_topic:
            queue_pop.add_handles(request.visible_topic, self._broker_name)
        queue_pop.add_to_result()

    def _add_to_groups(self, queue_pop: QueuePop) -> None:
        queue, new_messages = queue_pop.queue, queue_pop.new_messages
        if queue.message_groups is None or not new_messages:
            return
        for offset, key, is_delivered in new_messages:
            queue.message_groups.add(offset, key, is_delivered)
        if not all(is_delivered for _, _, is_delivered in new_messages):
            # Those that are given are with the others first: a power cut may keep only this step.
            offsets = [offset for offset, _, _ in new_messages]
            self._pops.hold_back(queue, offsets, queue_pop.next_offset, queue_pop.result.pop_ms)


class QueuePop:
    """The messages of one queue that a pop takes, from `next_offset` on.

    `dropped_offsets` come no more. `new_messages` of an orderly pop: the offset, the key of the group, whether it is
    given.
    """

    def __init__(self, store: MessageStore, queue: PopQueue, request: PopRequest, result: PopResult) -> None:
        self.queue = queue
        self.request = request
        self.result = result
        self.offsets: Sequence[int] = ()
        self.dropped_offsets: list[int] = []
        self.new_messages: list[tuple[int, int, bool]] = []
        self.next_offset = queue.next_offset
        self._store = store
        self._is_full = False
        self._views: list[memoryview] = []

    @property
    def _remaining(self) -> int:
        return self.request.count - self.result.count

    def add_visible(self, offsets: Iterator[int], is_same: bool = False) -> None:
        """Take messages that were given before. The one that finds no room is put back."""
        queue, request, result = self.queue, self.request, self.result
        while self._remaining > 0 and not self._is_full:
            offset = next(offsets, None)
            if offset is None:
                return
            read = self._store.read(queue.topic, queue.queue_id, offset, 1, _MAX_BYTES, request.selector)
            cell = queue.cell(offset)
            if cell is None or not read.count or record.queue_offset(read.views[0]) != offset:
                self.dropped_offsets.append(offset)
            elif result.redelivered >= MAX_SINGLE_READS or (result.count and result.size + read.size > _MAX_BYTES):
                self._is_full = True
                queue.put_back(offset)
            else:
                result.redelivered += 1
                self._add([offset], [with_deliveries(read.views[0], cell.attempt - is_same)], read.size)

    def add_new(self, until_s: float, message_groups: MessageGroups | None = None, read_ahead: int = 0) -> None:
        """Take messages that no consumer got; with message groups only those of free groups."""
        queue, request = self.queue, self.request
        end = self._store.queues.max_offset(queue.topic, queue.queue_id)
        if message_groups is not None:
            message_groups.is_full = False
        while self._remaining > 0 and not self._is_full and self.next_offset < end:
            count = self._remaining
            if message_groups is not None:
                count = min(count, read_ahead - queue.count - len(self.new_messages))
                if count <= 0:
                    message_groups.is_full = True
                    return
            room = max(1, _MAX_BYTES - self.result.size)
            begin = self.next_offset
            read = self._store.read(queue.topic, queue.queue_id, begin, count, room, request.selector)
            if self.result.count and read.size > room:
                return
            self.next_offset = max(begin, read.next_offset)
            is_done = read.count > 0
            if read.count:
                offsets = _offsets_of(read.views, read.count, begin, read.next_offset)
                if message_groups is None:
                    self._add(offsets, read.views, read.size)
                else:
                    is_done = self._add_of_free_groups(message_groups, offsets, read)
            if is_done or self.next_offset == begin or perf_counter() > until_s:
                return

    def _add_of_free_groups(self, message_groups: MessageGroups, offsets: Sequence[int], read: Read) -> bool:
        """Add the messages of free groups. Returns whether these are all."""
        records = [record_view for view in read.views for record_view in record.walk(view)]
        keys = list(map(key_of, records))
        are_free = list(map(message_groups.is_free, keys))
        self.new_messages += zip(offsets, keys, are_free, strict=True)
        if all(are_free):
            self._add(offsets, read.views, read.size)
            return True
        free = list(compress(records, are_free))
        self._add(list(compress(offsets, are_free)), free, sum(map(len, free)))
        return False

    def add_to_result(self) -> None:
        if self.offsets:
            kind = Kind.of(self.queue.topic)
            self.result.queues.append(PoppedQueue(kind, self.queue.queue_id, self.offsets[0], self.offsets))

    def add_handles(self, topic: str, broker_name: str) -> None:
        """Put the handles into the records, and let them be of another topic."""
        queue, request, result = self.queue, self.request, self.result
        if not self.offsets:
            return
        records = []
        handle = ReceiptHandle(
            self.offsets[0],
            result.pop_ms,
            request.invisible_ms,
            result.token,
            Kind.of(queue.topic),
            broker_name,
            queue.queue_id,
            0,
        )
        for view in self._views:
            for record_view in record.walk(view):
                offset = record.queue_offset(record_view)
                records.append(with_handle(record_view, topic, str(handle._replace(queue_offset=offset))))
        del result.views[len(result.views) - len(self._views) :]
        result.views += records

    def _add(self, offsets: Sequence[int], views: list[memoryview], size: int) -> None:
        self.offsets = [*self.offsets, *offsets] if self.offsets else offsets
        self.result.views += views
        self._views += views
        self.result.count += len(offsets)
        self.result.size += size


def _ready(queue: PopQueue, now_ms: int) -> Iterator[int]:
    while (offset := queue.next_ready(now_ms)) is not None:
        yield offset


def _has_ready(queue: PopQueue, now_ms: int) -> bool:
    offset = queue.next_ready(now_ms)
    if offset is None:
        return False
    queue.put_back(offset)
    return True


def _read_position(queue: PopQueue) -> tuple[int, int]:
    """Return how far the messages of a queue are read. If a pop does not change it, the queue has nothing to give."""
    return queue.next_offset, -1 if queue.message_groups is None else len(queue.message_groups.unread)


def _is_blocked(queue: PopQueue, now_ms: int) -> bool:
    return any(not queue.is_visible(offset, now_ms) for offset in queue.live_offsets())


def _offsets_of(views: list[memoryview], count: int, begin: int, end: int) -> Sequence[int]:
    if end - begin == count:
        return range(begin, end)
    return [record.queue_offset(record_view) for view in views for record_view in record.walk(view)]


def with_deliveries(view: memoryview, times: int) -> memoryview:
    if times <= 0:
        return view
    raw = bytearray(view)
    position = _body_size_at(raw) - BODY_SIZE_BEHIND_RECONSUME_TIMES
    INT.pack_into(raw, position, INT.unpack_from(raw, position)[0] + times)
    return memoryview(bytes(raw))


def with_handle(view: memoryview, topic: str, handle: str) -> memoryview:
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


class PopWakeups:
    """The watermarks of waiting pops, for `HeldPulls`. `empty_pops`: queues without a message since a wake-up."""

    def __init__(self, store: MessageStore) -> None:
        self.empty_pops: Counter[tuple[str, str]] = Counter()
        self._store = store
        self._watermarks: dict[str, dict[str, Watermark]] = {}  # by topic and group
        # The queues that exist and are not watched, by topic. All others are.
        self._unwatched: dict[str, list[int]] = {}
        self._topics_in_progress: set[str] = set()  # topics of which the next turn of the loop watches more queues
        store.queues.on_new = self._on_new_queue

    def watermark(self, topic: str, group: str) -> Watermark:
        watermarks = self._watermarks.setdefault(topic, {})
        watermark = watermarks.get(group)
        if watermark is None:
            watermark = watermarks[group] = Watermark()
        return watermark

    def queues_of(self, topic: str, count: int) -> list[int]:
        ids = self._store.queues.ids(topic)
        return ids if max(ids, default=0) < count else [queue_id for queue_id in ids if queue_id < count]

    def watch(self, topic: str) -> None:
        """Watch all queues of a topic for the next message. If they are many, all waiting pops wake at the end."""
        if topic not in self._unwatched:
            self._unwatched[topic] = self._store.queues.ids(topic)
        if self._unwatched[topic] and topic not in self._topics_in_progress:
            self._watch_some(topic)

    def wake(self, topic: str, group: str) -> None:
        self.empty_pops.pop((topic, group), None)
        self._advance(topic, group)

    def wake_soon(self, topic: str, group: str) -> None:
        asyncio.get_running_loop().call_soon(self._advance, topic, group)

    def _advance(self, topic: str, group: str) -> None:
        watermark = self._watermarks.get(topic, {}).get(group)
        if watermark is not None:
            watermark.advance(watermark.value + 1)

    def _watch_some(self, topic: str) -> None:
        unwatched, end_s = self._unwatched[topic], perf_counter() + _SLICE_S
        while unwatched:
            queue = self._store.queues.get(topic, unwatched.pop())
            if queue is not None:  # else it is deleted
                self._watch(queue)
            if perf_counter() > end_s and unwatched:
                self._topics_in_progress.add(topic)
                asyncio.get_running_loop().call_soon(self._watch_some, topic)
                return
        if topic in self._topics_in_progress:  # a queue may have grown before it was watched
            self._topics_in_progress.discard(topic)
            self._wake_all(topic)

    def _watch(self, queue: ConsumeQueue) -> None:
        end = queue.end
        end.when(end.value + 1, partial(self._on_growth, queue.topic, queue.queue_id))

    def _on_new_queue(self, queue: ConsumeQueue) -> None:
        if queue.topic in self._unwatched:
            self._watch(queue)

    def _on_growth(self, topic: str, queue_id: int, error: BaseException | None) -> None:
        self._unwatched[topic].append(queue_id)
        self._wake_all(topic)

    def _wake_all(self, topic: str) -> None:
        for group in list(self._watermarks.get(topic, ())):
            self.wake(topic, group)


class PopDeadLetters:
    def __init__(self, store: MessageStore, writer: Writer, topics: Topics, groups: Groups) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups

    def move_to_dlq(self, queue: PopQueue, offset: int, cell: InFlight) -> bool:
        """Move a message whose time is over, if it has no tries left. Returns whether it was moved."""
        group = self._groups.get(queue.group)
        max_times = group.retry_max_times if group is not None else 16
        # Records of other topics count no tries from before.
        if cell.attempt <= max_times and not queue.topic.startswith(RETRY):
            return False
        try:
            message = self._message(queue, offset)
            if message is None or message.reconsume_times + cell.attempt <= max_times:
                return False
            sent_back = retry_rules.send_back(message, queue.group, _GIVE_UP_LEVEL, max_times)
            topic = self._topics.ensure_dlq(queue.group)
            tries = message.reconsume_times + cell.attempt
            self._writer.put(readdress(message, topic.topic_name, 0, sent_back.properties, tries))
        except (StoreError, InvalidMessage, RemoteError) as error:
            log.warning("a dead letter of group %s cannot be stored, so it is delivered again: %s", queue.group, error)
            return False
        log.warning(
            "message %s is a dead letter of group %s after %d tries", shown(message.message_id), queue.group, tries
        )
        return True

    def _message(self, queue: PopQueue, offset: int) -> StoredMessage | None:
        read = self._store.read(queue.topic, queue.queue_id, offset, 1, _RECORD_BYTES)
        if not read.count:
            return None
        message = record.decode(read.views[0])
        return message if message.queue_offset == offset else None
