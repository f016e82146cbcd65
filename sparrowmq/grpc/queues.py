"""A topic's queues, as clients of the gRPC port see them: on the masters of their brokers.

A client sends each request for a queue to the endpoints in the answer. These are the endpoints that it has asked, or
the address of the port.
Source: RouteActivity, Java 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sparrowmq.core.digits import whole_number
from sparrowmq.grpc.wire_types import AddressScheme, MessageType, Permission, message
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.messages import message_types
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.messages.message_types import MESSAGE_TYPE, type_of_topic
from sparrowmq.protocol.requests.bodies import MASTER, QueueRoute, TopicConfig, TopicRoute
from sparrowmq.protocol.string_hash import string_hash


def accepted_types(config: TopicConfig) -> Sequence[MessageType]:
    """The types of messages of a topic, as its route lists them.

    Unlike Java, where it takes normal messages only, a topic without a type is as one of the type MIXED. PRIORITY is
    not among them: clients of Java before 5.2.0 do not know it, and refuse a list that has it.
    """
    topic_type = type_of_topic(config.attributes) if has_type(config) else message_types.MessageType.MIXED
    return [MessageType[kind.name] for kind in message_types.accepted_types(topic_type)]


def has_type(config: TopicConfig) -> bool:
    """Whether a topic takes messages of its type only."""
    return MESSAGE_TYPE in (config.attributes or {})


def endpoints_of(address: str) -> Any:
    """The `Endpoints` of one address."""
    host, port = split_address(address)
    endpoints = message("Endpoints")(scheme=_scheme(host))
    endpoints.addresses.add(host=host, port=port)
    return endpoints


def _scheme(host: str) -> AddressScheme:
    if ":" in host:
        return AddressScheme.IPV6
    is_ipv4 = all(whole_number(part) is not None for part in host.split("."))
    return AddressScheme.IPV4 if is_ipv4 else AddressScheme.DOMAIN_NAME


def queue_messages(topic: Any, route: TopicRoute, types: Sequence[int], endpoints: Any) -> Iterator[Any]:
    """Each `MessageQueue` of a topic on brokers with a master.

    Args:
        topic: the `Resource` of the client.
    """
    for row in _rows_of_masters(route):
        readable = row.read_queue_nums if row.perm & Perm.READ else 0
        writable = row.write_queue_nums if row.perm & Perm.WRITE else 0
        for queue_id in range(max(readable, writable)):
            yield queue_message(
                topic,
                (row.broker_name, queue_id, _permission(queue_id < readable, queue_id < writable)),
                types,
                endpoints,
            )


def queue_message(topic: Any, place: tuple[str, int, Permission], types: Sequence[int], endpoints: Any) -> Any:
    """One `MessageQueue`. `place`: the name of its broker, its id and its permission."""
    broker_name, queue_id, permission = place
    queue = message("MessageQueue")(id=queue_id, permission=permission, accept_message_types=types)
    queue.topic.CopyFrom(topic)
    queue.broker.name = broker_name
    queue.broker.id = MASTER
    queue.broker.endpoints.CopyFrom(endpoints)
    return queue


def _permission(is_readable: bool, is_writable: bool) -> Permission:
    if is_readable:
        return Permission.READ_WRITE if is_writable else Permission.READ
    return Permission.WRITE


def writable_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues that take messages, by broker name and id."""
    return [
        MessageQueue(topic, row.broker_name, queue_id)
        for row in _rows_of_masters(route)
        if row.perm & Perm.WRITE
        for queue_id in range(row.write_queue_nums)
    ]


def _rows_of_masters(route: TopicRoute) -> list[QueueRoute]:
    """The queues of brokers with a master, by broker name."""
    masters = {row.broker_name for row in route.broker_datas if MASTER in row.broker_addrs}
    rows = [row for row in route.queue_datas if row.broker_name in masters]
    return sorted(rows, key=lambda row: row.broker_name)


def queue_of_group(group: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a message group: the same one at each port, also Apache's."""
    return queues[place_of_group(group, len(queues))]


def place_of_group(group: str, queues: int) -> int:
    """The place of a message group's queue among so many."""
    return _consistent_hash(string_hash(group), queues)


_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1


def _consistent_hash(value: int, buckets: int) -> int:
    """Choose a bucket, so that few values move when one is added (jump hash, as in Guava's `Hashing`)."""
    state, candidate = value & _MASK, 0
    while True:
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if following >= buckets:
            return candidate
        candidate = following
