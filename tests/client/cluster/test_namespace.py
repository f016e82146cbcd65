"""Queues inside a namespace and outside of it."""

import pytest

from sparrowmq.client.cluster.network import full_queue, plain_queue
from sparrowmq.protocol.messages.message import MessageQueue


@pytest.mark.parametrize(
    ("plain", "full"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    ],
)
def test_a_queue_has_two_names(plain, full):
    inside, outside = MessageQueue(plain, "broker-a", 3), MessageQueue(full, "broker-a", 3)
    assert full_queue("shop", inside) == outside == full_queue("shop", outside)
    assert plain_queue("shop", outside) == inside == plain_queue("shop", inside)


def test_queues_of_other_namespaces_keep_their_names():
    other = MessageQueue("other%orders", "broker-a", 3)
    assert plain_queue("shop", other) == other
    assert full_queue("shop", other) == MessageQueue("shop%other%orders", "broker-a", 3)
