"""The offsets of groups and queues: codes 14, 15 (a group's offset), 29, 30, 31, 32 (a queue's), 43, 45 (all of them,
for tools). Resets are in groups_handler.py.

Source: ConsumerManageProcessor and AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from sparrowmq.broker.handlers.handler import Handler, SharedParts
from sparrowmq.broker.later.delay import DelayedDelivery
from sparrowmq.broker.offsets import is_young
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import GetAllConsumerOffset, GetAllDelayOffset
from sparrowmq.protocol.requests.headers import (
    GetEarliestMsgStoretime,
    GetEarliestMsgStoretimeReply,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets
from sparrowmq.protocol.wire import json
from sparrowmq.remoting.handler import PendingReply, Reply, encoded, handles
from sparrowmq.remoting.peer import Peer


class OffsetHandler(Handler):
    """Answer questions about the offsets of groups and queues.

    Args:
        young_bytes: see `is_young`.
        committed: returns the answer to a commit, which leaves when the log has it; None to answer at once.
    """

    def __init__(
        self,
        shared: SharedParts,
        delayed: DelayedDelivery,
        young_bytes: int,
        committed: Callable[[], PendingReply | None] = lambda: None,
    ) -> None:
        super().__init__(shared)
        self._delayed = delayed
        self._young_bytes = young_bytes
        self._committed = committed

    @handles(QueryConsumerOffset)
    def query(self, header: QueryConsumerOffset, body: bytes, peer: Peer) -> OffsetReply:
        """Return the group's next offset; 0 for a group that never committed, while the queue is young."""
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is not None:
            return OffsetReply(offset)
        if header.set_zero_if_not_found is False:
            raise RemoteError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        if not is_young(self._store, header.topic, header.queue_id, self._young_bytes):
            raise RemoteError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return OffsetReply(0)

    @handles(UpdateConsumerOffset)
    def commit(self, header: UpdateConsumerOffset, body: bytes, peer: Peer) -> PendingReply | None:
        names.check_group(header.consumer_group)
        # Unlike Java 4.9, and like 5.x: the broker keeps no state for topics that do not exist.
        topic = self._known_topic(header.topic)
        if header.commit_offset < 0 or header.queue_id < 0:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"offset {header.commit_offset} of queue {header.queue_id} cannot be committed; both must be 0 or more",
            )
        # A queue that the topic has lost, but which still has messages, may be consumed to its end.
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums) and not self._store.queues.get(
            header.topic, header.queue_id
        ):
            # Unlike Java, which keeps offsets of queues that never existed.
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic[{header.topic}] has {topic.read_queue_nums} read queues "
                f"and {topic.write_queue_nums} write queues",
            )
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return self._committed()

    @handles(GetMaxOffset)
    def maximum(self, header: GetMaxOffset, body: bytes, peer: Peer) -> OffsetReply:
        """Return the offset that the next message will get, and the topic's incarnation for readers that ask for it."""
        queue = self._store.queues.get(header.topic, header.queue_id)
        incarnation = self._topics.incarnation(header.topic) if header.with_incarnation else None
        return OffsetReply(queue.max_offset if queue else 0, incarnation)

    @handles(GetMinOffset)
    def minimum(self, header: GetMinOffset, body: bytes, peer: Peer) -> OffsetReply:
        queue = self._store.queues.get(header.topic, header.queue_id)
        return OffsetReply(queue.min_offset if queue else 0)

    @handles(SearchOffset)
    def search(self, header: SearchOffset, body: bytes, peer: Peer) -> OffsetReply:
        """Return the first offset stored at a time or later, or the queue's end; 0 for a queue without messages.

        With the boundary UPPER it is the last offset at that time or earlier. Unlike Java 4.9, which answers the
        nearest message: a group that is reset to now would consume the newest message again. Source: Java 5.4.0.
        """
        is_upper = (header.boundary_type or "").upper() == "UPPER"
        return OffsetReply(self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, is_upper))

    @handles(GetEarliestMsgStoretime)
    def earliest(self, header: GetEarliestMsgStoretime, body: bytes, peer: Peer) -> GetEarliestMsgStoretimeReply:
        """Return the store time of the oldest message; -1 if there is none."""
        queue = self._store.queues.get(header.topic, header.queue_id)
        time_ms = self._store.store_time(header.topic, header.queue_id, queue.min_offset) if queue else None
        return GetEarliestMsgStoretimeReply(-1 if time_ms is None else time_ms)

    @handles(GetAllConsumerOffset)
    def all_groups(self, header: GetAllConsumerOffset, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        """Return the current content of consumerOffset.json."""
        return self._large.make(peer, self._all_groups)

    def _all_groups(self) -> Steps[Reply]:
        mark = self._offsets.mark()
        rows = json.Pairs((key, dict(queues)) for key, queues in self._offsets.rows())
        return (yield from encoded(ConsumerOffsets(cast(Any, rows), journal=mark)))

    @handles(GetAllDelayOffset)
    def all_delays(self, header: GetAllDelayOffset, body: bytes, peer: Peer) -> Reply:
        """Return the current content of delayOffset.json, and what slaves must keep."""
        return Reply(body=self._delayed.progress_for_slave())
