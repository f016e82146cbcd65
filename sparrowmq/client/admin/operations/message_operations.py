"""Requests to one broker about messages: by place, by key, by time, and page by page of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.client.admin.operations.asker import Asker
from sparrowmq.client.consuming import pulling
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.protocol.requests.headers import (
    FIRST_AT_OR_AFTER,
    GetMaxOffset,
    GetMinOffset,
    QueryMessage,
    SearchOffset,
    ViewMessage,
)
from sparrowmq.protocol.subscription import ALL, TAG, Subscription, check_tags
from sparrowmq.remoting.log_limit import LogLimit

_LINES: Final = LogLimit(SystemClock())  # about damaged answers, of all readers in this program

PAGE: Final = 32  # Apache's brokers give no more at once


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to one pull.

    Attributes:
        code: SUCCESS, or one of `pulling.ACCEPTED`.
        next_offset: the offset of the next page.
    """

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage]


async def view_message(asker: Asker, address: str, physical_offset: int) -> StoredMessage:
    return record.decode((await asker.ask(address, ViewMessage(offset=physical_offset))).body)


async def query_messages(asker: Asker, address: str, request: QueryMessage) -> list[StoredMessage]:
    """Return the messages whose key has the same hash, so possibly others too.

    A broker without any answers QUERY_NOT_FOUND (22), an error.
    """
    return [record.decode(each) for each in record.walk((await asker.ask(address, request)).body)]


async def min_offset(asker: Asker, address: str, queue: MessageQueue) -> int:
    answer = await asker.ask(address, GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def max_offset(asker: Asker, address: str, queue: MessageQueue) -> int:
    """Return the offset that the next message will get."""
    answer = await asker.ask(address, GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def offset_since(
    asker: Asker,
    address: str,
    queue: MessageQueue,
    timestamp_ms: int,
) -> int:
    """Return the offset of the first message that was stored at a time or later."""
    request = SearchOffset(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type=FIRST_AT_OR_AFTER
    )
    return (await asker.ask(address, request)).header.offset


async def pull_page(
    asker: Asker,
    address: str,
    queue: MessageQueue,
    offset: int,
    *,
    expression: str = ALL,
    count: int = PAGE,
    group: str = TOOLS_GROUP,
) -> Page:
    """Return messages of a queue from an offset on; the broker does not wait for new ones.

    Args:
        expression: only messages with these tags.
    Raises:
        RemoteProtocolError: a reader that goes on at the page's next offset would never come to an end.
    """
    check_tags(expression)
    wanted = Subscription.build(queue.topic, expression, TAG, 0)
    request = pulling.request(group, queue, offset, wanted, count=count, hold_s=0)
    answer = await asker.ask(address, request, accept=pulling.ACCEPTED)
    header = answer.header
    if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        pulling.demand_progress(queue, offset, header.next_begin_offset)
    messages = [each.stored for each in pulling.messages_in(answer.body, queue, wanted, _LINES)]
    return Page(answer.code, header.next_begin_offset, header.min_offset, header.max_offset, messages)
