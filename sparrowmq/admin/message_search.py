"""Searches for messages: by either id, by key, or by the time of storage.

    unique id    made by the sender: each broker of the topic looks it up in its index
    offset id    made by the broker: it names the broker and the place
    key          looked up in the index, which holds hashes: messages with the same hash and another key are dropped
    time         each queue is searched for its first message, and read from there

Both ids have the same form; an id that names a broker of the cluster is an offset id. A topic is read by the time of
storage, the oldest messages first or the newest: all its queues side by side, with a page of each in memory. The oldest
first message of all pages is the next one. A reading ends where the queues ended when it began, also if new messages
arrive faster than it reads. Source: MQAdminImpl and QueryMsgByIdSubCommand, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple, Self

from sparrowmq.admin import topics
from sparrowmq.admin.catalogue import PAGE, offset_since, pull_page, query_messages, view_message
from sparrowmq.admin.servers import Masters, Servers, masters_in
from sparrowmq.client.arguments import check_count, check_text, check_time
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ConfigError, InvalidMessage, NoMessage, RemoteError, RemoteProtocolError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import compression, trace
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage, SysFlag
from sparrowmq.protocol.messages.message_id import OffsetId, parse_offset_id
from sparrowmq.protocol.messages.trace import Trace
from sparrowmq.protocol.names import TRACE_TOPIC, check_topic
from sparrowmq.protocol.requests.headers import QueryMessage

log = logging.getLogger(__name__)
MAX_TRACED_MESSAGES: Final = 64  # messages with traces of one; Apache's brokers give no more
FOR_EVER_MS: Final = (1 << 63) - 1
_Head = tuple[int, MessageQueue, int]


async def by_id(servers: Servers, msg_id: str, topic: str | None = None) -> ReceivedMessage:
    """Return the message of an id: `SendResult.msg_id`, which needs its topic, or `offset_msg_id`, which does not.
    Raises: NoMessage, no broker has it (any more); NoRoute, there is no such topic.
    """
    topic = None if topic is None else servers.network.full_topic(topic)
    check_text("msg_id", msg_id)
    if (found_at := await _offset_id(servers, msg_id)) is not None:
        return await _message_at(servers, msg_id, *found_at)
    if topic is None:
        raise ConfigError(
            f"{msg_id} names no broker of this cluster, so its sender made it; name its topic, too, to find it"
        )
    masters = await servers.masters_of(topic)
    request = QueryMessage(topic, msg_id, PAGE, 0, FOR_EVER_MS, unique_key_query=True)
    messages = [message for message in await _query(servers, masters, request) if message.stored.unique_key == msg_id]
    if not messages:
        raise NoMessage(msg_id, f"in topic {topic}")
    return messages[0]


async def traces(servers: Servers, msg_id: str, topic: str = TRACE_TOPIC) -> list[Trace]:
    """Return the traces of a message from producers and consumers, the oldest first. Damaged ones are left out.

    `msg_id` is that of a `SendResult`; `topic` is the trace topic that they report to, which is in no namespace.
    Raises: NoRoute, there is no such topic; brokers have it with traceTopicEnable=true.
    """
    check_text("topic", topic)
    all_traces: list[Trace] = []
    for message in await _by_key(servers, check_topic(topic), msg_id, None, None, MAX_TRACED_MESSAGES):
        try:
            all_traces += trace.decode(message.text())
        except (RemoteProtocolError, InvalidMessage) as error:
            log.warning("%r is no trace: %s", message, error)
    return sorted(
        (trace_of_message for trace_of_message in all_traces if trace_of_message.msg_id == msg_id),
        key=lambda trace_of_message: trace_of_message.time_ms or 0,
    )


async def find(
    servers: Servers,
    topic: str,
    key: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 64,
) -> list[ReceivedMessage]:
    """Return messages with a key, or those stored in a span of time, in the order of their storage.

    They were stored at or after `since` and before `until`; times without a zone are local. Without a key `since`
    is needed. At most `limit` messages come: the newest ones with the key, the oldest ones of the span. With a key
    each broker returns at most 64. Raises: NoRoute, there is no such topic.
    """
    check_count("limit", limit)
    topic = servers.network.full_topic(topic)
    if key is not None:
        return await _by_key(servers, topic, key, since, until, limit)
    if since is None:
        raise ConfigError("give a key, or a time with `since`; to read a whole topic use `pull_consumer`")
    reading = await read_span(servers, topic, range(_ms("since", since, 0), _ms("until", until, FOR_EVER_MS)))
    messages: list[ReceivedMessage] = []
    while len(messages) < limit and await reading.peek():
        messages.append(await anext(reading))
    return messages


async def _by_key(
    servers: Servers, topic: str, key: str, since: datetime | None, until: datetime | None, limit: int
) -> list[ReceivedMessage]:
    check_text("key", key)
    masters = await servers.masters_of(topic)
    request = QueryMessage(topic, key, limit, _ms("since", since, 0), _ms("until", until, FOR_EVER_MS))
    messages = [message for message in await _query(servers, masters, request) if key in message.keys]
    return messages[-limit:]


async def _offset_id(servers: Servers, msg_id: str) -> tuple[str, OffsetId] | None:
    try:
        place = parse_offset_id(msg_id)
    except RemoteProtocolError:
        return None
    brokers = await servers.brokers()
    names = [broker.name for broker in brokers if place.store_host in broker.addresses.values()]
    return (names[0], place) if names else None


async def _message_at(servers: Servers, msg_id: str, broker: str, place: OffsetId) -> ReceivedMessage:
    try:
        stored = await view_message(servers, place.store_host, place.physical_offset)
    except RemoteError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        raise NoMessage(msg_id, f"at {place.store_host}") from error
    return _received(servers, stored, broker)


async def _query(servers: Servers, masters: Masters, request: QueryMessage) -> list[ReceivedMessage]:
    async def query_at(broker: str, address: str) -> list[ReceivedMessage]:
        try:
            found_by_broker = await query_messages(servers, address, request)
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            raise
        return [_received(servers, message, broker) for message in found_by_broker]

    found_by_broker = await servers.all(masters, query_at)
    return sorted((message for messages in found_by_broker.values() for message in messages), key=storage_order)


def _received(servers: Servers, stored: StoredMessage, broker: str) -> ReceivedMessage:
    queue = MessageQueue(stored.topic, broker, stored.queue_id)
    return ReceivedMessage(stored, queue, namespace=servers.network.namespace)


def _ms(name: str, time: datetime | None, default_ms: int) -> int:
    return default_ms if time is None else check_time(name, time)


class Reading:
    """The messages of a topic that were stored in a span of time, in order; an asynchronous iterator.

    It can be paused, and continued after an error. `total` messages were in the queues from the span's beginning on,
    when the reading began; `looked` were read so far.
    """

    def __init__(self, queues: list[_QueueReader]) -> None:
        self.total = sum(reader.left for reader in queues)
        self.looked = 0
        self._queues = {reader.queue: reader for reader in queues}
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
        """Put the next message at the heap's top. One that was read stays there until its queue has the next."""
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


