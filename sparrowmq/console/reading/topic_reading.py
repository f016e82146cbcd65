"""A topic's messages by when they were stored, however many: all its queues side by side, a few of each in memory.

    queue 0   ..[32 messages]........
    queue 1   ....[32 messages]......      the eldest of all beginnings is the next one
    queue 2   [32 messages]..........

It goes through what the queues held when it began, so it ends where more comes while it reads, and where what it reads
is sent to the same topic again.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Self

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.finding import AT_ONCE, FOR_EVER_MS
from sparrowmq.client.admin.servers import Servers, masters_in
from sparrowmq.client.consuming import pulling
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.errors import NoRoute
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.protocol.requests.headers import FIRST_AT_OR_AFTER, SearchOffset
from sparrowmq.protocol.subscription import ALL, TAG, Subscription

_Head = tuple[int, MessageQueue, int]


class Reading:
    """The messages of a topic that were stored in a span of time, the eldest first; ask with `async for`, in pieces.

    Attributes:
        total: how many messages there were in its queues from the span's beginning on, when it began.
        looked: how many of them were read so far.
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
        """Whether something comes. Raises: what a broker that does not answer raises."""
        await self._fill()
        return bool(self._heads)

    async def _fill(self) -> None:
        """Have the eldest message that was not read yet at the heap's top.

        What was read leaves the heap only once its queue's next one is there: a broker that failed can be asked again.
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
        self._everything = Subscription.build(queue.topic, ALL, TAG, 0)
        self._read: deque[StoredMessage] = deque()

    @property
    def left(self) -> int:
        return max(0, self._end - self._at)

    async def head(self) -> _Head | None:
        """When its next message was stored, and where it is; None if there is none."""
        while not self._read and self._at < self._end:
            await self._pull()
        if not self._read:
            return None
        return self._read[0].store_timestamp_ms, self.queue, self._read[0].queue_offset

    def take(self) -> ReceivedMessage:
        return ReceivedMessage(self._read.popleft(), self.queue)

    async def _pull(self) -> None:
        request = pulling.request(
            TOOLS_GROUP, self.queue, self._at, self._everything, count=AT_ONCE, hold_s=0
        )
        session = await self._servers.network.brokers.session(self._address)
        answer = await session.call(request, timeout_s=self._servers.timeout_s, accept=pulling.ACCEPTED)
        found = pulling.messages_in(answer.body, self.queue, self._everything)
        self._read += [
            each for each in found if each.queue_offset < self._end and each.store_timestamp_ms in self._span
        ]
        is_past = bool(found) and found[-1].store_timestamp_ms >= self._span.stop
        following = answer.header.next_begin_offset
        self._at = self._end if is_past or following <= self._at else following


async def read(
    servers: Servers, topic: str, since: datetime | None = None, until: datetime | None = None
) -> Reading:
    """What a topic holds now; all of it without `since` and `until`. Raises: NoRoute."""
    span = range(_ms(since, 0), _ms(until, FOR_EVER_MS))
    masters = masters_in(await servers.route(topic))
    found = await topics.ranges(servers, topic, masters)

    async def at(broker: str, address: str) -> list[_Queue]:
        queues = []
        for queue, offsets in sorted(found.items()):
            if queue.broker_name == broker:
                first = offsets.min_offset
                if since is not None:
                    first = max(first, await _first_since(servers, address, queue, span.start))
                queues.append(_Queue(servers, address, queue, range(first, offsets.max_offset), span))
        return queues

    return Reading([each for queues in (await servers.all(masters, at)).values() for each in queues])


async def read_or_nothing(
    servers: Servers, topic: str, since: datetime | None = None, until: datetime | None = None
) -> Reading:
    """The same, and nothing of a topic that is not there."""
    try:
        return await read(servers, topic, since, until)
    except NoRoute:
        return Reading([])


async def _first_since(servers: Servers, address: str, queue: MessageQueue, time_ms: int) -> int:
    search = SearchOffset(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms, boundary_type=FIRST_AT_OR_AFTER
    )
    return (await servers.ask(address, search)).header.offset


def _ms(time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else max(0, round(time.timestamp() * 1000))
