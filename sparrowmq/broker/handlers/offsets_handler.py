"""The offsets of groups and queues, and the progress of groups.

    14, 15                  a group's offset
    29, 30, 31, 32          a queue's
    43, 45                  all of them, for tools
    208, 317, 303, 308      the progress of one group, of all, as time, of the slowest
    314                     copy one group's offsets to another

Resets are in groups_handler.py.
Source: ConsumerManageProcessor, AdminBrokerProcessor and ConsumerOffsetManager, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, cast

from sparrowmq.broker.delayed.delay import DelayProgress
from sparrowmq.broker.group_lags import GroupLags
from sparrowmq.broker.handlers.handler import Handler, SharedParts, system_error
from sparrowmq.broker.offsets import is_young
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import check_group
from sparrowmq.protocol.requests.admin_headers import (
    CloneGroupOffset,
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
)
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
from sparrowmq.protocol.requests.offset_bodies import (
    BrokerConsumeStats,
    ConsumerOffsets,
    ConsumeStats,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueProgress,
    QueueTimeSpan,
)
from sparrowmq.protocol.wire import json
from sparrowmq.remoting.handler import PendingReply, Reply, encode_in_steps, handles
from sparrowmq.remoting.peer import Peer

_MAX_INT64: Final = (1 << 63) - 1
_NO_STORE_TIME: Final = -1  # the store time of a message that does not exist


class OffsetHandler(Handler):
    """Answer questions about offsets. `answer_commit` returns the answer to a commit; None to answer at once."""

    def __init__(
        self,
        shared: SharedParts,
        delayed: DelayProgress,
        young_bytes: int,
        answer_commit: Callable[[], PendingReply | None] = lambda: None,
    ) -> None:
        super().__init__(shared)
        self._delayed = delayed
        self._young_bytes = young_bytes
        self._answer_commit = answer_commit

    @handles(QueryConsumerOffset)
    def query(self, header: QueryConsumerOffset, body: bytes, peer: Peer) -> OffsetReply:
        """Return the group's next offset; 0 for a group that never committed, while the queue is young."""
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is not None:
            return OffsetReply(offset)
        if header.set_zero_if_not_found is False:
            raise RemoteError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        if not is_young(self._store, header.topic, header.queue_id, self._young_bytes):
            raise RemoteError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            )
        return OffsetReply(0)

    @handles(UpdateConsumerOffset)
    def commit(self, header: UpdateConsumerOffset, body: bytes, peer: Peer) -> PendingReply | None:
        names.check_group(header.consumer_group)
        # Unlike Java 4.9, and like 5.x: the broker keeps no state for topics that do not exist.
        topic = self._known_topic(header.topic)
        if header.commit_offset < 0 or header.queue_id < 0:
            raise system_error(
                f"offset {header.commit_offset} of queue {header.queue_id} cannot be committed; both must be 0 or more"
            )
        # A queue that the topic has lost, but which still has messages, may be consumed to its end.
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums) and not self._store.queues.get(
            header.topic, header.queue_id
        ):
            # Unlike Java, which keeps offsets of queues that never existed.
            raise system_error(
                f"queueId[{header.queue_id}] is illegal, topic[{header.topic}] has {topic.read_queue_nums} read queues "
                f"and {topic.write_queue_nums} write queues"
            )
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return self._answer_commit()

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
        queue = self._store.queues.get(header.topic, header.queue_id)
        time_ms = self._store.store_time(header.topic, header.queue_id, queue.min_offset) if queue else None
        return GetEarliestMsgStoretimeReply(-1 if time_ms is None else time_ms)

    @handles(GetAllConsumerOffset)
    def all_groups(self, header: GetAllConsumerOffset, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, self._all_groups_reply)

    def _all_groups_reply(self) -> Steps[Reply]:
        mark = self._offsets.mark()
        rows = json.Pairs((key, dict(queues)) for key, queues in self._offsets.rows())
        return (yield from encode_in_steps(ConsumerOffsets(cast(Any, rows), journal=mark)))

    @handles(GetAllDelayOffset)
    def all_delays(self, header: GetAllDelayOffset, body: bytes, peer: Peer) -> Reply:
        return Reply(body=self._delayed.for_slave())


