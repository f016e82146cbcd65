import base64

from sparrowmq.client.popping.ack_batches import MOST_BITS, batches_of
from sparrowmq.client.popping.popped_message import Receipt
from sparrowmq.protocol.receipt_handle import ORDERLY_REVIVE_QUEUE, Kind
from sparrowmq.testing.clock import ManualClock
from tests.client.popping.test_popped_message import HANDLE

CLOCK = ManualClock()


def receipt(offset: int, topic: str = "t", **changes) -> Receipt:
    return Receipt(topic, None, HANDLE._replace(queue_offset=offset, **changes), CLOCK)


def bits_of(text: str) -> list[int]:
    number = int.from_bytes(base64.b64decode(text), "little")
    return [place for place in range(number.bit_length()) if number >> place & 1]


def test_messages_of_one_pop_are_one_acknowledgement():
    alone, batches = batches_of("g", [receipt(5), receipt(7), receipt(16)])
    assert alone == []
    (ack,) = batches["broker-a"].acks
    assert bits_of(ack.bits) == [0, 2, 11]
    named = (ack.consumer_group, ack.topic, ack.retry, ack.start_offset, ack.queue_id, ack.revive_queue_id)
    assert named == ("g", "t", "0", 5, 1, 2)
    assert (ack.pop_time, ack.invisible_time) == (HANDLE.pop_time_ms, HANDLE.invisible_ms)


def test_pops_queues_topics_and_brokers_have_acknowledgements_of_their_own():
    pairs = [
        [receipt(5, **changes), receipt(6, **changes)]
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
    assert batches["broker-b"].receipts == pairs[-1]


def test_orderly_far_and_single_messages_stay_alone():
    lonely = [
        *(receipt(5 + place, revive_queue=ORDERLY_REVIVE_QUEUE) for place in range(2)),
        *(receipt(5 + place + MOST_BITS) for place in range(2)),
        receipt(4),
        receipt(9, queue_id=7),
    ]
    alone, batches = batches_of("g", lonely)
    assert set(alone) == set(lonely)
    assert batches == {}
