"""sparrowmq.spark.source.partition_ranges: numbers of queues that stay."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import (
    Offsets,
    between,
    extend_numbers,
    from_json,
    from_runs,
    limit_ends,
    to_json,
    to_runs,
)

QUEUES = st.builds(
    MessageQueue, st.sampled_from(["T", "U"]), st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 6)
)


def q(number, broker="broker-a", topic="T"):
    return MessageQueue(topic, broker, number)


def test_queues_of_several_brokers_have_numbers_one_after_the_other():
    both = {q(0), q(1), q(0, "broker-b"), q(1, "broker-b"), q(0, topic="U")}
    first = extend_numbers({}, both)
    assert first == {q(0): 0, q(1): 1, q(0, "broker-b"): 2, q(1, "broker-b"): 3, q(0, topic="U"): 0}
    later = extend_numbers(first, [q(2), q(0, "broker-0")])
    assert later == first | {q(0, "broker-0"): 4, q(2): 5}
    assert to_runs(later)["T"] == [
        ["broker-a", 0, 2],
        ["broker-b", 0, 2],
        ["broker-0", 0, 1],
        ["broker-a", 2, 1],
    ]


@given(st.lists(st.sets(QUEUES), max_size=5))
def test_numbers_never_change_and_never_meet_and_are_kept(looks):
    known: dict[MessageQueue, int] = {}
    for queues in looks:
        before, known = known, extend_numbers(known, queues)
        assert before.items() <= known.items()
        assert known.keys() == before.keys() | queues
        assert len({(queue.topic, number) for queue, number in known.items()}) == len(known)
        kept = json.loads(json.dumps(to_runs(known)))
        assert from_runs(kept) == known
        assert json.dumps(to_runs(dict(reversed(known.items())))) == json.dumps(kept)


def test_a_checkpoint_keeps_numbers_and_one_without_them_is_read():
    numbers = {q(0): 0, q(0, "broker-b"): 1}
    offsets = Offsets({q(0): 5, q(0, "broker-b"): 7}, {}, numbers)
    kept = json.loads(json.dumps(to_json(offsets)))
    assert from_json(kept).numbers == numbers
    del kept["partitions"]
    assert (from_json(kept), from_json(kept).numbers) == (offsets, {})


def test_ranges_have_the_numbers_also_below_a_limit():
    start = Offsets({q(0): 0, q(0, "broker-b"): 0})
    end = Offsets({q(0): 90, q(0, "broker-b"): 90}, {}, {q(0): 0, q(0, "broker-b"): 1})
    assert [each.number for each in between(start, end)] == [0, 1]
    assert [(len(each), each.number) for each in between(start, limit_ends(start, end, 20))] == [(10, 0), (10, 1)]