class _QueueReader:
    """One queue, from an offset to where it ended."""

    def __init__(self, servers: Servers, address: str, queue: MessageQueue, offsets: range, span: range) -> None:
        self.queue = queue
        self._servers = servers
        self._address = address
        self._next_offset = offsets.start
        self._end = offsets.stop
        self._span = span
        self._read: deque[ReceivedMessage] = deque()

    @property
    def left(self) -> int:
        return max(0, self._end - self._next_offset)

    async def head(self) -> _Head | None:
        """Return the next message's time and place; None if there is none."""
        while not self._read and self._next_offset < self._end:
            await self._pull()
        if not self._read:
            return None
        message = self._read[0]
        return message.store_timestamp_ms, self.queue, message.offset  # the message's queue lacks the namespace

    def take(self) -> ReceivedMessage:
        return self._read.popleft()

    async def _pull(self) -> None:
        page = await pull_page(self._servers, self._address, self.queue, self._next_offset)
        self._keep(message for message in page.messages if message.queue_offset < self._end)
        is_past = bool(page.messages) and page.messages[-1].store_timestamp_ms >= self._span.stop
        self._next_offset = self._end if is_past or page.next_offset <= self._next_offset else page.next_offset

    def _keep(self, messages: Iterable[StoredMessage]) -> None:
        namespace = self._servers.network.namespace
        self._read += [
            ReceivedMessage(message, self.queue, namespace=namespace)
            for message in messages
            if message.store_timestamp_ms in self._span
        ]


