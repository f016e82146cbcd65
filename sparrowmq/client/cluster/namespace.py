"""Queues as a program in a namespace knows them, and as brokers do.

    the program      orders          %RETRY%billing          %DLQ%billing
    its brokers      shop%orders     %RETRY%shop%billing     %DLQ%shop%billing

A program may use either name, and gets its own. RocketMQ's own topics and groups are in no namespace. Logs and the
texts of servers have full names, which operators can look up.
Source: ClientConfig and NamespaceUtil, Java 4.9.8.
"""

from __future__ import annotations

from functools import lru_cache

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import with_namespace, without_namespace


@lru_cache(maxsize=65536)
def plain_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue as a program in the namespace knows it. Cached, because each delivered message asks."""
    topic = without_namespace(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)


@lru_cache(maxsize=65536)
def full_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue as brokers know it."""
    topic = with_namespace(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)
