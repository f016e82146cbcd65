"""A namespace that our client and Java's share: each gets what the other sends, and by the same short names."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import sparrowmq.sync
from sparrowmq import ReceivedMessage
from sparrowmq.client.blocking_client import SyncClient

pytestmark = [pytest.mark.slow, pytest.mark.cell("namespace")]

NAMESPACE = "room"


@pytest.fixture
def ours(target) -> Iterator[SyncClient]:
    with sparrowmq.sync.connect(target.namesrv, namespace=NAMESPACE) as mq:
        yield mq


@pytest.fixture
def inside(target, topic, group) -> tuple[str, str]:
    """A topic and a group by their short names."""
    target.create_topic(f"{NAMESPACE}%{topic}")
    target.create_group(f"{NAMESPACE}%{group}", retries=16)
    return topic, group


def test_what_java_sends_comes_to_us_and_comes_again(target, java, ours, inside):
    topic, group = inside
    with java.producing(namespace=NAMESPACE):
        java.send(topic, "from Java", tags="paid")
    with ours.subscribe(topic, group=group, start="earliest", tag="paid") as messages:
        (first,) = messages.take()
        assert (first.topic, first.queue.topic, first.text()) == (topic, topic, "from Java")
        assert first.properties["INSTANCE_ID"] == NAMESPACE
        first.retry(delay_level=1)
        (again,) = messages.take()
        assert (again.topic, again.reconsume_times) == (topic, 1)
        assert again.queue.topic == f"%RETRY%{group}"
        again.ack()
    assert target.end_of(f"%RETRY%{NAMESPACE}%{group}") == 1


def test_what_we_send_comes_to_java_and_comes_again(java, ours, inside):
    topic, group = inside
    ours.send(topic, b"from us", tag="paid")
    with java.consume(group, topic, "paid", namespace=NAMESPACE, fail=1) as consumer:
        events = consumer.wait_for(2)
    assert [(each["body"], each["topic"], each["retries"]) for each in events] == [
        ("from us", topic, 0),
        ("from us", topic, 1),
    ]


def test_members_of_both_kinds_share_one_group(target, java, ours, inside):
    topic, group = inside
    with (
        java.consume(group, topic, namespace=NAMESPACE) as consumer,
        ours.subscribe(topic, group=group, start="earliest") as messages,
    ):
        deadline = time.monotonic() + 60
        while sum(queue.topic == topic for queue in messages.queues) != 1:
            assert time.monotonic() < deadline, messages.queues
            time.sleep(0.05)
        mine = next(queue for queue in messages.queues if queue.topic == topic)
        for queue in ours.queues(topic):
            ours.send(topic, f"{queue.queue_id}".encode(), queue=queue)
        (message,) = messages.take()
        assert message.queue == mine and message.text() == str(mine.queue_id)
        message.ack()
        # Java's may get ours once more: it gives our queue up a moment after we took it.
        consumer.wait_for_bodies([str(1 - mine.queue_id)])
        assert len(target.members(f"{NAMESPACE}%{group}")) == 2


def test_requests_inside_are_answered_either_way(java, ours, inside):
    topic, group = inside

    def answer(message: ReceivedMessage) -> None:
        ours.reply(message, b"ours: " + message.topic.encode())

    with java.producing(namespace=NAMESPACE):
        with ours.subscribe(topic, answer, group=group, start="earliest"):
            assert java.call("request", topic=topic, body="EURUSD")["body"] == f"ours: {topic}"
        with java.consume(group, topic, namespace=NAMESPACE):
            assert ours.request(topic, b"EURUSD", timeout_s=20).text() == "re: EURUSD"
