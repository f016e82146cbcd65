from collections import Counter

import pytest

from sparrowmq.client.sending.queue_choice import BatchRoundRobin, RoundRobin, SlowBrokers, by_key
from sparrowmq.protocol.messages.message import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(2)]


@pytest.mark.covers("S-PROD-14")
def test_queues_take_turns_from_a_random_start():
    turns = RoundRobin(start=lambda most: 3)
    assert [turns.next(QUEUES) for _ in range(5)] == [QUEUES[3], *QUEUES]
    assert {RoundRobin().next(QUEUES) for _ in range(200)} == set(QUEUES)


def test_each_topic_has_its_own_turn():
    turns = RoundRobin(start=lambda most: 0)
    other = [MessageQueue("other", "a", 0), MessageQueue("other", "a", 1)]
    assert [turns.next(QUEUES), turns.next(other), turns.next(QUEUES)] == [QUEUES[0], other[0], QUEUES[1]]


@pytest.mark.covers("S-PROD-03")
def test_the_broker_that_failed_is_passed_over():
    turns = RoundRobin(start=lambda most: 0)
    chosen = Counter(turns.next(QUEUES, [lambda name: name != "a"]).broker_name for _ in range(8))
    assert chosen == {"b": 8}


def test_a_lone_broker_is_taken_even_if_it_failed():
    turns = RoundRobin(start=lambda most: 0)
    assert [turns.next(QUEUES[:2], [lambda name: name != "a"]) for _ in range(3)] == [*QUEUES[:2], QUEUES[0]]


def test_the_second_wish_counts_where_no_broker_fulfils_the_first():
    turns = RoundRobin(start=lambda most: 0)
    assert turns.next(QUEUES, [lambda name: False, lambda name: name == "b"]) == QUEUES[2]


@pytest.mark.covers("S-PROD-16")
def test_a_key_goes_to_the_queue_that_java_picks():
    assert by_key("hello", QUEUES) == QUEUES[99162322 % 4]  # "hello".hashCode() in Java
    assert by_key("order-2", QUEUES) == QUEUES[1207111309 % 4]  # hashCode is -1207111309
    assert by_key("polygenelubricants", QUEUES) == QUEUES[2**31 % 4]  # hashCode is the smallest int


@pytest.mark.covers("S-PROD-15")
@pytest.mark.parametrize(
    ("latency_s", "avoided_s"),
    [(0.01, 0), (0.54, 0), (0.55, 2), (1.8, 5), (3.0, 6), (5.0, 10), (15.0, 30), (30.0, 30)],
)
def test_a_slow_broker_is_avoided_for_a_while(latency_s, avoided_s):
    slow = SlowBrokers()
    slow.report("a", latency_s, now=100.0)
    assert slow.is_usable("a", 100.0 + avoided_s)
    assert not avoided_s or not slow.is_usable("a", 99.9 + avoided_s)


def test_a_quick_answer_ends_the_avoidance():
    slow = SlowBrokers()
    slow.report("a", 5.0, now=0.0)
    slow.report("a", 0.01, now=1.0)
    assert slow.is_usable("a", 1.0)


def test_batches_are_shared_out_evenly_whatever_their_sizes():
    shares: BatchRoundRobin = BatchRoundRobin(start=lambda most: 0)
    sent: Counter[MessageQueue] = Counter()
    for number in range(1000):
        count = (1, 128)[number % 2]
        sent[shares.next(QUEUES, count)] += count
    assert set(sent) == set(QUEUES) and max(sent.values()) - min(sent.values()) <= 256
    assert {BatchRoundRobin().next(QUEUES, 2) for _ in range(200)} == set(QUEUES)


def test_a_new_queue_gets_no_more_than_its_share():
    shares = BatchRoundRobin(start=lambda most: 0)
    for _ in range(100):
        shares.next(QUEUES[:2], 10)
    sent = Counter(shares.next(QUEUES[:3], 10) for _ in range(30))
    assert max(sent.values()) <= 15