class ProgressHandler(Handler):
    def __init__(self, shared: SharedParts, address: str, pops: PopTable) -> None:
        super().__init__(shared)
        self._address = address
        self._lags = GroupLags(shared.store, shared.topics, shared.offsets, shared.clients, pops)

    @handles(GetConsumeStats)
    def of_group(self, header: GetConsumeStats, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, partial(self._of_group_reply, header.consumer_group, header.topic))

    def _of_group_reply(self, group: str, topic: str | None) -> Steps[Reply]:
        topics = self._lags.consumed(group, [topic]) if topic else self._lags.topics_of(group)
        return (yield from encode_in_steps(self._stats(group, topics)))

    @handles(GetBrokerConsumeStats)
    def of_all(self, header: GetBrokerConsumeStats, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large.make(peer, partial(self._of_all_reply, header))

    def _of_all_reply(self, header: GetBrokerConsumeStats) -> Steps[Reply]:
        stats = BrokerConsumeStats([], self._address)
        for config in self._groups.all():
            group = config.group_name
            configs = [self._topics.get(name) for name in self._lags.topics_of(group)]
            topics = [
                topic.topic_name for topic in configs if topic is not None and (topic.order or not header.is_order)
            ]
            stats.consume_stats_list.append({group: [self._stats(group, [topic], stats) for topic in topics]})
            yield
        return (yield from encode_in_steps(stats))

    @handles(QueryConsumeTimeSpan)
    def in_time(self, header: QueryConsumeTimeSpan, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        queue_count = self._known_topic(header.topic).write_queue_nums
        return self._large.make(peer, partial(self._spans_reply, header, queue_count))

    def _spans_reply(self, header: QueryConsumeTimeSpan, queue_count: int) -> Steps[Reply]:
        spans = (self._time_span(header.topic, header.group, queue_id) for queue_id in range(queue_count))
        return (yield from encode_in_steps(ConsumeTimeSpans(cast(Any, json.Items(spans)))))

    @handles(QueryCorrectionOffset)
    def slowest(self, header: QueryCorrectionOffset, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        """Return the lowest offset of all groups for each queue. Offsets below the queue's beginning do not count.

        Unlike Java, whose filter deletes the groups that it names from the broker's offsets.
        """
        return self._large.make(peer, partial(self._slowest_reply, header))

    def _slowest_reply(self, header: QueryCorrectionOffset) -> Steps[Reply]:
        excluded_groups = set((header.filter_groups or "").split(","))
        lowest_offsets: dict[int, int] = {}
        groups = yield from self._offsets.groups_of(header.topic)
        for group in groups:
            if group in excluded_groups:
                continue
            for queue_id, offset in list(self._offsets.of_group(group, header.topic).items()):
                queue = self._store.queues.get(header.topic, queue_id)
                if offset >= (queue.min_offset if queue else 0):
                    lowest_offsets[queue_id] = min(offset, lowest_offsets.get(queue_id, _MAX_INT64))
                yield
        compared = self._offsets.of_group(header.compare_group or "", header.topic)
        for queue_id, offset in list(compared.items()):
            if lowest_offsets.get(queue_id, _MAX_INT64) > offset:
                lowest_offsets[queue_id] = _MAX_INT64
            yield
        return (yield from encode_in_steps(CorrectionOffsets(lowest_offsets)))

    @handles(CloneGroupOffset)
    async def clone(self, header: CloneGroupOffset, body: bytes, peer: Peer) -> None:
        source, target = header.src_group, check_group(header.dest_group)
        topics = {header.topic} if header.topic else self._offsets.topics_of(source)
        for topic in topics if header.offline else self._lags.consumed(source, topics):
            if self._topics.get(topic) is not None:
                await run_to_end(self._offsets.cloning(source, target, topic))
        await self._offsets.file.confirm(f"group {target} goes on where {source} is")

    def _stats(self, group: str, topics: list[str], totals: BrokerConsumeStats | None = None) -> ConsumeStats:
        rows = cast(Any, json.Pairs(self._rows(group, topics, totals)))
        return ConsumeStats(self._consumption.per_second(group, topics), rows)

    def _rows(
        self, group: str, topics: list[str], totals: BrokerConsumeStats | None
    ) -> Iterator[tuple[MessageQueue, QueueProgress]]:
        for name in topics:
            for queue_id in self._lags.queues_of(name):
                row = self._progress(group, name, queue_id)
                if totals is not None:
                    totals.total_diff += row.lag
                yield MessageQueue(name, self._topics.broker_name, queue_id), row

    def _progress(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        lag = self._lags.lag(group, topic, queue_id)
        last_ms = self._store.store_time(topic, queue_id, lag.offset - 1) or 0
        count = None if lag.in_flight is None else lag.messages
        return QueueProgress(lag.end, lag.offset, lag.next_offset, last_ms, count, lag.in_flight)

    def _time_span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        queue = self._store.queues.get(topic, queue_id)
        begin, end = (queue.min_offset, queue.max_offset) if queue else (0, 0)
        offset = self._offsets.query(group, topic, queue_id) or 0

        def stored_ms_of(queue_offset: int) -> int:
            stored_ms = self._store.store_time(topic, queue_id, queue_offset)
            return _NO_STORE_TIME if stored_ms is None else stored_ms

        next_ms = stored_ms_of(offset) if offset < end else _NO_STORE_TIME
        return QueueTimeSpan(
            MessageQueue(topic, self._topics.broker_name, queue_id),
            stored_ms_of(begin),
            stored_ms_of(end - 1),
            stored_ms_of(offset - 1) if offset > 0 else stored_ms_of(begin),
            self._clock.now_ms() - next_ms if next_ms != _NO_STORE_TIME else 0,
        )
