"""sparrowmq.spark.source.partition_ranges: topics that were deleted and made again."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import (
    Bounds,
    Offsets,
    RowsLost,
    between,
    ends_of,
    from_json,
    stream_ends,
    to_json,
)

PART = ("T", "a")


def q(number):
    return MessageQueue("T", "a", number)


def begun(incarnation=None, **offsets):
    known = {} if incarnation is None else {PART: incarnation}
    return Offsets({q(int(name[1:])): offset for name, offset in offsets.items()}, known)


def ahead(begin, held, fail=False):
    return stream_ends(begin, held, lambda bounds: bounds.start, fail=fail)


def read(begin, end):
    return [(each.queue.queue_id, each.start, each.end) for each in between(begin, end)]


@pytest.mark.parametrize(
    ("known", "said", "end", "incarnation", "rows"),
    [
        (7_000, 7_000, 150, 7_000, [(0, 120, 150)]),
        (7_000, 9_000, 150, 9_000, [(0, 0, 150)]),
        (7_000, 9_000, 30, 9_000, [(0, 0, 30)]),
        (7_000, 7_000, 30, 7_000, []),  # the same topic, whose broker has lost its end
        (7_000, 1, 150, 7_000, [(0, 120, 150)]),  # the broker has lost the topic's settings
        (7_000, None, 150, 7_000, [(0, 120, 150)]),
        (7_000, None, 30, -1, [(0, 0, 30)]),
        (None, 9_000, 150, 9_000, [(0, 120, 150)]),  # a checkpoint from before incarnations
        (None, 9_000, 30, -1, [(0, 0, 30)]),
        (None, None, 150, None, [(0, 120, 150)]),
        (None, None, 30, -1, [(0, 0, 30)]),
        (-1, None, 150, -1, [(0, 120, 150)]),
        (-1, None, 30, -2, [(0, 0, 30)]),
        (-1, 9_000, 150, 9_000, [(0, 120, 150)]),
    ],
)
def test_rows_are_those_of_the_topic_that_there_is(known, said, end, incarnation, rows):
    begin = begun(known, q0=120)
    found = ahead(begin, {q(0): Bounds(0, end, said)})
    assert found.incarnations.get(PART) == incarnation
    assert read(begin, found) == rows
    assert read(from_json(to_json(begin)), from_json(to_json(found))) == rows
    assert ahead(found, {q(0): Bounds(0, end, said)}) == found


def test_a_strict_stream_ends_when_a_topic_was_made_again():
    with pytest.raises(RowsLost, match=r"topic T on a was deleted and made again\. .* queue 0 to 120, queue 1 to 4 "):
        ahead(begun(7_000, q0=120, q1=4), {q(0): Bounds(0, 150, 9_000)}, fail=True)


def test_queues_that_do_not_answer_begin_at_0_of_the_new_topic():
    begin = begun(7_000, q0=120, q1=50)
    found = ahead(begin, {q(0): Bounds(0, 10, 9_000)})
    assert found == {q(0): 10, q(1): 0} and read(begin, found) == [(0, 0, 10)]
    later = ahead(found, {q(0): Bounds(0, 10, 9_000), q(1): Bounds(0, 3, 9_000), q(2): Bounds(0, 5, 9_000)})
    assert read(found, later) == [(1, 0, 3)] and later[q(2)] == 0


def test_a_topic_that_was_made_again_between_two_answers_is_looked_at_again():
    begin = begun(7_000, q0=120, q1=50)
    assert ahead(begin, {q(0): Bounds(0, 130, 7_000), q(1): Bounds(0, 3, 9_000)}) == begin


def test_ends_have_the_incarnations_that_brokers_name():
    other = MessageQueue("U", "a", 0)
    found = ends_of({q(0): Bounds(0, 5, 9_000), other: Bounds(0, 7)})
    assert found == {q(0): 5, other: 7} and found.incarnations == {PART: 9_000}
