import pytest

from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt, receipt_of
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.testing.clock import ManualClock
from tests.client.consuming.test_received import stored

HANDLE = ReceiptHandle(5, 1_795_144_375_341, 30_000, 2, Kind.NORMAL, "broker-a", 1, 7)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def message(clock):
    receipt = Receipt("t", str(HANDLE), HANDLE, clock)
    return PoppedMessage(stored(), MessageQueue("t", "broker-a", 1), receipt)


async def test_a_message_is_current_until_it_becomes_visible(clock, message):
    assert message.receipt.left_s == 30
    await clock.advance(29.5)
    assert message.is_current
    await clock.advance(1)
    assert not message.is_current


async def test_another_handle_begins_the_time_again(clock, message):
    await clock.advance(29)
    message.receipt.renew("other", HANDLE._replace(invisible_ms=10_000))
    assert message.receipt.left_s == 10
    assert message.receipt.text == "other"


def test_only_a_popped_message_has_a_receipt(message):
    assert receipt_of(message) is message.receipt
    with pytest.raises(ConfigError, match="not received by a simple consumer"):
        receipt_of("text")
