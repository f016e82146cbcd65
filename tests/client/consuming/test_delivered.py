"""The content of a received message."""

from __future__ import annotations

import zlib
from typing import cast

import pytest

from sparrowmq.client.consuming.received_message import Owner, ReceivedMessage, deliver_from
from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.kernel.messages import receive
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from tests import records
from tests.client.consuming.test_received import QUEUE, stored


def pulled(*offsets: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    receive(ReceivedMessage, b"".join(records.encoded("n%t", 1, queue_offset=each) for each in offsets), found, [])
    return found


def test_it_says_what_was_sent():
    message = ReceivedMessage(stored(TAGS="paid", KEYS="k1 k2", UNIQ_KEY="ID", own="1"), QUEUE)
    assert (message.topic, message.tag, message.keys, message.msg_id) == ("t", "paid", ["k1", "k2"], "ID")
    assert (message.text(), message.json()) == ('{"a":1}', {"a": 1})
    assert message.properties["own"] == "1" and message.offset == 5
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1, 2)
    assert message.offset_msg_id == "0A00000200002A9F00000000000003E8"
    assert "ID" in repr(message)


def test_a_retried_message_has_its_own_topic():
    message = ReceivedMessage(stored(topic="%RETRY%g", RETRY_TOPIC="t"), QUEUE)
    assert message.topic == "t"


def test_a_compressed_body_is_inflated_when_it_is_looked_at():
    message = ReceivedMessage(stored(zlib.compress(b"x" * 1000), sys_flag=SysFlag.COMPRESSED), QUEUE)
    assert message.body == b"x" * 1000 and message.body is message.body
    broken = ReceivedMessage(stored(b"no zlib", sys_flag=SysFlag.COMPRESSED), QUEUE)
    with pytest.raises(RemoteProtocolError):
        _ = broken.body


def test_a_body_that_is_no_text_says_so():
    with pytest.raises(InvalidMessage, match=r"body of message \w+ is not UTF-8: .*invalid start byte"):
        ReceivedMessage(stored(b"\xff"), QUEUE).text()


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_says_so(body):
    with pytest.raises(InvalidMessage, match="not JSON"):
        ReceivedMessage(stored(body), QUEUE).json()


def test_a_pull_brings_messages_without_the_namespace():
    queue = MessageQueue("n%t", "a", 1)
    first, second = messages = pulled(3, 4)
    deliver_from(messages, queue, None, cast(Owner, None), "n")
    assert (first.offset, second.offset, first.queue, first.topic) == (3, 4, QUEUE, "t")
    assert isinstance(first, ReceivedMessage)
    assert not first.is_unsettled