class _ReverseQueueReader(_QueueReader):
    """One queue, from where it ended back to an offset."""

    async def head(self) -> _Head | None:
        """Return the next message's time and place, so that the newest one has the smallest."""
        head = await super().head()
        return head and (-head[0], head[1], -head[2])

    async def _pull(self) -> None:
        begin = max(self._next_offset, self._end - PAGE)
        messages: list[StoredMessage] = []
        offset = begin
        while offset < self._end:
            page = await pull_page(self._servers, self._address, self.queue, offset, count=self._end - offset)
            messages += [message for message in page.messages if message.queue_offset < self._end]
            offset = page.next_offset if page.next_offset > offset else self._end
        self._end = begin
        self._keep(reversed(messages))


async def read(
    servers: Servers,
    topic: str,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    newest_first: bool = False,
) -> Reading:
    """Read the messages that a topic has now; all of them without `since` and `until`. Raises: NoRoute."""
    span = range(_timestamp_ms(since, 0), _timestamp_ms(until, FOR_EVER_MS))
    return await read_span(servers, topic, span, newest_first=newest_first)


async def read_span(servers: Servers, topic: str, span: range, *, newest_first: bool = False) -> Reading:
    """Read what was stored in a span of milliseconds. Raises: NoRoute."""
    reader_class = _ReverseQueueReader if newest_first else _QueueReader
    masters = masters_in(await servers.route(topic))
    ranges = await topics.ranges(servers, topic, masters)

    async def readers_at(broker: str, address: str) -> list[_QueueReader]:
        queues = []
        for queue, offsets in sorted(ranges.items()):
            if queue.broker_name == broker:
                first = offsets.min_offset
                if span.start:
                    first = max(first, await offset_since(servers, address, queue, span.start))
                end = offsets.max_offset
                if newest_first and span.stop != FOR_EVER_MS:  # a page more, as old brokers find a place near it
                    end = min(end, max(first, await offset_since(servers, address, queue, span.stop)) + PAGE)
                queues.append(reader_class(servers, address, queue, range(first, end), span))
        return queues

    return Reading([reader for queues in (await servers.all(masters, readers_at)).values() for reader in queues])


def storage_order(message: ReceivedMessage) -> _Head:
    """Return the sort key that puts the oldest message first, always in the same order."""
    return message.store_timestamp_ms, message.queue, message.offset


def _timestamp_ms(time: datetime | None, default_ms: int) -> int:
    return default_ms if time is None else max(0, round(time.timestamp() * 1000))


class ReadableBody(NamedTuple):
    """A body for an operator, who also sees one that no consumer can decompress: `content` is then as it is stored, and
    `trouble` says why.

    A producer may call any bytes compressed: a cut stream, one of another kind, or one that expands to gigabytes. One
    such message must not hide the others of its topic.
    """

    content: bytes
    trouble: str | None = None


def readable(stored: StoredMessage) -> ReadableBody:
    """Return the body of a message; it is decompressed again with each call, so that nothing large is kept."""
    return _readable_or_stored(stored, lambda: compression.decompress(stored.body, stored.sys_flag))


def beginning(stored: StoredMessage, size_bytes: int) -> ReadableBody:
    """Return the first bytes of a body, which costs no more for a body that expands to megabytes."""
    return _readable_or_stored(stored, lambda: compression.beginning(stored.body, stored.sys_flag, size_bytes))


async def read_aside(stored: StoredMessage) -> ReadableBody:
    """Return the body of a message without stopping the event loop: 4 KB may become 4 MiB, which take 10 ms."""
    is_packed = stored.sys_flag & SysFlag.COMPRESSED
    return await asyncio.to_thread(readable, stored) if is_packed else readable(stored)


def _readable_or_stored(stored: StoredMessage, read: Callable[[], bytes]) -> ReadableBody:
    try:
        return ReadableBody(read())
    except (RemoteProtocolError, ConfigError) as error:
        return ReadableBody(stored.body, str(error))
