"""A topic's messages by when they were stored, however many: all its queues side by side, a page of each in memory.

The oldest come first, or the newest.

    queue 0   ..[32 messages]........
    queue 1   ....[32 messages]......      the oldest first message of all pages is the next one
    queue 2   [32 messages]..........

A reading ends where the queues ended when it began. So it ends also where new messages arrive faster than it reads,
and where its messages are sent to the same topic again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Final, Self

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.operations.message_operations import PAGE, offset_since, pull_page
from sparrowmq.client.admin.servers import Servers, masters_in
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage

FOR_EVER_MS: Final = (1 << 63) - 1

_Head = tuple[int, MessageQueue, int]


class Reading:
    """The messages of a topic that were stored in a span of time, in order; an asynchronous iterator.

    It can be paused, and continued after an error.

    Attributes:
        total: messages in the queues from the span's beginning on, when the reading began.
        looked: messages read so far.
    """

    def __init__(self, queues: list[_Queue]) -> None:
        self.total = sum(each.left for each in queues)
        self.looked = 0
        self._queues = {each.queue: each for each in queues}
        self._heads: list[_Head] = []
        self._last: MessageQueue | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        await self._fill()
        if not self._heads:
            raise StopAsyncIteration
        queue = self._queues[self._heads[0][1]]
        self._last = queue.queue
        self.looked += 1
        return queue.take()

    async def peek(self) -> bool:
        """Return whether there is a next message. Raises: SparrowError, a broker does not answer."""
        await self._fill()
        return bool(self._heads)

    async def _fill(self) -> None:
        """Put the next message at the heap's top.

        A message that was read leaves the heap only when its queue's next one is there: so a reading can continue after
        an error.
        """
        if self._last is not None:
            head = await self._queues[self._last].head()
            if head is None:
                heappop(self._heads)
            else:
                heapreplace(self._heads, head)
            self._last = None
        elif not self._heads:
            heads = [await each.head() for each in self._queues.values()]
            self._heads = [each for each in heads if each is not None]
            heapify(self._heads)


class _Queue:
    """One queue, from an offset to where it ended."""

    def __init__(self, servers: Servers, address: str, queue: MessageQueue, offsets: range, span: range) -> None:
        self.queue = queue
        self._servers = servers
        self._address = address
        self._at = offsets.start
        self._end = offsets.stop
        self._span = span
        self._read: deque[ReceivedMessage] = deque()

    @property
    def left(self) -> int:
        return max(0, self._end - self._at)

    async def head(self) -> _Head | None:
        """Return the next message's time and place; None if there is none."""
        while not self._read and self._at < self._end:
            await self._pull()
        if not self._read:
            return None
        message = self._read[0]
        return (
            message.store_timestamp_ms,
            self.queue,
            message.offset,
        )  # The message's queue lacks the namespace.

    def take(self) -> ReceivedMessage:
        return self._read.popleft()

    async def _pull(self) -> None:
        page = await pull_page(self._servers, self._address, self.queue, self._at)
        self._keep(each for each in page.messages if each.queue_offset < self._end)
        is_past = bool(page.messages) and page.messages[-1].store_timestamp_ms >= self._span.stop
        self._at = self._end if is_past or page.next_offset <= self._at else page.next_offset

    def _keep(self, messages: Iterable[StoredMessage]) -> None:
        """Keep the messages of the span, in the order of the reading."""
        namespace = self._servers.network.namespace
        self._read += [
            ReceivedMessage(each, self.queue, namespace=namespace)
            for each in messages
            if each.store_timestamp_ms in self._span
        ]


class _QueueBack(_Queue):
    """One queue, from where it ended back to an offset."""

    async def head(self) -> _Head | None:
        """Return the next message's time and place, so that the newest one has the smallest."""
        head = await super().head()
        return head and (-head[0], head[1], -head[2])

    async def _pull(self) -> None:
        begin = max(self._at, self._end - PAGE)
        found: list[StoredMessage] = []
        at = begin
        while at < self._end:
            page = await pull_page(self._servers, self._address, self.queue, at, count=self._end - at)
            found += [each for each in page.messages if each.queue_offset < self._end]
            at = page.next_offset if page.next_offset > at else self._end
        self._end = begin
        self._keep(reversed(found))


async def read(
    servers: Servers,
    topic: str,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    newest_first: bool = False,
) -> Reading:
    """Read the messages that a topic has now; all of them without `since` and `until`. Raises: NoRoute."""
    span = range(_ms(since, 0), _ms(until, FOR_EVER_MS))
    return await read_span(servers, topic, span, newest_first=newest_first)


async def read_span(servers: Servers, topic: str, span: range, *, newest_first: bool = False) -> Reading:
    """Read what was stored in a span of milliseconds. Raises: NoRoute."""
    one = _QueueBack if newest_first else _Queue
    masters = masters_in(await servers.route(topic))
    found = await topics.ranges(servers, topic, masters)

    async def at(broker: str, address: str) -> list[_Queue]:
        queues = []
        for queue, offsets in sorted(found.items()):
            if queue.broker_name == broker:
                first = offsets.min_offset
                if span.start:
                    first = max(first, await offset_since(servers, address, queue, span.start))
                end = offsets.max_offset
                if newest_first and span.stop != FOR_EVER_MS:  # a page more, as old brokers find a place near it
                    end = min(end, max(first, await offset_since(servers, address, queue, span.stop)) + PAGE)
                queues.append(one(servers, address, queue, range(first, end), span))
        return queues

    return Reading([each for queues in (await servers.all(masters, at)).values() for each in queues])


def age(message: ReceivedMessage) -> _Head:
    """Return the sort key that puts the oldest message first, always in the same order."""
    return message.store_timestamp_ms, message.queue, message.offset


def _ms(time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else max(0, round(time.timestamp() * 1000))
