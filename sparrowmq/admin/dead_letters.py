"""Dead letters: messages that failed every try of a group; shown, and sent again.

    %DLQ%billing    one queue at each broker, kept as long as other messages (fileReservedTime)
    sent again      to %RETRY%billing: only that group gets it, with all its tries, and as if it had never failed

They stay in the dead-letter queue until they are too old. One was sent again if the retry topic has a copy that is
younger: the copies of its tries before are older. Source: the dashboard's DlqMessageServiceImpl, which passes one to a
member of the group; here no member need be online.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from sparrowmq.admin import groups, topics
from sparrowmq.admin.catalogue import PAGE, query_messages
from sparrowmq.admin.message_search import FOR_EVER_MS, read_span
from sparrowmq.admin.servers import Servers, masters_in
from sparrowmq.client.arguments import check_count, check_kind
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.sending.send_request import SendContent
from sparrowmq.client.sending.send_result import LESS_SAFE
from sparrowmq.errors import BrokerUnreachable, InvalidMessage, NoGroup, NoRoute, RemoteError
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage, SysFlag, with_origin
from sparrowmq.protocol.messages.property_names import DELAYS, Property
from sparrowmq.protocol.requests.headers import QueryMessage

_MAX_TRIES: Final = 16
_SEARCHES_AT_ONCE: Final = 16  # searches
# Properties that say when a message is due, and where it waited.
DELAY_PROPERTIES: Final = frozenset(
    {*DELAYS, Property.REAL_TOPIC, Property.REAL_QID, Property.TIMER_OUT_MS, Property.CRC32}
)
# Properties of a committed half message: with them it would be a half message again.
TRANSACTION_PROPERTIES: Final = frozenset(
    {Property.TRAN_MSG, Property.TRAN_PREPARED_QUEUE_OFFSET, Property.TRANSACTION_CHECK_TIMES}
)


async def of_group(servers: Servers, group: str, *, limit: int = 64) -> list[ReceivedMessage]:
    """Return the messages that failed every try, the oldest first, as long as brokers keep them."""
    check_count("limit", limit)
    group = servers.network.full_group(group)
    with suppress(NoGroup):
        return [letter async for letter in walk(servers, group, limit=limit)]
    return []


async def walk(
    servers: Servers, group: str, since_ms: int = 0, limit: int | None = None
) -> AsyncGenerator[ReceivedMessage, None]:
    """Yield the dead letters of a group that were stored since, the oldest first. Raises: NoGroup."""
    topic = names.dlq_topic(names.check_group(group))
    try:
        reading = await read_span(servers, topic, range(since_ms, FOR_EVER_MS))
    except NoRoute:
        await groups.show(servers, group)
        return
    count = 0
    async for letter in reading:
        yield letter
        count += 1
        if count == limit:
            return


async def resend(servers: Servers, dead_letter: ReceivedMessage) -> None:
    """Let the group of a dead letter try it again, from the first time on; other groups do not get it.

    It stays in the dead-letter queue; sent again twice, it comes twice. Raises: InvalidMessage, it is no dead
    letter.
    """
    check_kind("dead_letter", dead_letter, ReceivedMessage, "one of `dead_letters`")
    dead_letter_queue = servers.network.full_queue(dead_letter.queue)
    topic = dead_letter_queue.topic
    if not topic.startswith(names.DLQ):
        raise InvalidMessage(f"{dead_letter.msg_id} is no dead letter: it was read from {topic}")
    retry = packed_retry(dead_letter.stored, topic.removeprefix(names.DLQ))
    await _send(servers, retry, dead_letter_queue)


def reason_of(letter: ReceivedMessage) -> str | None:
    """Return the reason that its consumer gave; None if it failed without one."""
    return letter.stored.properties.get(Property.REJECT_REASON)


async def sent_again(servers: Servers, letters: Sequence[ReceivedMessage]) -> list[datetime | None]:
    """Return when each dead letter was sent to its group again; None if it was not, or has no unique id to look for."""

    async def resend_time_of(letter: ReceivedMessage) -> datetime | None:
        queue = servers.network.full_queue(letter.queue)
        address = masters_in(await servers.route(queue.topic)).get(queue.broker_name)
        key = letter.stored.unique_key
        if address is None or key is None:
            return None
        topic, begin_ms = names.retry_topic(queue.topic.removeprefix(names.DLQ)), letter.store_timestamp_ms + 1
        request = QueryMessage(topic, key, PAGE, begin_ms, FOR_EVER_MS, unique_key_query=True)
        try:
            copies = await query_messages(servers, address, request)
        except RemoteError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        times = [stored_ms.store_timestamp_ms for stored_ms in copies if stored_ms.unique_key == key]
        first_ms = min((stored_ms for stored_ms in times if stored_ms >= begin_ms), default=0)
        return topics.local_time(first_ms)

    times: list[datetime | None] = []
    for index in range(0, len(letters), _SEARCHES_AT_ONCE):
        times += await asyncio.gather(*map(resend_time_of, letters[index : index + _SEARCHES_AT_ONCE]))
    return times


async def replay(servers: Servers, message: ReceivedMessage, group: str) -> None:
    """Let one group handle a message again, or for the first time; other groups do not get it.

    It comes by the group's retries, so not in the order of its queue; consumers in order do not get it.
    """
    group = servers.network.full_group(group)
    check_kind("message", message, ReceivedMessage, "a message, as `find` and `message` return it")
    origin, stored = servers.network.full_queue(message.queue), message.stored
    # As a consumer's broker writes it when a message comes back: members see the topic that it came from.
    retried_message = msgspec.structs.replace(stored, properties=with_origin(stored.properties, stored))
    await _send(servers, packed_retry(retried_message, group), origin)


async def _send(servers: Servers, retry: SendContent, origin: MessageQueue) -> None:
    queue = MessageQueue(retry.topic, origin.broker_name, 0)
    address = masters_in(await servers.route(origin.topic)).get(queue.broker_name)
    if address is None:
        raise BrokerUnreachable(queue.broker_name, "it has no master now")
    header = retry.request(names.TOOLS_GROUP, queue, servers.network.clock.now_ms())
    await servers.ask(address, header, retry.body, accept=LESS_SAFE)


def packed_retry(stored: StoredMessage, group: str) -> SendContent:
    """Return a dead letter for its group's retry topic, as if it had never failed."""
    kept_properties = {
        name: value
        for name, value in stored.properties.items()
        if name not in DELAY_PROPERTIES | TRANSACTION_PROPERTIES
    }
    flags = stored.sys_flag & SysFlag.OF_BODY
    # Its own limit, or a group without retries would have it among the dead letters at once.
    return SendContent(
        names.retry_topic(group),
        stored.body,
        properties.render(kept_properties),
        flags,
        stored.flag,
        max_reconsume_times=_MAX_TRIES,
    )
