"""kernel/messages.py: a pulled message is decoded once, and keeps no more than itself."""

from __future__ import annotations

import sys

import pytest

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.kernel.messages import receive, topic_start
from sparrowmq.protocol.messages import record
from tests import records


def pulled(body: bytes) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    assert receive(ReceivedMessage, body, found, []) is None
    return found


def test_everything_is_decoded_with_the_first_use_and_only_once():
    raw = records.encoded("t", 3, b"body", b"TAGS\x01a\x02KEYS\x01k\x02", queue_offset=7)
    (message,) = pulled(raw)
    assert message.stored == record.decode(raw)
    assert message.stored is message.stored


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        (b"", None),
        (b"TAGS\x01a\x02", "a"),
        (b"KEYS\x01TAGS\x02TAGS\x01\x02", None),
        (b"TAGS\x01a\x02TAGS\x01b", "b"),
    ],
)
def test_tags_are_found_without_the_rest(properties, tags):
    (message,) = pulled(records.encoded("t" * 200, properties=properties))
    assert message.tag == tags == message.stored.tags


def test_a_kept_message_does_not_keep_the_answer_that_brought_it():
    answer = records.encoded(body=b"x" * 100) * 1000
    before = sys.getrefcount(answer)
    kept = pulled(answer)[500]
    assert sys.getrefcount(answer) == before
    parts = [kept.body, kept._rest]
    assert sum(map(len, parts)) == kept.store_size


def test_its_queue_and_the_words_of_its_properties_are_found_without_the_rest():
    (message,) = pulled(records.encoded("t", 70_000, b"POP_CK", b"TAGS\x01a\x02"))
    assert message._queue_id() == 70_000 == message.stored.queue_id
    assert message._mentions(b"TAGS")
    assert not message._mentions(b"POP_CK")  # that is in the body


@pytest.mark.parametrize("other", ["t", "topic-2", "%RETRY%g_topic", "t" * 200, "t" * 300])
def test_its_topic_is_compared_without_decoding(other):
    (message,) = pulled(records.encoded("topic", properties=b"TAGS\x01a\x02"))
    assert message._queue_if_plain(topic_start("topic"), b"KEYS") == message._queue_id().to_bytes(4, "big")
    assert message._queue_if_plain(topic_start("topic"), b"TAGS") is None
    assert message._queue_if_plain(topic_start(other), b"KEYS") is None
    (long,) = pulled(records.encoded("t" * 200))
    assert long._queue_if_plain(topic_start("topic"), b"KEYS") is None
