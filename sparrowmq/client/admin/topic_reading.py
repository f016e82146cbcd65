"""A topic's messages by when they were stored, however many: all its queues side by side, a page of each in memory.

    queue 0   ..[32 messages]........
    queue 1   ....[32 messages]......      the oldest first message of all pages is the next one
    queue 2   [32 messages]..........

A reading ends where the queues ended when it began. So it ends also where new messages arrive faster than it reads,
and where its messages are sent to the same topic again.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Final, Self

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.operations.message_operations import offset_since, pull_page
from sparrowmq.client.admin.servers import Servers, masters_in
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.errors import NoRoute
from sparrowmq.protocol.messages.message import MessageQueue

FOR_EVER_MS: Final = (1 << 63) - 1

_Head = tuple[int, MessageQueue, int]


class Reading:
    """The messages of a topic that were stored in a span of time, the oldest first; an asynchronous iterator.

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
        """Put the oldest unread message at the heap's top.

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

    def __init__(
        self, servers: Servers, address: str, queue: MessageQueue, offsets: range, span: range
    ) -> None:
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
        namespace = self._servers.network.namespace
        self._read += [
            ReceivedMessage(each, self.queue, namespace=namespace)
            for each in page.messages
            if each.queue_offset < self._end and each.store_timestamp_ms in self._span
        ]
        is_past = bool(page.messages) and page.messages[-1].store_timestamp_ms >= self._span.stop
        self._at = self._end if is_past or page.next_offset <= self._at else page.next_offset


async def read(
    servers: Servers, topic: str, since: datetime | None = None, until: datetime | None = None
) -> Reading:
    """Read the messages that a topic has now; all of them without `since` and `until`. Raises: NoRoute."""
    return await read_span(servers, topic, range(_ms(since, 0), _ms(until, FOR_EVER_MS)))


async def read_span(servers: Servers, topic: str, span: range) -> Reading:
    """Read what was stored in a span of milliseconds. Raises: NoRoute."""
    masters = masters_in(await servers.route(topic))
    found = await topics.ranges(servers, topic, masters)

    async def at(broker: str, address: str) -> list[_Queue]:
        queues = []
        for queue, offsets in sorted(found.items()):
            if queue.broker_name == broker:
                first = offsets.min_offset
                if span.start:
                    first = max(first, await offset_since(servers, address, queue, span.start))
                queues.append(_Queue(servers, address, queue, range(first, offsets.max_offset), span))
        return queues

    return Reading([each for queues in (await servers.all(masters, at)).values() for each in queues])


async def read_or_nothing(
    servers: Servers, topic: str, since: datetime | None = None, until: datetime | None = None
) -> Reading:
    """Read a topic as `read` does; an absent topic is empty."""
    try:
        return await read(servers, topic, since, until)
    except NoRoute:
        return Reading([])


def age(message: ReceivedMessage) -> _Head:
    """Return the sort key that puts the oldest message first, always in the same order."""
    return message.store_timestamp_ms, message.queue, message.offset


def _ms(time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else max(0, round(time.timestamp() * 1000))
