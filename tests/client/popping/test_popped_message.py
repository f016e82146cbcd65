from typing import Any

import pytest

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt, check_popped
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.testing.clock import ManualClock
from tests.client.consuming.test_received import stored

QUEUE = MessageQueue("t", "broker-a", 1)
HANDLE = ReceiptHandle(5, 1_795_144_375_341, 30_000, 2, Kind.NORMAL, "broker-a", 1, 7)


def popped(receipt: Receipt, count: int = 1, queue: MessageQueue = QUEUE, owner: Any = None) -> list[PoppedMessage]:
    """Messages that share a receipt."""
    messages = [PoppedMessage(stored(), queue, None, owner) for _ in range(count)]
    for message in messages:
        message._receipt = receipt
    return messages


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def message(clock):
    own = Receipt.own("t", str(HANDLE), HANDLE, clock)
    (message,) = popped(own)
    return message


async def test_a_message_is_current_until_it_becomes_visible(clock, message):
    assert message._remaining_s == 30
    await clock.advance(29.5)
    assert message.is_current
    await clock.advance(1)
    assert not message.is_current


async def test_another_handle_begins_the_time_again(clock, message):
    await clock.advance(29)
    message._renew("other", HANDLE._replace(invisible_ms=10_000))
    assert message._remaining_s == 10
    assert message._handle_text == "other"


def test_it_has_all_fields_of_a_received_message(message):
    fields = dir(ReceivedMessage(stored(), message.queue))
    assert {"_owner", "offset"} <= {*fields} and all(hasattr(message, name) for name in fields)


def test_messages_that_share_a_receipt_have_handles_of_their_own(clock):
    shared = Receipt("t", HANDLE._replace(queue_offset=5), clock, 30.0)
    first, second = popped(shared, 2)
    first.offset, second.offset = 5, 7
    assert (first._handle, second._handle) == (shared.handle, HANDLE)
    assert second._handle_text == str(HANDLE)


def test_only_a_popped_message_has_a_receipt(message):
    assert check_popped(message) is message
    with pytest.raises(ConfigError, match="not received by a simple consumer"):
        check_popped("text")
