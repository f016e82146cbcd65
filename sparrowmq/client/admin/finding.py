"""Finds messages: by one of their two ids, by key, or by when they were stored.

    unique id    made by the sender: each broker of the topic looks it up in its index
    offset id    made by the broker: it names the broker and the place
    key          likewise by the index, which holds hashes: whose hash agrees and key does not is left out
    time         each queue is searched for its first message, and read from there

Both ids have the same form, so an id is an offset id when it names a broker of the cluster. Source: MQAdminImpl and
QueryMsgByIdSubCommand, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Final

from sparrowmq.client.admin.servers import Masters, Servers, masters_in
from sparrowmq.client.arguments import check_text, check_time
from sparrowmq.client.cluster.route import Route
from sparrowmq.client.consuming import pulling
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.errors import ConfigError, NoMessage, RemoteError, RemoteProtocolError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record, trace
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.message_id import OffsetId, parse_offset_id
from sparrowmq.protocol.messages.trace import Trace
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.protocol.requests.headers import FIRST_AT_OR_AFTER, QueryMessage, SearchOffset, ViewMessage
from sparrowmq.protocol.subscription import ALL, TAG, Subscription

log = logging.getLogger(__name__)

FOR_EVER_MS: Final = (1 << 63) - 1
AT_ONCE: Final = 32  # more Apache's brokers do not answer
MOST_TRACES: Final = 64  # messages with traces of one, likewise


async def by_id(servers: Servers, msg_id: str, topic: str | None) -> ReceivedMessage:
    """See `Admin.message`."""
    check_text("msg_id", msg_id)
    if (found_at := await _place(servers, msg_id)) is not None:
        return await _at(servers, msg_id, *found_at)
    if topic is None:
        raise ConfigError(
            f"{msg_id} names no broker of this cluster, so its sender made it; such ids are found in "
            "their topic: name it, too"
        )
    masters = await servers.masters_of(topic)
    request = QueryMessage(topic, msg_id, AT_ONCE, 0, FOR_EVER_MS, unique_key_query=True)
    found = [each for each in await _query(servers, masters, request) if each.stored.unique_key == msg_id]
    if not found:
        raise NoMessage(msg_id, f"in topic {topic}")
    return found[0]


async def traces(servers: Servers, topic: str, msg_id: str) -> list[Trace]:
    """See `Admin.trace`; what cannot be read is left out, with a line in the log."""
    found: list[Trace] = []
    for message in await by_key(servers, topic, msg_id, None, None, MOST_TRACES):
        try:
            found += trace.decode(message.text())
        except (RemoteProtocolError, UnicodeDecodeError) as error:
            log.warning("%r is no trace: %s", message, error)
    return sorted((each for each in found if each.msg_id == msg_id), key=lambda each: each.time_ms or 0)


async def by_key(
    servers: Servers, topic: str, key: str, since: datetime | None, until: datetime | None, limit: int
) -> list[ReceivedMessage]:
    """See `Admin.find`."""
    check_text("key", key)
    masters = await servers.masters_of(topic)
    request = QueryMessage(topic, key, limit, _ms("since", since, 0), _ms("until", until, FOR_EVER_MS))
    found = [each for each in await _query(servers, masters, request) if key in each.keys]
    return found[-limit:]


async def by_time(
    servers: Servers, topic: str, since: datetime, until: datetime | None, limit: int
) -> list[ReceivedMessage]:
    """See `Admin.find`."""
    route = await servers.route(topic)
    queues = Route.build(topic, route).readable
    span = range(_ms("since", since, 0), _ms("until", until, FOR_EVER_MS))

    async def at(broker: str, address: str) -> list[ReceivedMessage]:
        own = [queue for queue in queues if queue.broker_name == broker]
        return [each for queue in own for each in await read(servers, address, queue, span, limit)]

    found = await servers.all(masters_in(route), at)
    return in_order([each for messages in found.values() for each in messages])[:limit]


async def _place(servers: Servers, msg_id: str) -> tuple[str, OffsetId] | None:
    """The broker that an offset id names, and where it says its message is; None if none here is at that address."""
    try:
        place = parse_offset_id(msg_id)
    except RemoteProtocolError:
        return None
    brokers = await servers.brokers()
    names = [broker.name for broker in brokers if place.store_host in broker.addresses.values()]
    return (names[0], place) if names else None


async def _at(servers: Servers, msg_id: str, broker: str, place: OffsetId) -> ReceivedMessage:
    try:
        answer = await servers.ask(place.store_host, ViewMessage(offset=place.physical_offset))
    except RemoteError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        raise NoMessage(msg_id, f"at {place.store_host}") from error
    return _received(servers, record.decode(answer.body), broker)


async def _query(servers: Servers, masters: Masters, request: QueryMessage) -> list[ReceivedMessage]:
    """What the brokers have for a query, by the time when it was stored."""

    async def at(broker: str, address: str) -> list[ReceivedMessage]:
        try:
            answer = await servers.ask(address, request)
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            raise
        return [_received(servers, record.decode(each), broker) for each in record.walk(answer.body)]

    found = await servers.all(masters, at)
    return in_order([each for messages in found.values() for each in messages])


async def read(
    servers: Servers, address: str, queue: MessageQueue, span: range, limit: int
) -> list[ReceivedMessage]:
    """The first messages of a queue that were stored in a span of milliseconds."""
    found: list[ReceivedMessage] = []
    async with aclosing(walk(servers, address, queue, span)) as messages:
        async for each in messages:
            found.append(each)
            if len(found) == limit:
                break
    return found


async def walk(
    servers: Servers, address: str, queue: MessageQueue, span: range
) -> AsyncGenerator[ReceivedMessage, None]:
    """The messages of a queue, as it is now, that were stored in a span of milliseconds; it keeps a page of them."""
    everything = Subscription.build(queue.topic, ALL, TAG, 0)
    search = SearchOffset(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=span.start, boundary_type=FIRST_AT_OR_AFTER
    )
    offset = (await servers.ask(address, search)).header.offset
    end: int | None = None
    while True:
        request = pulling.request(TOOLS_GROUP, queue, offset, everything, count=AT_ONCE, hold_s=0)
        session = await servers.network.brokers.session(address)  # another one after a pause, maybe
        answer = await session.call(request, timeout_s=servers.timeout_s, accept=pulling.ACCEPTED)
        messages = pulling.messages_in(answer.body, queue, everything)
        for each in messages:
            if each.store_timestamp_ms in span:
                yield _received(servers, each, queue.broker_name)
        is_past = bool(messages) and messages[-1].store_timestamp_ms >= span.stop
        end = answer.header.max_offset if end is None else end
        if is_past or answer.header.next_begin_offset <= offset or answer.header.next_begin_offset >= end:
            return
        offset = answer.header.next_begin_offset


def _received(servers: Servers, stored: StoredMessage, broker: str) -> ReceivedMessage:
    queue = MessageQueue(stored.topic, broker, stored.queue_id)
    return ReceivedMessage(stored, queue, namespace=servers.network.namespace)


def in_order(messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    return sorted(messages, key=age)


def age(message: ReceivedMessage) -> tuple[int, MessageQueue, int]:
    """What puts the eldest first, always in the same order."""
    return message.store_timestamp_ms, message.queue, message.offset


def _ms(name: str, time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else check_time(name, time)
