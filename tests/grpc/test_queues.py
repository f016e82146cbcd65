"""Queues as clients see them."""

import pytest

from sparrowmq.grpc.brokers import (
    accepted_types,
    endpoints_of,
    message_queues,
    queue_of_message_group,
    writable_queues,
)
from sparrowmq.grpc.wire_types import MessageType, Permission
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import QueueRoute, TopicConfig
from tests.grpc.scripted import named, route


@pytest.mark.parametrize(
    ("topic_type", "types"),
    [
        ("FIFO", [MessageType.FIFO]),
        ("PRIORITY", [MessageType.PRIORITY]),
        ("MIXED", [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]),
        (None, [1, 2, 3, 4]),  # no PRIORITY, which clients of Java before 5.2.0 do not know
    ],
)
def test_topic_takes_messages_of_its_type(topic_type, types):
    attributes = {"message.type": topic_type} if topic_type else None
    assert list(accepted_types(TopicConfig("t", attributes=attributes))) == types


def test_queues_of_brokers_without_a_master_are_left_out():
    found = route("a", "b", queues=2)
    found.broker_datas[1].broker_addrs = {1: "127.0.0.1:9"}
    endpoints = endpoints_of("127.0.0.1:8081")
    queues = list(message_queues(named("t"), found, [MessageType.NORMAL], endpoints))
    assert [(queue.broker.name, queue.id, queue.permission) for queue in queues] == [("a", 0, 4), ("a", 1, 4)]
    assert queues[0].broker.endpoints == endpoints
    assert list(queues[0].accept_message_types) == [1]
    assert writable_queues("t", found) == [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)]


@pytest.mark.parametrize(
    ("row", "permissions"),
    [
        (QueueRoute("a", 1, 2, 6), [Permission.READ_WRITE, Permission.WRITE]),
        (QueueRoute("a", 2, 1, 6), [Permission.READ_WRITE, Permission.READ]),
        (QueueRoute("a", 2, 1, 4), [Permission.READ, Permission.READ]),
        (QueueRoute("a", 2, 1, 2), [Permission.WRITE]),
    ],
)
def test_each_queue_has_its_own_permission(row, permissions):
    found = route("a")
    found.queue_datas = [row]
    assert [each.permission for each in message_queues(named("t"), found, [], endpoints_of("h:1"))] == permissions


@pytest.mark.parametrize(
    ("address", "scheme", "host"),
    [("127.0.0.1:1", 1, "127.0.0.1"), ("[::1]:1", 2, "::1"), ("broker.example:1", 3, "broker.example")],
)
def test_endpoints_have_the_scheme_of_their_host(address, scheme, host):
    endpoints = endpoints_of(address)
    assert (endpoints.scheme, endpoints.addresses[0].host, endpoints.addresses[0].port) == (scheme, host, 1)


# Guava 32: Hashing.consistentHash(group.hashCode(), queues)
@pytest.mark.parametrize(
    ("group", "count", "queue_id"),
    [
        ("g1", 1, 0),
        ("g1", 4, 0),
        ("g1", 7, 6),
        ("g1", 16, 9),
        ("order-17", 4, 3),
        ("ä", 7, 4),
        ("ä", 16, 14),
        ("zzzzzzzzzzzz", 16, 3),
    ],
)
def test_message_group_has_the_queue_that_apaches_proxy_chooses(group, count, queue_id):
    queues = [MessageQueue("t", "a", number) for number in range(count)]
    assert queue_of_message_group(group, queues).queue_id == queue_id
