"""The state of one queue of a group, against a plain model of it."""

import random
import tracemalloc

import pytest

from sparrowmq.broker.pop.pop_queue import CHUNK, PopQueue
from sparrowmq.broker.pop.pop_steps import AckStep, Changed, Dropped, PopStep, RestartStep, runs_of

PLACE = ("orders", "poppers", 3)


def taken(offsets, next_offset, due_ms=1000, token=7, attempt=1):
    return PopStep(*PLACE, runs_of(offsets), next_offset, 100, due_ms, token, attempt)


def settled(*offsets):
    return AckStep(*PLACE, runs_of(sorted(offsets)))


def begun(next_offset=0):
    queue = PopQueue(*PLACE, 0)
    queue.apply(RestartStep(*PLACE, next_offset))
    return queue


def test_the_front_is_the_first_message_that_is_not_done():
    queue = begun(60)
    assert queue.front == 60
    queue.apply(taken(list(range(60, 200)), 200))
    queue.apply(settled(61, *range(64, 199)))
    assert (queue.front, queue.count) == (60, 4)
    queue.apply(settled(60))
    assert queue.front == 62
    queue.apply(settled(62, 63))
    assert (queue.front, queue.count) == (199, 1)
    queue.apply(settled(199))
    assert (queue.front, queue.count, queue.chunks) == (200, 0, {})


def test_a_skipped_message_is_done():
    queue = begun()
    queue.apply(taken([0, 2], 3))
    assert (queue.cell(1), queue.count) == (None, 2)


def test_all_messages_of_a_run_are_valid_at_once():
    queue, run = begun(60), range(60, 200)
    queue.apply(taken(list(run), 200))
    assert queue.with_token(run, 7) is run
    assert list(queue.with_token(run, 8)) == []
    assert list(queue.with_token(range(190, 210), 7)) == list(range(190, 200))


@pytest.mark.parametrize("step", [settled(130), Changed(*PLACE, 130, 100, 5000, 8)], ids=["done", "changed"])
@pytest.mark.parametrize("begin", [60, 130])
def test_a_message_of_a_run_that_is_done_or_has_another_token_is_not_valid(step, begin):
    queue = begun(60)
    queue.apply(taken(list(range(60, 200)), 200))
    queue.apply(step)
    run = range(begin, 200)
    assert list(queue.with_token(run, 7)) == [offset for offset in run if offset != 130]


def test_messages_are_visible_again_when_their_time_is_over_and_no_earlier():
    queue = begun()
    queue.apply(taken([0, 1], 2, due_ms=1000))
    queue.apply(taken([2], 3, due_ms=2000))
    assert queue.check_chunk(0, 999) == [] and queue.chunks[0].check_at_ms == 1000
    assert queue.check_chunk(0, 1000) == [0, 1] and queue.chunks[0].check_at_ms == 2000
    assert queue.check_chunk(0, 1000) == []
    queue.apply(settled(0))
    assert [queue.next_ready(1000), queue.next_ready(1000)] == [1, None]


def test_a_message_that_got_more_time_is_not_ready():
    queue = begun()
    queue.apply(taken([0], 1, due_ms=1000))
    assert queue.check_chunk(0, 1000) == [0]
    queue.apply(Changed(*PLACE, 0, 1000, 5000, 8))
    assert queue.next_ready(1000) is None
    assert queue.cell(0)[:4] == (1000, 5000, 8, 1)


def test_a_message_whose_time_ends_twice_is_ready_once():
    queue = begun()
    queue.apply(taken([0, 1], 2, due_ms=1000))
    assert queue.check_chunk(0, 1000) == [0, 1]
    queue.apply(Changed(*PLACE, 0, 1000, 2000, 8))
    assert queue.check_chunk(0, 2000) == [0]
    first = queue.next_ready(2000)
    assert first == 0
    queue.put_back(first)
    assert [queue.next_ready(2000) for _ in range(3)] == [0, 1, None]


def test_a_change_of_a_done_message_does_nothing():
    queue = begun()
    queue.apply(Changed(*PLACE, 0, 1000, 5000, 8))
    assert queue.count == 0


