"""sparrowmq.spark.source.partition_ranges: offsets, limits and tasks, planned without a broker."""

import json
import logging
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import (
    ROWS_WORTH_A_TASK,
    Bounds,
    Checkpoints,
    Range,
    RowsLost,
    between,
    clamp_offset,
    from_json,
    is_worth_a_batch,
    limit_ends,
    lose,
    sample_ranges,
    search_time,
    share,
    to_json,
)


def q(number, broker="broker-a", topic="T"):
    return MessageQueue(topic, broker, number)


def test_offsets_are_written_the_same_whatever_their_order():
    offsets = {q(10): 5, q(2): 7, q(0, "broker-b"): 1, q(0, topic="A"): 0}
    topics = '{"A": {"broker-a": {"0": 0}}, "T": {"broker-a": {"2": 7, "10": 5}, "broker-b": {"0": 1}}}'
    text = '{"v": 1, "topics": ' + topics + "}"
    assert json.dumps(to_json(offsets)) == text
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text
    assert from_json(json.loads(text)) == offsets


@pytest.mark.parametrize(
    ("checkpoint", "complaint"),
    [
        ({"v": 2, "topics": {}}, "written by a later release"),
        ({"orders": {"0": 23}}, "not one of this source"),
        ({"v": 1}, "not one of this source"),
    ],
)
def test_a_foreign_checkpoint_is_refused(checkpoint, complaint):
    with pytest.raises(ConfigError, match=complaint):
        from_json(checkpoint)


@pytest.mark.parametrize(
    ("offset", "settled", "complaint"),
    [
        (5, 5, None),
        (9, 9, None),
        (4, 5, "offsets 4 to 4 of T@broker-a\\[0\\] are gone"),
        (10, 9, "ends at offset 9, but was read or asked for up to 10"),
    ],
)
def test_lost_offsets_end_the_query_or_are_said_in_the_log(offset, settled, complaint, caplog):
    if complaint:
        with pytest.raises(RowsLost, match=complaint + ".*failOnDataLoss=false"):
            clamp_offset(q(0), offset, Bounds(5, 9), fail=True)
    with caplog.at_level(logging.WARNING):
        assert clamp_offset(q(0), offset, Bounds(5, 9), fail=False) == settled
    assert len(caplog.records) == (complaint is not None)


def test_all_losses_go_through_one_decision():
    lose("nothing much", fail=False)
    with pytest.raises(RowsLost, match="something dear"):
        lose("something dear", fail=True)


def test_only_queues_with_rows_make_ranges():
    start = {q(1): 5, q(0): 0, q(2): 9, q(3): 1}
    assert between(start, {q(0): 3, q(1): 5, q(2): 8, q(4): 7}) == [Range(q(0), 0, 3)]


def test_a_limit_is_split_in_proportion_and_starves_nobody():
    start = {q(0): 0, q(1): 100, q(2): 5, q(3): 8}
    end = {q(0): 900, q(1): 1000, q(2): 6, q(3): 8}
    assert limit_ends(start, end, 180) == {q(0): 89, q(1): 189, q(2): 6, q(3): 8}
    assert limit_ends(start, end, 1801) == end
    assert limit_ends(start, end, 1) == {q(0): 1, q(1): 101, q(2): 6, q(3): 8}


def test_a_queue_seen_for_the_first_time_keeps_its_offset_under_a_capped():
    assert limit_ends({q(0): 0}, {q(0): 100, q(1): 40}, 10) == {q(0): 10, q(1): 40}


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), min_size=1, max_size=12),
    st.integers(1, 10**6),
)
def test_limited_batches_reach_the_end_without_going_back(queues, rows):
    start = {q(number): first for number, (first, _) in enumerate(queues)}
    end = {q(number): first + waiting for number, (first, waiting) in enumerate(queues)}
    limited = limit_ends(start, end, rows)
    taken = sum(map(len, between(start, limited)))
    assert all(start[queue] <= limited[queue] <= end[queue] for queue in end)
    assert taken <= rows + len(queues)
    assert taken > 0 or start == end


@pytest.mark.parametrize(
    ("rows", "min_rows", "waited_ms", "expected"),
    [(0, None, 0, True), (5, 10, 0, False), (10, 10, 0, True), (5, 10, 900, True), (5, 10, 899, False)],
)
def test_few_rows_wait_for_more_but_not_for_ever(rows, min_rows, waited_ms, expected):
    assert is_worth_a_batch(rows, min_rows, waited_ms, 900) is expected


def whole(count, rows=ROWS_WORTH_A_TASK):
    return [Range(q(number), 0, rows) for number in range(count)]


def test_a_small_batch_is_one_task_whatever_its_queues():
    ranges = whole(16, 100)
    assert share(ranges, 1, 8) == [tuple(ranges)]


