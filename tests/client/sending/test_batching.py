import pytest

from sparrowmq.client.sending.encoder import MAX_COUNT, PreparedMessage, size_bytes, split_into_batches
from sparrowmq.protocol.messages.message import Message


def split(messages: list[Message], max_bytes: int) -> list[list[PreparedMessage]]:
    return list(split_into_batches([PreparedMessage(message, "id", "") for message in messages], max_bytes))


def sizes(batches) -> list[int]:
    return [len(batch) for batch in batches]


@pytest.mark.covers("S-PROD-18")
def test_a_batch_ends_before_it_gets_too_large():
    messages = [Message("t", b"x" * 79) for _ in range(5)]  # 100 bytes each, as batches count
    assert size_bytes(messages[0]) == 100
    assert sizes(split(messages, 250)) == [2, 2, 1]


def test_a_message_that_is_too_large_alone_is_a_batch_of_one():
    assert sizes(split([Message("t", b"x" * 500), Message("t", b"x")], 100)) == [1, 1]


def test_properties_count():
    assert size_bytes(Message("topic", b"body", properties={"name": "value"})) == 5 + 4 + 9 + 20


def test_a_batch_has_a_greatest_count():
    assert sizes(split([Message("t", b"x")] * (MAX_COUNT + 1), 1 << 20)) == [MAX_COUNT, 1]


@pytest.mark.covers("S-PROD-18")
@pytest.mark.parametrize(
    "stranger",
    [
        Message("other", b"x"),
        Message("t", b"x", delay_level=1),
        Message("t", b"x", wait_stored=False),
    ],
)
def test_what_may_not_travel_together_is_parted(stranger):
    usual = Message("t", b"x")
    assert sizes(split([usual, usual, stranger, usual], 1 << 20)) == [2, 1, 1]


def test_delayed_and_retried_messages_travel_alone():
    delayed = Message("t", b"x", delay_level=1)
    assert sizes(split([delayed, delayed], 1 << 20)) == [1, 1]
    assert sizes(split([Message("%RETRY%g", b"x")] * 2, 1 << 20)) == [1, 1]


def test_nothing_is_no_batch():
    assert split([], 100) == []
