import base64

import pytest

from sparrowmq.client.popping.pop_requests import MAX_ACK_BITS, batches_of
from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.receipt_handle import ORDERLY_REVIVE_QUEUE, Kind
from sparrowmq.testing.clock import ManualClock
from tests.client.popping.test_popped_message import HANDLE
from tests.client.popping.test_popped_message import popped as messages_with

CLOCK = ManualClock()


def popped(offset: int, topic: str = "t", **changes) -> PoppedMessage:
    """A message with a receipt of its own."""
    own = Receipt.own(topic, "", HANDLE._replace(queue_offset=offset, **changes), CLOCK)
    (message,) = messages_with(own, queue=MessageQueue(topic, "broker-a", 1))
    return message


def sharing(*offsets: int) -> list[PoppedMessage]:
    """Messages of one pop of one queue."""
    receipt = Receipt("t", HANDLE._replace(queue_offset=offsets[0]), CLOCK, 30.0)
    messages = messages_with(receipt, len(offsets))
    for message, offset in zip(messages, offsets, strict=True):
        message.offset = offset
    return messages


def bits_of(text: str) -> list[int]:
    number = int.from_bytes(base64.b64decode(text), "little")
    return [place for place in range(number.bit_length()) if number >> place & 1]


@pytest.mark.parametrize("messages", [sharing(5, 7, 16), [popped(5), popped(7), popped(16)]])
def test_messages_of_one_pop_are_one_acknowledgement(messages):
    alone, batches = batches_of("g", messages)
    assert alone == []
    (ack,) = batches["broker-a"].acks
    assert bits_of(ack.bits) == [0, 2, 11]
    named = (ack.consumer_group, ack.topic, ack.retry, ack.start_offset, ack.queue_id, ack.revive_queue_id)
    assert named == ("g", "t", "0", 5, 1, 2)
    assert (ack.pop_time, ack.invisible_time) == (HANDLE.pop_time_ms, HANDLE.invisible_ms)


@pytest.mark.parametrize("offsets", [(5,) * 2, (5, 6), tuple(range(9, 30)), (13, 12), (5, 6, 8)])
def test_the_bits_are_those_of_the_messages(offsets):
    messages = sharing(*offsets)
    for message in messages:
        message._receipt = message._receipt._replace(handle=HANDLE)
    (ack,) = batches_of("g", messages)[1]["broker-a"].acks
    assert [ack.start_offset + place for place in bits_of(ack.bits)] == sorted(set(offsets))


def test_a_run_of_two_pops_has_an_acknowledgement_of_each():
    second = sharing(7, 8)
    for message in second:
        message._receipt = message._receipt._replace(handle=HANDLE._replace(start_offset=7, revive_queue=3))
    acks = batches_of("g", sharing(5, 6) + second)[1]["broker-a"].acks
    assert [(ack.start_offset, ack.revive_queue_id, bits_of(ack.bits)) for ack in acks] == [
        (5, 2, [0, 1]),
        (7, 3, [0, 1]),
    ]


def test_pops_queues_topics_and_brokers_have_acknowledgements_of_their_own():
    pairs = [
        [popped(5, **changes), popped(6, **changes)]
        for changes in (
            {},
            {"queue_id": 2},
            {"pop_time_ms": 9},
            {"kind": Kind.RETRY_V1},
            {"topic": "u"},
            {"broker_name": "broker-b"},
        )
    ]
    alone, batches = batches_of("g", [each for pair in pairs for each in pair])
    assert alone == []
    assert {name: len(batch.acks) for name, batch in batches.items()} == {"broker-a": 5, "broker-b": 1}
    assert {ack.retry for ack in batches["broker-a"].acks} == {"0", "1"}
    assert batches["broker-b"].messages == pairs[-1]


def test_those_that_are_far_from_the_start_of_their_pop_stay_alone():
    messages = sharing(5, 6, 5 + MAX_ACK_BITS)
    alone, batches = batches_of("g", messages)
    assert alone == messages[2:]
    assert batches["broker-a"].messages == messages[:2]


def test_a_run_that_ends_too_far_from_the_start_is_divided():
    messages = sharing(5, *range(4 + MAX_ACK_BITS, 7 + MAX_ACK_BITS))
    alone, batches = batches_of("g", messages)
    assert (alone, batches["broker-a"].messages) == (messages[2:], messages[:2])
    assert bits_of(batches["broker-a"].acks[0].bits) == [0, MAX_ACK_BITS - 1]


def test_orderly_far_and_single_messages_stay_alone():
    lonely = [
        *(popped(5 + place, revive_queue=ORDERLY_REVIVE_QUEUE) for place in range(2)),
        *(popped(5 + place + MAX_ACK_BITS) for place in range(2)),
        popped(4),
        popped(9, queue_id=7),
    ]
    alone, batches = batches_of("g", lonely)
    assert set(alone) == set(lonely)
    assert batches == {}