def test_queues_are_put_together_up_to_the_partitions_allowed():
    tasks = share(whole(20), 1, 8)
    assert len(tasks) == 8
    assert sorted(len(task) for task in tasks) == [2, 2, 2, 2, 3, 3, 3, 3]
    assert sorted(each for task in tasks for each in task) == whole(20)


def test_ranges_are_cut_only_to_reach_the_partitions_asked_for():
    big, small = Range(q(0), 0, 900), Range(q(1), 50, 150)
    assert share([big, small], 1, 8) == [(big, small)]
    tasks = share([big, small], 4, 8)
    assert tasks == [
        (Range(q(0), 0, 300),),
        (Range(q(0), 300, 600),),
        (Range(q(0), 600, 900),),
        (small,),
    ]


def test_without_a_limit_there_are_as_many_tasks_as_are_worth_it():
    assert len(share(whole(20), 1)) == 8
    assert [len(share(whole(20, 50_000), 1, None, cores)) for cores in (1, 2, 16, 100)] == [4, 4, 16, 20]
    assert len(share(whole(20, 50_000), 1, 3, 16)) == 3
    assert len(share(whole(20, 1_000_000), 1)) == 20
    assert len(share(whole(100, 50_000), 1)) == 5_000_000 // 250_000
    assert len(share(whole(3, 100), 16)) == 16


def test_no_task_is_empty():
    assert share([], 4, 8) == []
    assert share([Range(q(0), 3, 3)], 4, 8) == []
    assert len(share([Range(q(0), 0, 2)], 4, 8)) == 2


@given(
    st.lists(st.integers(0, 200_000), max_size=20),
    st.integers(1, 12),
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_tasks_hold_every_row_once_and_do_not_depend_on_the_order_asked(sizes, least, more, random):
    ranges = [Range(q(number), 7, 7 + rows) for number, rows in enumerate(sizes)]
    tasks = share(ranges, least, least + more)
    shuffled = list(ranges)
    random.shuffle(shuffled)
    assert share(shuffled, least, least + more) == tasks
    assert len(tasks) <= least + more
    assert len(tasks) >= min(least, sum(sizes))
    pieces = sorted(piece for task in tasks for piece in task)
    for each in filter(len, ranges):
        mine = [piece for piece in pieces if piece.queue == each.queue]
        assert [piece.start for piece in mine] == [each.start, *(piece.end for piece in mine[:-1])]
        assert mine[-1].end == each.end


def first_at(time_of, wanted, hint, bounds):
    """What a search finds, whose questions `time_of` answers."""
    searching = search_time(wanted, hint, bounds)
    try:
        offset = next(searching)
        while True:
            offset = searching.send(time_of(offset))
    except StopIteration as done:
        return done.value


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(-1, 31), st.integers(-5, 80), st.integers(0, 9))
def test_the_first_message_of_a_time_is_found_wherever_the_broker_pointed(times, wanted, hint, first):
    times.sort()

    def time_of(offset):
        assert first <= offset < first + len(times)
        return times[offset - first]

    bounds = Bounds(first, first + len(times))
    assert first_at(time_of, wanted, hint, bounds) == first + bisect_left(times, wanted)


def test_a_good_hint_costs_few_questions():
    asked = []

    def time_of(offset):
        asked.append(offset)
        return offset

    assert first_at(time_of, 700_000, 699_999, Bounds(0, 10**6)) == 700_000
    assert len(asked) < 5


def test_a_checkpoint_that_comes_again_is_not_taken_apart_again():
    checkpoints, first = Checkpoints(), to_json({q(0): 1})
    known = checkpoints.offsets(first)
    assert known == {q(0): 1}
    assert checkpoints.offsets(to_json({q(0): 2})) == {q(0): 2}
    assert checkpoints.offsets(dict(first)) is known
    assert checkpoints.offsets(to_json({q(0): 3})) == {q(0): 3}
    assert checkpoints.offsets(first) == known


@pytest.mark.parametrize(
    ("lengths", "count", "most", "places"),
    [
        ([100], 64, 8, [0, 12, 25, 37, 50, 62, 75, 87]),
        ([3, 0], 64, 8, [0, 1, 2]),
        ([10, 10, 10], 6, 8, [0, 5, 0, 5, 0, 5]),
        ([10] * 5, 2, 8, [0, 0]),
    ],
)
def test_samples_are_spread_over_ranges_and_speak_for_their_rows(lengths, count, most, places):
    ranges = [Range(MessageQueue("T", "b", number), 0, length) for number, length in enumerate(lengths)]
    found = list(sample_ranges(ranges, count, most))
    assert [offset for _, offset, _ in found] == places
    for each in {each for each, _, _ in found}:
        assert sum(rows for of, _, rows in found if of == each) >= len(each)
