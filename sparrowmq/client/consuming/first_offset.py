"""The offset at which a group begins in a queue that it takes over.

    committed offset          the group's offset, if it ever consumed the queue
    start="latest"            after the newest message; the retry topic from its beginning
    start="new"               the same, in a young topic too
    start="earliest"          at the oldest message
    start=datetime            at the first message stored since

A broker answers 0 for a group that never consumed a queue whose beginning is still there, so that no message is
missed in a young topic. "latest" follows this answer, as in Java. With "new" and a datetime the client asks whether the
group has committed that 0. If not, it begins where `start` says. The end of "new" is committed at once, so that members
that join later begin there too. Source: RebalancePushImpl.computePullFromWhere, Java 4.9.8.
"""

from __future__ import annotations

from datetime import datetime

from sparrowmq.client.arguments import check_time
from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.consuming.consumer_settings import Start
from sparrowmq.client.consuming.offset_store import OffsetStore
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.requests.headers import FIRST_AT_OR_AFTER, GetMaxOffset, GetMinOffset, SearchOffset


async def first_offset(queue: MessageQueue, start: Start, offsets: OffsetStore, brokers: Brokers) -> int:
    """The offset to pull first. Raises: SparrowError, the broker could not be asked."""
    committed = await offsets.resume(queue)
    if committed is not None and committed > 0:
        return committed
    if start == "earliest" or queue.topic.startswith(RETRY):
        return 0
    if start == "latest":
        return await newest(queue, brokers) if committed is None or committed < 0 else 0
    chosen = await (newest(queue, brokers) if start == "new" else offset_at(queue, start, brokers))
    if committed == 0 and await offsets.has(queue):
        return 0
    if start == "new":
        await offsets.commit({queue: chosen})
    return chosen


async def newest(queue: MessageQueue, brokers: Brokers) -> int:
    """The offset that the next message will get."""
    session = await brokers.having(queue)
    answer = await session.call(GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def oldest(queue: MessageQueue, brokers: Brokers) -> int:
    session = await brokers.having(queue)
    answer = await session.call(GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def offset_at(queue: MessageQueue, time: datetime, brokers: Brokers) -> int:
    """The offset of the first message stored since a time; a datetime without zone is local time.

    Apache's brokers up to 4.9 answer the nearest message, which can be one message early.

    Raises: ConfigError, it is no time, or out of what can be counted.
    """
    return await offset_since(queue, check_time("time", time), brokers)


async def offset_since(queue: MessageQueue, timestamp_ms: int, brokers: Brokers) -> int:
    """As `offset_at`, of a time in ms; the end of the queue if all messages are older."""
    session = await brokers.having(queue)
    request = SearchOffset(queue.topic, queue.queue_id, timestamp_ms, FIRST_AT_OR_AFTER)
    return (await session.call(request)).header.offset