def test_a_reset_forgets_everything():
    queue = begun()
    queue.apply(taken([0, 1], 2))
    queue.check_chunk(0, 1000)
    queue.apply(RestartStep(*PLACE, 1))
    assert (queue.front, queue.next_offset, queue.count, queue.next_ready(9999)) == (1, 1, 0, None)
    queue.apply(Dropped(*PLACE))
    assert queue.count == 0


def test_a_lost_end_of_the_log_takes_its_messages_along():
    queue = begun()
    queue.apply(taken([0, 1, 2], 3))
    queue.cut(1)
    assert (queue.next_offset, list(queue.live_offsets())) == (1, [0])


def state(queue):
    cells = {offset: queue.cell(offset) for offset in queue.live_offsets()}
    return queue.front, queue.next_offset, queue.count, cells, sorted(set(queue.ready) & set(cells))


def test_a_snapshot_makes_the_same_state_though_steps_come_between():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    queue, copy = begun(), PopQueue(*PLACE, 0)
    for round_ in range(300):
        _change(queue, chance, round_)
    for step in queue.snapshot():
        copy.apply(step)
        for change in _change(queue, chance, 1000):
            copy.apply(change)
    for offset in list(queue.live_offsets()):
        assert copy.cell(offset) is not None, seed
    assert state(copy)[:3] == state(queue)[:3], seed


def _change(queue, chance, now_ms):
    """A random step, as a broker makes it; yields what the log gets."""
    steps = []
    if chance.random() < 0.5:
        count = chance.randrange(1, 33)
        begin = queue.next_offset
        some = [offset for offset in range(begin, begin + count) if chance.random() < 0.9]
        steps.append(taken(some, begin + count, now_ms + chance.randrange(50), chance.randrange(1, 99)))
    live = list(queue.live_offsets())
    if live:
        steps.append(settled(*chance.sample(live, chance.randrange(len(live)) // 2)))
        steps.append(Changed(*PLACE, chance.choice(live), now_ms, now_ms + 99, 5))
    for step in steps:
        queue.apply(step)
    return steps


def test_a_snapshot_has_what_waits_and_the_attempts():
    queue, copy = begun(), PopQueue(*PLACE, 0)
    queue.apply(taken(list(range(70)), 70, attempt=0))
    queue.apply(PopStep(*PLACE, [2, 66], 70, 100, 1000, 17, 1, 5))
    queue.apply(PopStep(*PLACE, [3, 1], 70, 100, 1000, 18, 2, 6))
    queue.apply(settled(4))
    copy.apply(PopStep(*PLACE, [2, 1], 70, 100, 1000, 19, 1, 9))
    for step in queue.snapshot():
        copy.apply(step)
    assert state(copy)[:4] == state(queue)[:4]
    assert [copy.messages_of(attempt) for attempt in (5, 6, 9)] == [[], [], []]  # 0 and 1 are before them
    queue.apply(settled(0, 1))
    copy.apply(settled(0, 1))
    assert copy.messages_of(5) == queue.messages_of(5) == [2]
    assert copy.of_attempt(5) == [2, *range(5, 68)]
    assert [copy.next_ready(1000) for _ in range(3)] == [68, 69, None]


def test_lanes_take_the_place_of_ready_messages_and_give_it_back():
    queue = begun()
    queue.apply(taken([0, 1, 2], 3, attempt=0))
    queue.apply(taken([0], 3))
    message_groups = queue.begin_message_groups()
    assert (message_groups.unread, queue.ready, list(queue.visible(1000))) == ([2, 1, 0], [], [1, 2])
    assert queue.check_chunk(0, 1000) == [0]
    queue.end_message_groups()
    assert [queue.next_ready(1000) for _ in range(4)] == [0, 1, 2, None]


def test_a_stuck_message_costs_one_chunk():
    queue = begun()
    for begin in range(0, 6400, CHUNK):
        queue.apply(taken(list(range(begin, begin + CHUNK)), begin + CHUNK))
        queue.apply(settled(*range(max(begin, 1), begin + CHUNK)))
    assert (queue.front, len(queue.chunks)) == (0, 1)


def test_a_hundred_thousand_hidden_messages_take_less_than_4_mb():
    tracemalloc.start()
    try:
        queue = begun()
        for begin in range(0, 100_000, 20):
            queue.apply(taken(list(range(begin, begin + 20)), begin + 20))
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert queue.count == 100_000
    assert used < 4_000_000
