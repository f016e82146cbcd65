"""Search messages: by either id, by key, or by the time of storage.

    unique id    made by the sender: each broker of the topic looks it up in its index
    offset id    made by the broker: it names the broker and the place
    key          looked up in the index, which holds hashes: messages with the same hash and another key are dropped
    time         each queue is searched for its first message, and read from there

Both ids have the same form; an id that names a broker of the cluster is an offset id. Source: MQAdminImpl and
QueryMsgByIdSubCommand, Java 4.9.8.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from sparrowmq.client.admin.operations.message_operations import PAGE, query_messages, view_message
from sparrowmq.client.admin.servers import Masters, Servers
from sparrowmq.client.admin.topic_reading import FOR_EVER_MS, age, read_span
from sparrowmq.client.arguments import check_text, check_time
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.errors import ConfigError, InvalidMessage, NoMessage, RemoteError, RemoteProtocolError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import trace
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.message_id import OffsetId, parse_offset_id
from sparrowmq.protocol.messages.trace import Trace
from sparrowmq.protocol.requests.headers import QueryMessage

log = logging.getLogger(__name__)

MOST_TRACES: Final = 64  # messages with traces of one; Apache's brokers give no more


async def by_id(servers: Servers, msg_id: str, topic: str | None) -> ReceivedMessage:
    check_text("msg_id", msg_id)
    if (found_at := await _place(servers, msg_id)) is not None:
        return await _at(servers, msg_id, *found_at)
    if topic is None:
        raise ConfigError(
            f"{msg_id} names no broker of this cluster, so its sender made it; such ids are found in "
            "their topic: name it, too"
        )
    masters = await servers.masters_of(topic)
    request = QueryMessage(topic, msg_id, PAGE, 0, FOR_EVER_MS, unique_key_query=True)
    found = [each for each in await _query(servers, masters, request) if each.stored.unique_key == msg_id]
    if not found:
        raise NoMessage(msg_id, f"in topic {topic}")
    return found[0]


async def traces(servers: Servers, topic: str, msg_id: str) -> list[Trace]:
    """See `Admin.trace`; damaged traces are logged and left out."""
    found: list[Trace] = []
    for message in await by_key(servers, topic, msg_id, None, None, MOST_TRACES):
        try:
            found += trace.decode(message.text())
        except (RemoteProtocolError, InvalidMessage) as error:
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
    reading = await read_span(servers, topic, range(_ms("since", since, 0), _ms("until", until, FOR_EVER_MS)))
    found: list[ReceivedMessage] = []
    while len(found) < limit and await reading.peek():
        found.append(await anext(reading))
    return found


async def _place(servers: Servers, msg_id: str) -> tuple[str, OffsetId] | None:
    """Return the broker and the place in an offset id; None if no broker here has the address."""
    try:
        place = parse_offset_id(msg_id)
    except RemoteProtocolError:
        return None
    brokers = await servers.brokers()
    names = [broker.name for broker in brokers if place.store_host in broker.addresses.values()]
    return (names[0], place) if names else None


async def _at(servers: Servers, msg_id: str, broker: str, place: OffsetId) -> ReceivedMessage:
    try:
        stored = await view_message(servers, place.store_host, place.physical_offset)
    except RemoteError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        raise NoMessage(msg_id, f"at {place.store_host}") from error
    return _received(servers, stored, broker)


async def _query(servers: Servers, masters: Masters, request: QueryMessage) -> list[ReceivedMessage]:
    """Return the messages of all brokers in the order of their storage."""

    async def at(broker: str, address: str) -> list[ReceivedMessage]:
        try:
            found = await query_messages(servers, address, request)
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            raise
        return [_received(servers, each, broker) for each in found]

    found = await servers.all(masters, at)
    return sorted((each for messages in found.values() for each in messages), key=age)


def _received(servers: Servers, stored: StoredMessage, broker: str) -> ReceivedMessage:
    queue = MessageQueue(stored.topic, broker, stored.queue_id)
    return ReceivedMessage(stored, queue, namespace=servers.network.namespace)


def _ms(name: str, time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else check_time(name, time)
