"""sparrowmq.spark.pipelines.mirrored_groups: where a group that read the originals goes on."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.mirrored_groups import CopiedPlaces, Origin, ReturnedPlaces, parse_origin

ONE, TWO = MessageQueue("orders", "a", 0), MessageQueue("orders", "b", 0)


def places(*messages, begin=0):
    """Each message is (queue, offset), (queue, offset, life), or None if it is no copy."""
    made = CopiedPlaces(begin)
    for position, each in enumerate(messages, begin):
        made.add(position, each and Origin("m", each[0], each[2] if len(each) > 2 else "", each[1]))
    return made


def unread(made, start=0, others=(), **read):
    by_queue = {queue: read[name] for name, queue in (("one", ONE), ("two", TWO)) if name in read}
    return made.first_unread(start, by_queue, lambda position: position in others)


@pytest.mark.parametrize(("read", "place"), [(0, 0), (99, 0), (100, 0), (101, 1), (103, 3), (900, 4)])
def test_a_group_goes_on_behind_the_copy_of_the_last_message_that_it_read(read, place):
    assert unread(places(*((ONE, offset) for offset in range(100, 104))), one=read) == place


def test_copies_that_a_mirror_left_out_make_no_gap():
    made = places((ONE, 5), (ONE, 9), (ONE, 10))
    assert [unread(made, one=read) for read in (5, 6, 9, 10, 11)] == [0, 1, 1, 2, 3]


def test_a_message_of_the_target_is_passed_only_if_the_group_has_read_it():
    made = places((ONE, 0), None, (ONE, 1), None)
    assert (unread(made, one=2), unread(made, one=2, others=[1]), unread(made, one=2, others=[1, 3])) == (
        1,
        3,
        4,
    )
    assert [made.has_copy_at(position) for position in range(4)] == [True, False, True, False]


def test_a_group_that_was_further_at_the_target_does_not_see_what_is_before():
    made = places(None, None, (ONE, 0), (ONE, 1))
    assert (unread(made, start=2, one=1), unread(made, start=9, one=1)) == (3, 4)


def test_of_two_queues_in_one_the_group_goes_on_at_the_first_unread_copy():
    made = places((ONE, 0), (TWO, 0), (ONE, 1), (TWO, 1))
    assert unread(made, one=2, two=1) == 3
    assert unread(made, one=1, two=2) == 2
    assert unread(made, one=9) == 1


def test_copies_of_an_earlier_life_of_the_topic_count_as_read():
    made = places((ONE, 0), (ONE, 1), (ONE, 0, "17"), (ONE, 1, "17"))
    assert unread(made, one=1) == 3


def test_a_doubled_copy_is_unread_until_both_are_read():
    made = places((ONE, 0), (ONE, 1), (ONE, 1), (ONE, 2))
    assert [unread(made, one=read) for read in (1, 2, 3)] == [1, 3, 4]


def test_what_all_groups_have_reached_is_forgotten():
    made = places((ONE, 0), (ONE, 1), None, (ONE, 2), (ONE, 3))
    made.forget(4)
    assert (made.begin, made.end, unread(made, start=4, one=3), made.has_copy_at(4)) == (4, 5, 4, True)


def test_the_place_of_a_returned_copy():
    returned = ReturnedPlaces(begin=7, end=100)
    for position, original in enumerate((7, 8, None, 20), 100):
        returned.add(position, original)
    assert [returned.place_of(original) for original in (6, 7, 8, 9, 20)] == [None, 100, 101, None, 103]
    returned.forget(8)
    assert (returned.begin, returned.end) == (8, 104)
    assert [returned.place_of(original) for original in (7, 8, 20)] == [None, 101, 103]


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("m/orders@broker-a:3:17", Origin("m", MessageQueue("orders", "broker-a", 3), "", 17)),
        ("m/orders@a:b:3+1795:0", Origin("m", MessageQueue("orders", "a:b", 3), "1795", 0)),
        ("", None),
        ("m/orders@broker-a:3:", None),
        ("m/orders:3:17", None),
        ("orders@broker-a:3:17", None),
        ("m/orders@broker-a:x:17", None),
        (f"m/orders@broker-a:3:{'9' * 5000}", None),
        ("m/orders@broker-a:٣:17", None),
    ],
)
def test_an_origin_is_taken_apart(text, origin):
    assert parse_origin(text) == origin
