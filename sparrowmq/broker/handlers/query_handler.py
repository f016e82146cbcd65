"""Message search: QUERY_MESSAGE (12) by key or unique id, VIEW_MESSAGE_BY_ID (33) by offset id, and the entries of a
queue, QUERY_CONSUME_QUEUE (321).

Source: QueryMessageProcessor and AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from sparrowmq.broker.handlers.handler import Handler, SharedParts, system_error
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import QueryConsumeQueue
from sparrowmq.protocol.requests.bodies import QueueEntries, QueueEntry
from sparrowmq.protocol.requests.headers import QueryMessage, QueryMessageReply, ViewMessage
from sparrowmq.remoting.handler import Reply, encode_in_steps, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.store.queues.consume_queue import ConsumeQueue

# The limit of one answer (Java: maxMsgsNumBatch). It is half of that for a unique id, which should match once.
MAX_MESSAGES: Final = 64
MAX_MESSAGES_OF_UNIQUE_KEY: Final = 32
MAX_ENTRIES: Final = 16_384


class QueryHandler(Handler):
    def __init__(self, shared: SharedParts) -> None:
        super().__init__(shared)

    @handles(QueryMessage)
    def by_key(self, header: QueryMessage, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        """Return the newest messages of a topic with a key or unique id, stored in a time span, oldest first.

        Unlike Java, whose clients must compare the key, and miss messages if others with its hash fill the answer.
        """
        return self._large.make(peer, partial(self._by_key, header, peer))

    def _by_key(self, header: QueryMessage, peer: Peer) -> Steps[Reply]:
        max_count = MAX_MESSAGES_OF_UNIQUE_KEY if header.unique_key_query else min(header.max_num, MAX_MESSAGES)
        records = yield from self._store.search_steps(
            header.topic, header.key, max_count, header.begin_timestamp, header.end_timestamp
        )
        if not records:
            raise RemoteError(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        self._count(peer, header.topic, sum(map(len, records)))
        return Reply(header=QueryMessageReply(*self._store.indexed), body=records[::-1])

    @handles(ViewMessage)
    def by_offset(self, header: ViewMessage, body: bytes, peer: Peer) -> Reply:
        record = self._record_at(header.offset)
        self._count(peer, "", len(record))
        return Reply(body=[record])

    def _count(self, peer: Peer, topic: str, size: int) -> None:
        if self._quotas.is_on:
            self._quotas.count_pulled(peer, topic, size)

    @handles(QueryConsumeQueue)
    def entries(self, header: QueryConsumeQueue, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        queue = self._store.queues.get(header.topic, header.queue_id)
        if queue is None:
            raise system_error(f"{header.queue_id}@{header.topic} is not exist!")
        records = QueueEntries(max_queue_index=queue.max_offset, min_queue_index=queue.min_offset)
        if header.consumer_group is not None:
            records.subscription_data = self._clients.subscription(header.consumer_group, header.topic)
            if records.subscription_data is None:
                records.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
            else:
                records.filter_data = "null"  # as in Java without a precomputed SQL92 filter
        if not queue.min_offset <= header.index < queue.max_offset:
            # Unlike Java, which answers success with this text and no body; its own tool fails on that.
            raise system_error(f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!")
        count = min(header.count, MAX_ENTRIES, queue.max_offset - header.index)
        return self._large.make(peer, partial(_with_entries, records, queue, header.index, max(count, 0)))


def _with_entries(reply: QueueEntries, queue: ConsumeQueue, begin: int, count: int) -> Steps[Reply]:
    reply.queue_data = entries = []
    for offset in range(begin, begin + count):
        entry = queue.entry(offset)
        queue_entry = None if entry is None else QueueEntry(entry.offset, entry.size, entry.tags_code)
        entries.append(queue_entry or QueueEntry(msg="a gap"))
        yield
    return (yield from encode_in_steps(reply))
